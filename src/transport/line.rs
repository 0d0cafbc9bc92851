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

/// How many who write are called before one who only reads. What is read is to be written to somebody: where many send
/// to one, he must get more turns than each of them, or what he is to have piles up until he counts as a slow consumer.
const WRITERS_AHEAD: u32 = 4;

/// What somebody waits to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Reading alone.
    Reading,
    /// Writing, and reading as well.
    Writing,
}

/// A place in the line of the thread that it was taken on: its number there, and whether that is among those who write.
/// The default is that of one who does not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(u64);

/// Those who wait for the same.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Waker>,
    /// How many have ever lined up, and how many of them were called.
    joined: u64,
    called: u64,
}

/// Those who wait on one thread. No connection has two places, so they bound it.
#[derive(Default)]
struct Line {
    readers: Lane,
    writers: Lane,
    /// How many of the writers were called since a reader was.
    ahead: u32,
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
pub fn line_up(waker: &Waker, wants: Wants) -> Place {
    LINE.with_borrow_mut(|line| {
        if !line.attended {
            waker.wake_by_ref();
            return Place::default();
        }
        if let Some(attendant) = line.attendant.take() {
            attendant.wake();
        }
        match wants {
            Wants::Reading => Place(line.readers.join(waker) << 1),
            Wants::Writing => Place(line.writers.join(waker) << 1 | 1),
        }
    })
}

impl Place {
    /// Whether it is one's turn. The waker of the place is woken when it is.
    #[must_use]
    pub fn has_come(self) -> bool {
        self == Self::default()
            || LINE.with_borrow(|line| {
                let lane = if self.0 & 1 == 0 { &line.readers } else { &line.writers };
                self.0 >> 1 <= lane.called
            })
    }
}

impl Line {
    /// Who is next: those who write, but a reader after so many of them.
    fn next(&mut self) -> Option<Waker> {
        let writer = if self.ahead < WRITERS_AHEAD { self.writers.call() } else { None };
        if writer.is_some() {
            self.ahead += 1;
            return writer;
        }
        self.ahead = 0;
        self.readers.call().or_else(|| self.writers.call())
    }
}

impl Lane {
    /// The number of one more, from 1 on.
    fn join(&mut self, waker: &Waker) -> u64 {
        self.waiting.push_back(waker.clone());
        self.joined += 1;
        self.joined
    }

    fn call(&mut self) -> Option<Waker> {
        let next = self.waiting.pop_front()?;
        self.called += 1;
        Some(next)
    }
}

/// Calls those in this thread's line one after the other, without end.
pub async fn attend() {
    LINE.with_borrow_mut(|line| line.attended = true);
    loop {
        let next = poll_fn(|cx| {
            LINE.with_borrow_mut(|line| match line.next() {
                Some(next) => Poll::Ready(next),
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
        turn_for(Wants::Reading).await;
    }

    async fn turn_for(wants: Wants) {
        let mut place = None;
        poll_fn(|cx| {
            let place: Place = *place.get_or_insert_with(|| line_up(cx.waker(), wants));
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
    fn who_writes_is_called_first_but_not_for_ever() {
        attended(|| async {
            let called = Arc::new(std::sync::Mutex::new(String::new()));
            let wait = |wants, letter| {
                let called = Arc::clone(&called);
                tokio::spawn(async move {
                    turn_for(wants).await;
                    called.lock().unwrap().push(letter);
                })
            };
            let mut waiting: Vec<_> = (0..4).map(|_| wait(Wants::Reading, 'r')).collect();
            waiting.extend((0..9).map(|_| wait(Wants::Writing, 'w')));
            for waiting in waiting {
                waiting.await.unwrap();
            }
            assert_eq!(*called.lock().unwrap(), "wwwwrwwwwrwrr");
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
