//! Attacks by registered agents that keep the form: they freeze, do not read, or register without end.
#![cfg(test)]

#[macro_use]
mod raw;
mod hostile;

use futures_util::future::join_all;
use hostile::{Line, Siege, attacker, bounded, listen, pour};
use raw::frame::{self, BINARY, PING, PONG, frame, header};
use raw::{Envelope, Format, Identity, kind};
use rmpv::Value;
use tokio::io::AsyncWriteExt;

/// One agent for each of these identities, which hardly takes anything without reading. All are there before the
/// attack goes on, or those who attack already would keep others from coming in time.
async fn narrow(siege: &Siege, identities: &[Identity]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, identity) in identities.iter().enumerate() {
        let mut line = Line::narrow(&siege.hub, identity.copy()).await.expect("a connection");
        line.register(&attacker(number), &[], map! {}).await.expect("a session");
        lines.push(line);
    }
    lines
}

/// Answers every call with far more than was asked, whatever else comes, to the end of the connection.
async fn bellows(mut line: Line) {
    while let Ok(frame) = frame::read(&mut line.stream).await {
        if frame.opcode == PING && line.stream.write_all(&frame::frame(PONG, true, &[])).await.is_err() {
            return;
        }
        let call = (frame.opcode == BINARY).then(|| Envelope::from_value(raw::value_of(&frame.payload)));
        let Some(call) = call.filter(|call| call.kind == kind::CALL) else { continue };
        let result = map! {"id" => call.uint("id"), "status" => "completed"};
        if line.send(kind::RESULT, result, Value::Binary(vec![7; 100_000])).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_agents_are_given_up_with_all_that_was_open_at_them() {
    let mut siege = Siege::begin(&[], 10).await;
    let mut frozen = Vec::new();
    for (number, identity) in siege.identities.iter().enumerate() {
        let mut line = Line::narrow(&siege.hub, identity.copy()).await.expect("a connection");
        line.register(&attacker(number), &["ice"], map! {}).await.expect("a session");
        // It has asked for something itself, and stops amid a frame.
        let call = map! {"id" => 1, "capability" => "ice", "select" => "all"};
        line.send(kind::CALL, call, Value::Binary(vec![7; 10_000])).await.expect("a call");
        line.stream.write_all(&header(0x80 | BINARY, 5000)).await.expect("half a frame");
        line.stream.flush().await.expect("half a frame");
        frozen.push(line);
    }
    siege.hold().await;
    siege.end("frozen agents", 24).await;
    drop(frozen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_never_read_their_results_are_given_up() {
    // They are slow consumers before they are silent for too long.
    let patient = [("LIVENESS__SUSPECT_MS", "20000"), ("LIVENESS__GONE_MS", "30000")];
    let settings = [&patient[..], &[("LIMITS__OUTBOUND_BYTES", "1048576")]].concat();
    let mut siege = Siege::begin(&settings, 5).await;
    let [deaf @ .., loud] = siege.identities.as_slice() else { unreachable!("there are attackers") };
    let mut provider = Line::open(&siege.hub, loud.copy(), Format::MsgPack).await.expect("a hub");
    provider
        .register(&attacker(deaf.len()), &["loud"], map! {"max_concurrency" => 1000})
        .await
        .expect("a session");
    let provider = tokio::spawn(bellows(provider));
    let deaf = join_all(narrow(&siege, deaf).await.into_iter().map(|mut line| async move {
        let asks = async {
            for id in 1..100 {
                let call = map! {"id" => id, "capability" => "loud", "accept_timeout_ms" => 60_000};
                if line.send(kind::CALL, call, Value::Nil).await.is_err() {
                    break;
                }
            }
        };
        bounded("the hub to take or to refuse what a deaf agent asks", asks).await;
        line
    }))
    .await;
    siege.hold().await;
    siege.until("agent_reach_slow_consumers_total", 4).await;
    provider.abort();
    drop(provider.await);
    siege.end("agents that never read", 24).await;
    drop(deaf);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_ping_and_never_read_the_pongs_are_given_up() {
    let mut siege = Siege::begin(&[], 4).await;
    let deaf = join_all(narrow(&siege, &siege.identities).await.into_iter().map(|mut line| async move {
        let pings = frame(PING, true, &[7; 125]).repeat(60);
        let flood = async {
            for _ in 0..1000 {
                if line.stream.write_all(&pings).await.is_err() || line.stream.flush().await.is_err() {
                    break;
                }
            }
        };
        bounded("the hub to take or to refuse pings", flood).await;
        line
    }))
    .await;
    siege.hold().await;
    siege.end("pings without reading", 40).await;
    drop(deaf);
}

/// One agent that registers again and again in its own place.
async fn takeovers(what: &str, settings: &[(&str, &str)]) {
    let siege = Siege::begin(settings, 1).await;
    siege
        .attack(8, |_| async {
            for _ in 0..10 {
                let line = Line::open(&siege.hub, siege.identities[0].copy(), Format::MsgPack).await;
                let Some(mut line) = line else { continue };
                drop(line.register(&attacker(0), &["x", "y"], map! {}).await);
                drop(line.stream.shutdown().await);
                listen(line.stream).await;
            }
        })
        .await;
    siege.end(what, 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_agent_that_takes_over_from_itself_without_end_harms_nobody() {
    takeovers("takeovers", &[("LIMITS__REGISTRATIONS_PER_10S", "100000")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeovers_that_the_limit_of_registrations_refuses_harm_nobody() {
    takeovers("takeovers within the limit", &[]).await;
}

/// What the others are compared with: it shows how much the machine itself moves the canary's figures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_nobody_attacks_holds_nothing_more() {
    let mut siege = Siege::begin(&[], 0).await;
    siege.hold().await;
    siege.end("nothing", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_hellos_and_hellos_of_a_mebibyte_harm_nobody() {
    let siege = Siege::begin(&[("LIMITS__REGISTRATIONS_PER_10S", "100000")], 4).await;
    let names: Vec<Value> = (0..1000)
        .map(|n| map! {"name" => format!("name-{n}.{}", "x".repeat(90)), "description" => "d".repeat(800)})
        .collect();
    siege
        .attack(4, |side| {
            let (siege, names) = (&siege, &names);
            async move {
                let identity = siege.identities[side].copy();
                let Some(line) = Line::open(&siege.hub, identity, Format::MsgPack).await else { return };
                let hello = map! {
                    "v" => 1,
                    "agent_id" => attacker(side),
                    "instance" => "i",
                    "capabilities" => if side.is_multiple_of(2) { names.clone() } else { Vec::new() },
                };
                let message = raw::pack(&Value::Array(vec![Value::from(kind::HELLO), hello]));
                let mut flood = 0;
                pour(line.stream, || {
                    flood += 1;
                    (flood <= 20).then(|| frame(BINARY, true, &message))
                })
                .await;
            }
        })
        .await;
    siege.end("floods of HELLOs", 24).await;
}
