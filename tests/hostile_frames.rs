//! Attacks by WebSocket frames and by what is in them, from agents that are registered.
#![cfg(test)]

#[macro_use]
mod raw;
mod hostile;

use std::sync::atomic::{AtomicU64, Ordering};

use hostile::{Line, Siege, attacker, listen, pour, random};
use raw::frame::{BINARY, CONTINUATION, PING, TEXT, header};
use raw::{Format, frame};
use tokio::io::AsyncWriteExt;

const SIDES: usize = 8;

/// Connections without a limit of HELLOs: it would stop these attacks before they begin.
const NO_LIMIT: [(&str, &str); 1] = [("LIMITS__REGISTRATIONS_PER_10S", "100000")];

/// A hub with one attacker for each side.
async fn siege() -> Siege {
    Siege::begin(&NO_LIMIT, SIDES).await
}

/// A registered agent of the MessagePack subprotocol.
async fn registered(siege: &Siege, side: usize) -> Option<Line> {
    let mut line = Line::open(&siege.hub, siege.identities[side].copy(), Format::MsgPack).await?;
    line.register(&attacker(side), &["x"], map! {}).await.ok()?;
    Some(line)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_announce_gigabytes_are_refused_before_their_bytes_come() {
    let siege = siege().await;
    let lengths = [0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];
    siege
        .attack(SIDES, |side| {
            let siege = &siege;
            async move {
                let Some(mut line) = registered(siege, side).await else { return };
                let announced = [header(0x80 | BINARY, lengths[side % 4]), vec![1, 2, 3, 4]].concat();
                let heard = if side < 4 {
                    // The socket stays open: the header alone has to be enough.
                    line.stream.write_all(&announced).await.expect("the kernel takes it");
                    line.stream.flush().await.expect("the kernel takes it");
                    listen(line.stream).await
                } else {
                    // Some of what was announced, as long as the hub takes it.
                    let mut parts = 0;
                    let payload = || {
                        parts += 1;
                        match parts {
                            1 => Some(announced.clone()),
                            2..100 => Some(vec![7; 64 * 1024]),
                            _ => None,
                        }
                    };
                    pour(line.stream, payload).await
                };
                // A length of more than 63 bits is no frame at all, and may be told otherwise.
                let told = String::from_utf8_lossy(&heard).contains("message_too_large");
                assert!(told || side % 4 == 3 || side >= 4, "{:x}: {heard:?}", lengths[side % 4]);
            }
        })
        .await;
    siege.end("frame headers of gigabytes", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fragments_without_end_are_cut_off_at_the_limit_of_a_message() {
    let siege = siege().await;
    siege
        .attack(SIDES, |side| {
            let siege = &siege;
            async move {
                let Some(line) = registered(siege, side).await else { return };
                // Large ones, small ones, and one byte each: sixteen times what a message may have.
                let payload = vec![7; [16_384, 100, 1][side % 3]];
                let mut next = Some(frame(BINARY, false, &payload));
                let more = frame(CONTINUATION, false, &payload).repeat(1 + 8192 / payload.len());
                let mut left = (16 << 20) / (payload.len() * (1 + 8192 / payload.len()));
                pour(line.stream, || {
                    left = left.checked_sub(1)?;
                    next.replace(more.clone())
                })
                .await;
            }
        })
        .await;
    siege.end("fragments without end", 24).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_fragments_and_floods_of_pings_hold_nobody_up() {
    let siege = siege().await;
    siege
        .attack(SIDES, |side| {
            let siege = &siege;
            async move {
                let Some(line) = registered(siege, side).await else { return };
                let pings = frame(PING, true, &[7; 125]).repeat(60);
                let empty = frame(CONTINUATION, false, &[]).repeat(1000);
                let mut sent = 0;
                pour(line.stream, || {
                    sent += 1;
                    match (side % 2, sent) {
                        (0, _) => (sent <= 300).then(|| pings.clone()),
                        (_, 1) => Some(frame(BINARY, false, &[])),
                        _ => (sent <= 300).then(|| empty.clone()),
                    }
                })
                .await;
            }
        })
        .await;
    siege.end("empty fragments and pings", 16).await;
}

/// `depth` arrays, each within the one before.
fn nested(depth: usize) -> Vec<u8> {
    let mut bytes = vec![0x91; depth];
    bytes.push(0x90);
    bytes
}

/// Envelopes that promise more than they have, or more than anyone should follow.
fn traps() -> Vec<(u8, Vec<u8>)> {
    let many = [0xff, 0xff, 0xff, 0xff];
    let update = |rest: &[u8]| [&[0x92, 3], rest].concat();
    let key = |rest: &[u8]| update(&[b"\x81\xa1a", rest].concat());
    let call = |rest: &[u8]| [b"\x93\x0a\x82\xa2id\x01\xaacapability\xa1x".as_slice(), rest].concat();
    let json =
        |depth: usize| format!("[3,{{\"a\":{}{}}}]", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    vec![
        (BINARY, nested(1_000_000)),
        (BINARY, key(&nested(1_000_000))),
        (BINARY, call(&nested(1_000_000))),
        (BINARY, [&[0xdd], many.as_slice()].concat()),
        (BINARY, update(&[&[0xdf], many.as_slice()].concat())),
        (BINARY, key(&[&[0xdf], many.as_slice()].concat())),
        (BINARY, key(&[&[0xdb], many.as_slice(), &[b'x'; 100_000]].concat())),
        (BINARY, call(&[&[0xc6], many.as_slice(), &[0; 1_000_000]].concat())),
        // A million values that are there: a header of nothing but keys.
        (BINARY, update(&[&[0xde, 0xff, 0xff], [0xa1, b'k', 0xc0].repeat(0xffff).as_slice()].concat())),
        (BINARY, key(&[&[0xdd, 0, 0x0f, 0, 0], [0xc0].repeat(0x000f_0000).as_slice()].concat())),
        (TEXT, json(500_000)),
        (TEXT, format!("[10,{{}},{}1{}]", "{\"a\":".repeat(170_000), "}".repeat(170_000)).into_bytes()),
        (TEXT, format!("[3,{{\"a\":\"{}\"}}]", "\\u0000".repeat(170_000)).into_bytes()),
        (TEXT, format!("[3,{{\"a\":[{}1]}}]", "1e300,".repeat(170_000)).into_bytes()),
        (TEXT, format!("[3,{{{}\"z\":1}}]", "\"k\":1,".repeat(170_000)).into_bytes()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_nesting_and_lengths_without_bytes_cost_their_sender_only() {
    let siege = siege().await;
    let traps = traps();
    siege
        .attack(SIDES, |side| {
            let (siege, traps) = (&siege, &traps);
            async move {
                for (opcode, trap) in traps.iter().skip(side).step_by(SIDES) {
                    let format = if *opcode == TEXT { Format::Json } else { Format::MsgPack };
                    let identity = siege.identities[side].copy();
                    let Some(mut line) = Line::open(&siege.hub, identity, format).await else { continue };
                    if format == Format::MsgPack {
                        drop(line.register(&attacker(side), &["x"], map! {}).await);
                    }
                    let mut trap = Some(frame(*opcode, true, trap));
                    pour(line.stream, || trap.take()).await;
                }
            }
        })
        .await;
    siege.end("nesting and lengths", 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_as_frames_and_as_envelopes_cost_their_sender_only() {
    let siege = siege().await;
    let seed = AtomicU64::new(1);
    siege
        .attack(SIDES, |side| {
            let (siege, seed) = (&siege, &seed);
            async move {
                let seed = seed.fetch_add(1, Ordering::Relaxed);
                let noise = random(seed, 1 + usize::try_from(seed % 3000).expect("small"));
                let Some(line) = registered(siege, side).await else { return };
                let mut said = Some(match side % 4 {
                    0 => noise,
                    1 => frame(BINARY, true, &noise),
                    // An envelope up to its header.
                    2 => frame(
                        BINARY,
                        true,
                        &[&[0x93, u8::try_from(side).expect("small"), 0x85], noise.as_slice()].concat(),
                    ),
                    _ => [frame(BINARY, false, &noise), noise].concat(),
                });
                pour(line.stream, || said.take()).await;
            }
        })
        .await;
    siege.end("random bytes as frames and envelopes", 16).await;
}
