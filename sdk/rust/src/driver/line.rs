//! The socket as the driver uses it: dialled, read in batches, written with one flush.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Sink, Stream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::{BATCH, Driver};
use crate::errors::ConnectError;
use crate::session::Input;
use crate::transport::{self, Socket};

/// Where the socket stands.
pub(super) enum Line {
    Down,
    Dialing(BoxFuture<'static, Result<Socket, ConnectError>>),
    Up(Box<Socket>),
}

impl Driver {
    pub(super) fn dial(&mut self) {
        let route = Arc::clone(&self.route);
        self.line = Line::Dialing(Box::pin(async move {
            transport::connect(&*route.dial, &route.address, route.token.as_deref()).await
        }));
    }

    pub(super) fn advance_line(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.line {
            Line::Down => false,
            Line::Dialing(dial) => {
                let Poll::Ready(dialled) = dial.poll_unpin(cx) else { return false };
                match dialled {
                    Ok(socket) => {
                        self.line = Line::Up(Box::new(socket));
                        self.input(Input::Opened);
                    }
                    Err(error) => {
                        self.line = Line::Down;
                        self.failing(error.clone());
                        self.input(Input::DialFailed(error));
                    }
                }
                true
            }
            Line::Up(_) => self.read(cx),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        for taken in 0..BATCH {
            let Line::Up(socket) = &mut self.line else { return true };
            // Effects are carried out between frames only when they are many: a frame costs at most a few.
            if !self.session.may_read() || self.effects.len() > 4 * BATCH {
                return taken > 0;
            }
            let Poll::Ready(frame) = Pin::new(&mut **socket).poll_next(cx) else { return taken > 0 };
            match frame {
                Some(Ok(Message::Binary(bytes))) => self.input(Input::Message(bytes)),
                Some(Ok(Message::Text(_))) => self.input(Input::Text),
                Some(Ok(Message::Ping(_))) => {
                    // The library queued a pong; it must not wait for the next message to carry it.
                    self.dirty = true;
                    self.input(Input::Alive);
                }
                Some(Ok(Message::Pong(_) | Message::Frame(_))) => self.input(Input::Alive),
                Some(Ok(Message::Close(frame))) => {
                    let (code, reason) = frame
                        .map_or((None, String::new()), |f| (Some(u16::from(f.code)), f.reason.to_string()));
                    self.answer_close(cx);
                    self.lost(code, reason);
                }
                Some(Err(error)) => self.lost(None, error.to_string()),
                None => self.lost(None, "the connection ended".to_owned()),
            }
        }
        true
    }

    /// One try to get the answer to a close frame out; the socket is let go in any case.
    fn answer_close(&mut self, cx: &mut Context<'_>) {
        if let Line::Up(socket) = &mut self.line
            && let Poll::Ready(Err(error)) = Pin::new(&mut **socket).poll_flush(cx)
        {
            tracing::debug!(%error, "close was not answered");
        }
    }

    pub(super) fn lost(&mut self, code: Option<u16>, reason: String) {
        self.line = Line::Down;
        self.dirty = false;
        self.closing = None;
        self.failing(ConnectError::Io(reason.clone()));
        self.input(Input::Lost(code, reason));
    }

    pub(super) fn send(&mut self, message: Message) {
        if let Line::Up(socket) = &mut self.line {
            match Pin::new(&mut **socket).start_send(message) {
                Ok(()) => self.dirty = true,
                Err(error) => self.lost(None, error.to_string()),
            }
        }
    }

    /// Writes all that waits, then flushes once. `true` when there may be room for more work now.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut wrote = false;
        let outcome = self.write_batch(cx, &mut wrote);
        if wrote {
            self.input(Input::Wrote);
        }
        match outcome {
            Poll::Ready(Err(error)) => {
                self.lost(None, error);
                true
            }
            Poll::Ready(Ok(())) | Poll::Pending => wrote,
        }
    }

    fn write_batch(&mut self, cx: &mut Context<'_>, wrote: &mut bool) -> Poll<Result<(), String>> {
        let Line::Up(socket) = &mut self.line else { return Poll::Ready(Ok(())) };
        let mut socket = Pin::new(&mut **socket);
        let text = |e: tokio_tungstenite::tungstenite::Error| e.to_string();
        while self.session.has_outgoing() {
            ready!(socket.as_mut().poll_ready(cx)).map_err(text)?;
            let Some(message) = self.session.pop() else { break };
            socket.as_mut().start_send(Message::Binary(message)).map_err(text)?;
            self.dirty = true;
            *wrote = true;
        }
        if let Some(code) = self.closing.take() {
            let frame = CloseFrame { code: code.into(), reason: "".into() };
            socket.as_mut().start_send(Message::Close(Some(frame))).map_err(text)?;
            self.dirty = true;
        }
        if self.dirty {
            ready!(socket.as_mut().poll_flush(cx)).map_err(text)?;
            self.dirty = false;
        }
        Poll::Ready(Ok(()))
    }
}
