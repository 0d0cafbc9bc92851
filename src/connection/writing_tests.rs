//! What leaves a connection, over pipes of every width, behind a queue in the place of the core.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use agent_reach_core::ConnectionId;
use agent_reach_protocol::Shared;
use agent_reach_protocol::codec::Writer;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::connection::Encoding;
use crate::driver::{Inbound, Turn};
use crate::transport::line::attend;
use crate::transport::trust::Distrust;
use crate::transport::wire;

/// What waits for the connection, and what it has handed in.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Outgoing>>,
    heard: Mutex<Vec<String>>,
}

impl Queue {
    fn of(waiting: impl IntoIterator<Item = Outgoing>) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::new(waiting.into_iter().collect()), ..Self::default() })
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

impl Turns for Queue {
    fn distrust(&self, _: ConnectionId, _: Distrust) {}

    fn turn(
        &self,
        _: ConnectionId,
        inbox: &mut VecDeque<Inbound>,
        _: &Waker,
        batch: &mut Vec<Outgoing>,
        may_write: bool,
    ) -> Turn {
        for inbound in inbox.drain(..) {
            self.heard.lock().unwrap().push(match inbound {
                Inbound::Message(message, _) => format!("message of {}", message.len()),
                Inbound::Undeliverable(message, _) => format!("undeliverable of {}", message.len()),
                other @ (Inbound::Alive | Inbound::Broken | Inbound::TooLarge | Inbound::Untrusted(_)) => {
                    format!("{other:?}")
                }
            });
        }
        if may_write {
            batch.extend(self.waiting.lock().unwrap().drain(..));
        }
        Turn::default()
    }

    fn close(&self, _: ConnectionId) {}
}

type Open = Connection<wire::Plain<DuplexStream>, Queue>;

fn open(queue: &Arc<Queue>, encoding: Encoding, pipe: usize) -> (DuplexStream, Open) {
    let (client, server) = duplex(pipe);
    let id = ConnectionId { index: 0, generation: 0 };
    (client, Connection::new(wire::Plain::new(server), Arc::clone(queue), id, encoding, 2 << 20))
}

/// A message that tells at each place where it is.
fn counted(length: usize) -> Bytes {
    (0..length).map(|i| i.to_le_bytes()[i % 3]).collect()
}

fn message(length: usize) -> Outgoing {
    Outgoing::Message(counted(length))
}

fn frame(carries: Carries, payload: &[u8]) -> Vec<u8> {
    [Header::new(carries, payload.len()).as_ref(), payload].concat()
}

const LARGE: usize = 900_000;
const PING: [u8; 7] = [0x89, 0x81, 0, 0, 0, 0, b'x'];
const PONG: [u8; 3] = [0x8a, 1, b'x'];
const CLOSE: [u8; 8] = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8];

fn shared(length: usize) -> Shared {
    let mut out = Writer::default();
    out.array(3);
    out.uint(10);
    out.map(1);
    out.str("id");
    out.uint(Shared::PLACEHOLDER);
    out.bin(&counted(length));
    Shared::of(out.into_bytes().into()).unwrap().with_id(7)
}

/// Polls once.
async fn poll(connection: &mut Open) -> Poll<()> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *connection).poll(cx))).await
}

