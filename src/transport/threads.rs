//! The threads that connections live on.
//!
//! Each is a runtime of one thread. Everything that a frame causes between two connections of a thread (the
//! wake-up, the core, the write) happens without a system call but the socket's own, and without a thread waiting
//! for another (ADR 0005). Handshakes, HTTP and timers are on another runtime: they must not stand in a call's way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use super::line;

/// Tells whether threads for connections are alive.
#[derive(Clone, Debug)]
pub struct Pulse(Vec<Handle>);

impl Pulse {
    /// Waits until every thread has done a bit of work that it gets now. False when one has ended; on one that hangs it
    /// waits for ever.
    pub async fn beats(&self) -> bool {
        for thread in &self.0 {
            if thread.spawn(async {}).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Threads for connections. Dropped, they end, and with them what still lives on them.
#[derive(Debug)]
pub struct Threads {
    first: Thread,
    others: Vec<Thread>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Thread {
    handle: Handle,
    stop: Arc<Notify>,
    joined: Option<JoinHandle<()>>,
}

impl Threads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// When the system gives no thread, or no descriptors for its reactor.
    pub fn start(count: usize) -> io::Result<Self> {
        let first = Thread::start(0)?;
        let others = (1..count).map(Thread::start).collect::<io::Result<_>>()?;
        Ok(Self { first, others, turn: AtomicUsize::new(0) })
    }

    /// What tells whether they are alive.
    pub fn pulse(&self) -> Pulse {
        let threads = std::iter::once(&self.first).chain(&self.others);
        Pulse(threads.map(|thread| thread.handle.clone()).collect())
    }

    /// The thread for the next connection: each in turn.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % (self.others.len() + 1);
        &self.others.get(turn).unwrap_or(&self.first).handle
    }
}

impl Thread {
    fn start(index: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let joined = std::thread::Builder::new().name(format!("connections-{index}")).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.notified() => {}
                    () = line::attend() => {}
                }
            });
        })?;
        Ok(Self { handle, stop, joined: Some(joined) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(joined) = self.joined.take()
            && joined.join().is_err()
        {
            tracing::error!("a thread of connections has failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn a_thread_that_hangs_has_no_pulse_and_one_that_works_has() {
        let threads = Threads::start(2).unwrap();
        let pulse = threads.pulse();
        assert!(pulse.beats().await);
        let (entered, inside) = mpsc::sync_channel(1);
        let (go, gate) = mpsc::sync_channel::<()>(1);
        drop(threads.others[0].handle.spawn(async move {
            entered.send(()).unwrap();
            gate.recv().unwrap();
        }));
        inside.recv().unwrap();
        let mut beats = pin!(pulse.beats());
        assert_eq!(beats.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        go.send(()).unwrap();
        assert!(beats.await);
        drop(threads);
        assert!(!pulse.beats().await);
    }
}
