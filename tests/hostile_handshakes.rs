//! Attacks before there is a session: TCP, TLS, the HTTP upgrade, and connections in numbers.
#![cfg(test)]

#[macro_use]
mod raw;
mod hostile;

use std::sync::atomic::{AtomicU64, Ordering};

use hostile::{Line, Siege, attacker, client_hello, drip, listen, pour, random};
use raw::{Dial, Format};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Sides of an attack at once.
const SIDES: usize = 40;

async fn tcp(siege: &Siege) -> TcpStream {
    TcpStream::connect(siege.hub.agents).await.expect("the listener accepts")
}

/// TLS with a certificate; `None` when the hub would not have it.
async fn tls(siege: &Siege) -> Option<raw::dial::Stream> {
    Dial::new(&siege.hub).identity(siege.identities[0].copy()).tls().await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hello_that_comes_byte_by_byte_is_cut_off() {
    let siege = Siege::begin(&[], 0).await;
    let hello = client_hello(&siege.hub);
    // A whole one would be cut off for what does not follow it.
    let unended = &hello[..hello.len() - 1];
    siege.attack(SIDES, |_| async { drip(tcp(&siege).await, unended).await }).await;
    siege.end("ClientHello byte by byte", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_after_the_client_hello_is_cut_off() {
    let siege = Siege::begin(&[], 0).await;
    let hello = client_hello(&siege.hub);
    siege
        .attack(SIDES, |_| async {
            let mut stream = tcp(&siege).await;
            stream.write_all(&hello).await.expect("the kernel takes it");
            listen(stream).await;
        })
        .await;
    siege.end("nothing after ClientHello", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http_head_that_comes_byte_by_byte_or_never_ends_is_cut_off() {
    let siege = Siege::begin(&[], 1).await;
    let head = format!("GET /v1/connect HTTP/1.1\r\nHost: hub\r\nX-Slow: {}\r\n", "x".repeat(4000));
    siege
        .attack(SIDES, |side| {
            let (siege, head) = (&siege, &head);
            async move {
                let Some(stream) = tls(siege).await else { return };
                if side.is_multiple_of(2) {
                    drip(stream, head.as_bytes()).await;
                } else {
                    let mut lines = 0_u32;
                    let endless = || {
                        lines += 1;
                        (lines < 100_000).then(|| format!("X-{lines}: {}\r\n", "y".repeat(100)).into_bytes())
                    };
                    pour(stream, endless).await;
                }
            }
        })
        .await;
    siege.end("HTTP head byte by byte, or without end", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_connect_and_say_nothing_are_cut_off_at_every_step() {
    let siege = Siege::begin(&[], 1).await;
    siege
        .attack(SIDES, |side| {
            let siege = &siege;
            async move {
                match side % 3 {
                    0 => drop(listen(tcp(siege).await).await),
                    1 => {
                        let Some(stream) = tls(siege).await else { return };
                        listen(stream).await;
                    }
                    _ => {
                        let line =
                            Line::open(&siege.hub, siege.identities[0].copy(), Format::BOTH[side / 3 % 2])
                                .await;
                        let Some(line) = line else { return };
                        listen(line.stream).await;
                    }
                }
            }
        })
        .await;
    siege.end("silence after TCP, TLS, upgrade", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_only_say_fin_leave_nothing_at_any_step() {
    let siege = Siege::begin(&[("LIMITS__REGISTRATIONS_PER_10S", "100000")], 1).await;
    let hello = client_hello(&siege.hub);
    siege
        .attack(8, |side| {
            let (siege, hello) = (&siege, &hello);
            async move {
                if side % 4 < 2 {
                    let mut stream = tcp(siege).await;
                    if side % 4 == 1 {
                        drop(stream.write_all(&hello[..hello.len() / 2]).await);
                    }
                    drop(stream.shutdown().await);
                    listen(stream).await;
                    return;
                }
                let Some(mut line) =
                    Line::open(&siege.hub, siege.identities[0].copy(), Format::MsgPack).await
                else {
                    return;
                };
                if side % 4 == 3 {
                    drop(line.register(&attacker(0), &["x"], map! {}).await);
                }
                // TCP's FIN, without a word of TLS.
                drop(line.stream.get_mut().get_mut().0.shutdown().await);
                listen(line.stream).await;
            }
        })
        .await;
    siege.end("FIN only", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_connects_with_and_without_certificates_passes() {
    let siege = Siege::begin(&[("LIMITS__REGISTRATIONS_PER_10S", "100000")], 4).await;
    let connects = AtomicU64::new(0);
    siege
        .attack(SIDES, |side| {
            let (siege, connects) = (&siege, &connects);
            async move {
                // At least four hundred, however fast the canary sings.
                for _ in 0..10 {
                    connects.fetch_add(1, Ordering::Relaxed);
                    if side.is_multiple_of(2) {
                        let refused = Dial::new(&siege.hub).open().await;
                        assert!(refused.is_err(), "without a certificate");
                        continue;
                    }
                    let number = side / 2 % 4;
                    let identity = siege.identities[number].copy();
                    let Some(mut line) = Line::open(&siege.hub, identity, Format::MsgPack).await else {
                        continue;
                    };
                    drop(line.register(&attacker(number), &["x", "y", "z"], map! {}).await);
                }
            }
        })
        .await;
    eprintln!("{} connects", connects.load(Ordering::Relaxed));
    siege.end("storm of connects", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_in_place_of_tls_or_http_are_refused() {
    let siege = Siege::begin(&[], 1).await;
    let seed = AtomicU64::new(1);
    siege
        .attack(8, |side| {
            let (siege, seed) = (&siege, &seed);
            async move {
                let seed = seed.fetch_add(1, Ordering::Relaxed);
                let mut noise = random(seed, 1 + usize::try_from(seed % 3000).expect("small"));
                if side.is_multiple_of(4) {
                    // A record of TLS, whose content is noise.
                    noise.splice(0..0, [22, 3, 1, 0x20, 0]);
                }
                let mut noise = Some(noise);
                if side.is_multiple_of(2) {
                    pour(tcp(siege).await, || noise.take()).await;
                } else if let Some(stream) = tls(siege).await {
                    pour(stream, || noise.take()).await;
                }
            }
        })
        .await;
    siege.end("random bytes for TLS and HTTP", 16).await;
}