/// What is kept of the message under way.
fn kept(connection: &Open) -> usize {
    connection.rest.as_ref().map_or(0, |rest| rest.payload.len())
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_as_its_frames_one_behind_the_other_however_it_is_cut() {
    let share = Share::first().to_write;
    for pipe in [97, 4096, 1 << 22] {
        let mut batch = vec![message(1), Outgoing::Ping, message(LARGE), message(0)];
        batch.extend([share - 1, share, share + 1, 2 * share, 16 * 1024].map(message));
        batch.extend([Outgoing::Ping, Outgoing::Shared(shared(LARGE)), Outgoing::Ping, message(3)]);
        batch.extend((0..300).map(message));
        let expected: Vec<u8> = batch
            .iter()
            .flat_map(|outgoing| match outgoing.message() {
                Some(message) => frame(Carries::Binary, &message),
                None => frame(Carries::Ping, &[]),
            })
            .collect();
        let (mut client, connection) = open(&Queue::of(batch), Encoding::MessagePack, pipe);
        let task = tokio::spawn(connection);
        let mut read = vec![0; expected.len()];
        client.read_exact(&mut read).await.unwrap();
        assert!(read == expected, "pipe of {pipe}");
        drop(client);
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_message_to_a_peer_that_never_reads_a_share_is_copied_and_the_peer_is_heard_meanwhile() {
    let queue = Queue::of([message(LARGE), message(5)]);
    let (mut client, mut connection) = open(&queue, Encoding::MessagePack, 4096);
    for _ in 0..10 {
        assert!(poll(&mut connection).await.is_pending());
    }
    assert_eq!(kept(&connection), LARGE - Share::first().to_write);
    client.write_all(&[0x82, 0x83, 0, 0, 0, 0, 1, 2, 3]).await.unwrap();
    queue.waiting.lock().unwrap().push_back(message(6));
    assert!(poll(&mut connection).await.is_pending());
    assert_eq!(queue.heard(), ["message of 3"]);
    assert_eq!(queue.waiting.lock().unwrap().len(), 1, "nothing more is taken");
    let expected = [LARGE, 5, 6].map(|length| frame(Carries::Binary, &counted(length))).concat();
    let task = tokio::spawn(connection);
    let mut read = vec![0; expected.len()];
    client.read_exact(&mut read).await.unwrap();
    assert!(read == expected);
    drop(client);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_ping_within_a_large_message_is_answered_behind_the_batch_with_the_latest() {
    for pipe in [4096, 1 << 22] {
        let queue = Queue::of([message(LARGE), message(5)]);
        let (mut client, mut connection) = open(&queue, Encoding::MessagePack, pipe);
        assert!(poll(&mut connection).await.is_pending());
        client.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await.unwrap();
        client.write_all(&PING).await.unwrap();
        let task = tokio::spawn(connection);
        let batch = [LARGE, 5].map(|length| frame(Carries::Binary, &counted(length))).concat();
        let expected = [batch.as_slice(), &PONG].concat();
        let mut read = vec![0; expected.len()];
        client.read_exact(&mut read).await.unwrap();
        assert!(read == expected, "pipe of {pipe}");
        client.write_all(&PING).await.unwrap();
        let mut pong = [0; 3];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong, PONG, "and one that comes later at once");
        drop(client);
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_follows_the_whole_of_a_large_message() {
    // Ours, the peer's, and that of what the peer has broken.
    let ours = Outgoing::Close { code: 1001, reason: "" };
    let broken: [u8; 2] = [0x83, 0x80];
    let cases: [(Option<Outgoing>, &[u8], u16); 3] =
        [(Some(ours), &[], 1001), (None, &CLOSE, 1000), (None, &broken, 1002)];
    for (last, said, code) in cases {
        for pipe in [4096, 1 << 22] {
            let queue = Queue::of([message(LARGE), message(5)].into_iter().chain(last.clone()));
            let (mut client, mut connection) = open(&queue, Encoding::MessagePack, pipe);
            assert!(poll(&mut connection).await.is_pending());
            client.write_all(said).await.unwrap();
            // A pong would come behind the close.
            client.write_all(&PING).await.unwrap();
            let task = tokio::spawn(connection);
            let mut read = Vec::new();
            if last.is_some() {
                read.resize(LARGE + 10 + 5 + 2 + 4, 0);
                client.read_exact(&mut read).await.unwrap();
                client.write_all(&CLOSE).await.unwrap();
            }
            client.read_to_end(&mut read).await.unwrap();
            let messages = [LARGE, 5].map(|length| frame(Carries::Binary, &counted(length))).concat();
            let (before, close) = read.split_at(messages.len());
            assert!(before == messages, "{code} over {pipe}");
            assert_eq!(
                (close[0], usize::from(close[1])),
                (0x88, close.len() - 2),
                "nothing follows the close"
            );
            assert_eq!(close[2..4], code.to_be_bytes());
            drop(client);
            task.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn on_the_json_edge_a_rest_is_turned_into_text_and_what_cannot_be_is_told() {
    let chunk = |body: &dyn Fn(&mut Writer)| {
        let mut inner = Writer::default();
        body(&mut inner);
        let mut out = Writer::default();
        out.array(3);
        out.uint(12);
        out.map(1);
        out.str("id");
        out.uint(1);
        out.bin(&inner.into_bytes());
        Bytes::from(out.into_bytes())
    };
    let large = chunk(&|out| out.str(&"x".repeat(LARGE)));
    let small = chunk(&|out| out.uint(1));
    let none = chunk(&|out| out.raw(&[0xc1]));
    let queue =
        Queue::of([&large, &none, &large, &none, &small].map(|message| Outgoing::Message(message.clone())));
    let (mut client, connection) = open(&queue, Encoding::Json, 4096);
    let task = tokio::spawn(connection);
    let texts = [&large, &large, &small].map(|message| {
        let (carries, text) = Encoding::Json.outbound(message.clone(), 2 << 20).unwrap();
        frame(carries, &text)
    });
    let expected = texts.concat();
    let mut read = vec![0; expected.len()];
    client.read_exact(&mut read).await.unwrap();
    assert!(read == expected);
    // What is told is told in a turn, and the peer's last words come in a later one.
    client.write_all(&CLOSE).await.unwrap();
    client.read_to_end(&mut Vec::new()).await.unwrap();
    task.await.unwrap();
    let undeliverable = format!("undeliverable of {}", none.len());
    assert_eq!(queue.heard(), [undeliverable.as_str(), &undeliverable, "Alive", "Broken"]);
}

/// Runs `test` beside who calls those in line, on a thread of its own: a line is a thread's.
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
fn a_large_message_leaves_a_share_at_a_time_and_smaller_ones_after_the_first() {
    attended(|| async {
        let queue = Queue::of([message(LARGE)]);
        let (client, mut connection) = open(&queue, Encoding::MessagePack, 1 << 22);
        let mut left = LARGE;
        let mut shares = Vec::new();
        poll_fn(|cx| {
            assert!(Pin::new(&mut connection).poll(cx).is_pending());
            // Woken by something else meanwhile: it is not its turn.
            let now = kept(&connection);
            assert!(Pin::new(&mut connection).poll(cx).is_pending());
            assert_eq!(kept(&connection), now);
            shares.push(left - now);
            left = now;
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let (first, next) = (Share::first().to_write, Share::next().to_write);
        let mut expected = vec![first];
        expected.extend(std::iter::repeat_n(next, (LARGE - first) / next));
        expected.push((LARGE - first) % next);
        assert_eq!(shares, expected);
        drop(client);
    });
}

#[test]
fn a_flood_of_frames_is_heard_a_share_at_a_time_and_smaller_ones_after_the_first() {
    attended(|| async {
        let queue = Queue::of([]);
        let (mut client, mut connection) = open(&queue, Encoding::MessagePack, 1 << 22);
        // A message of a byte each.
        client.write_all(&[0x82, 0x81, 0, 0, 0, 0, 1].repeat(600)).await.unwrap();
        let mut heard = 0;
        let mut shares = Vec::new();
        poll_fn(|cx| {
            assert!(Pin::new(&mut connection).poll(cx).is_pending());
            let now = queue.heard().len();
            shares.push(now - heard);
            heard = now;
            if heard == 600 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(shares, [256, 64, 64, 64, 64, 64, 24]);
        drop(client);
    });
}
