//! The line of those who have had their share of a thread and want more.
//!
//! A thread looks at its sockets when no task is ready, or else once in 61 tasks. A connection whose peer sends without
//! end is always ready, and if it only asked to be polled again, some such peers would keep the sockets of all others
//! unseen for as long as 61 of their shares take: 0.1 s was measured. So it lines up here. One at a time goes on, and
//! before the next does, the sockets are looked at and everybody else has had a turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A place in the line of the thread that it was taken on. The default is that of one who does not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u64);

/// Those who wait on one thread. No connection has two places, so they bound it.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Waker>,
    /// How many have ever lined up, and how many of them were called.
    joined: u64,
    called: u64,
    /// Who calls is there, and sleeps while nobody waits.
    attended: bool,
    attendant: Option<Waker>,
}

thread_local! {
    static LINE: RefCell<Line> = RefCell::default();
}

/// Takes a place, which must be waited for with [`Place::has_come`]. Where nobody calls, on threads that are not the
/// hub's own for connections, it has come already.
#[must_use]
pub fn line_up(waker: &Waker) -> Place {
    LINE.with_borrow_mut(|line| {
        if !line.attended {
            waker.wake_by_ref();
            return Place::default();
        }
        line.waiting.push_back(waker.clone());
        line.joined += 1;
        if let Some(attendant) = line.attendant.take() {
            attendant.wake();
        }
        Place(line.joined)
    })
}

impl Place {
    /// Whether it is one's turn. The waker of the place is woken when it is.
    #[must_use]
    pub fn has_come(self) -> bool {
        self == Self::default() || LINE.with_borrow(|line| self.0 <= line.called)
    }
}

/// Calls those in this thread's line one after the other, without end.
pub async fn attend() {
    LINE.with_borrow_mut(|line| line.attended = true);
    loop {
        let next = poll_fn(|cx| {
            LINE.with_borrow_mut(|line| match line.waiting.pop_front() {
                Some(next) => {
                    line.called += 1;
                    Poll::Ready(next)
                }
                None => {
                    line.attendant = Some(cx.waker().clone());
                    Poll::Pending
                }
            })
        });
        next.await.wake();
        // Who yields like this is woken after the sockets were looked at.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    /// Lines up, and waits for the turn.
    async fn turn() {
        let mut place = None;
        poll_fn(|cx| {
            let place: Place = *place.get_or_insert_with(|| line_up(cx.waker()));
            if place.has_come() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Runs `test` beside who calls, on a thread of its own: a line is a thread's.
    fn attended<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
        let thread = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! { biased; () = attend() => {}, () = test() => {} }
            });
        });
        thread.join().unwrap();
    }

    #[test]
    fn those_who_wait_are_called_in_order() {
        attended(|| async {
            let called = Arc::new(AtomicUsize::new(0));
            let wait = |number| {
                let called = Arc::clone(&called);
                tokio::spawn(async move {
                    for round in 0..5_usize {
                        turn().await;
                        assert_eq!(called.fetch_add(1, Ordering::Relaxed), round * 30 + number);
                    }
                })
            };
            for waiting in (0..30).map(wait).collect::<Vec<_>>() {
                waiting.await.unwrap();
            }
            assert_eq!(called.load(Ordering::Relaxed), 150);
        });
    }

    #[test]
    fn sockets_are_looked_at_before_the_next_is_called() {
        attended(|| async {
            let turns = Arc::new(AtomicUsize::new(0));
            for _ in 0..50 {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move {
                    loop {
                        turn().await;
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let (mut near, mut far) = UnixStream::pair().unwrap();
            tokio::spawn(async move {
                while let Ok(byte) = far.read_u8().await {
                    far.write_u8(byte).await.unwrap();
                }
            });
            for byte in 0..100 {
                let before = turns.load(Ordering::Relaxed);
                near.write_u8(byte).await.unwrap();
                assert_eq!(near.read_u8().await.unwrap(), byte);
                let passed = turns.load(Ordering::Relaxed) - before;
                // There and back: two looks at the sockets, and what was called already.
                assert!(passed <= 4, "{passed} were called meanwhile");
            }
            assert!(turns.load(Ordering::Relaxed) > 50, "all have had a turn");
        });
    }

    #[test]
    fn where_nobody_calls_nobody_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for _ in 0..3 {
                turn().await;
            }
        });
    }
}
