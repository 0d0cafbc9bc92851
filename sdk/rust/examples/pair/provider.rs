//! The providing half.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_reach_sdk::{
    AgentBuilder, Capability, CloseReason, Context, ErrorCode, HandlerError, IntoPayload, Payload,
};
use rmpv::Value;
use serde::Deserialize;

use super::Outcome;

#[derive(Default)]
struct Seen {
    cancelled: BTreeSet<String>,
    runs: BTreeMap<String, u64>,
}

/// What handlers tell each other.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<Seen>>);

impl Board {
    fn look(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

#[derive(Deserialize)]
struct Slow {
    key: String,
    ms: u64,
}

#[derive(Deserialize)]
struct Fail {
    code: String,
    message: String,
    retryable: bool,
}

/// Offers everything a caller may ask for, until it is told to stop.
pub(crate) async fn serve(builder: AgentBuilder) -> Outcome {
    let agent = offering(builder).connect().await?;
    println!("ready");
    let reason = agent.serve().await;
    if reason == CloseReason::Closed { Ok(()) } else { Err(reason.into()) }
}

fn offering(builder: AgentBuilder) -> AgentBuilder {
    let board = Board::default();
    let (endless, wait, cancelled, runs) = (board.clone(), board.clone(), board.clone(), board);
    builder
        .capability(Capability::new("pair.echo").idempotent(true), |_: Context, body: Payload| async {
            echo(body)
        })
        .capability("pair.count", |context: Context, n: u64| async move {
            for piece in 0..n {
                context.emit(piece).await?;
            }
            Ok(n)
        })
        .capability("pair.endless", move |context: Context, body: Key| {
            let board = endless.clone();
            async move {
                let mut n: u64 = 0;
                let told = loop {
                    if let Err(told) = context.emit(n).await {
                        break told;
                    }
                    n += 1;
                };
                board.look().cancelled.insert(body.key);
                Err::<(), _>(told.into())
            }
        })
        .capability("pair.fail", |_: Context, body: Fail| async move {
            let error = HandlerError::new(body.code, body.message);
            Err::<(), _>(if body.retryable { error.retryable() } else { error })
        })
        .capability("pair.wait", move |context: Context, body: Key| {
            let board = wait.clone();
            async move {
                context.cancelled().await;
                board.look().cancelled.insert(body.key);
                Err::<(), _>(HandlerError::wire(ErrorCode::Cancelled, "nobody waits"))
            }
        })
        .capability("pair.cancelled", move |_: Context, body: Key| {
            let known = cancelled.look().cancelled.contains(&body.key);
            async move { Ok(known) }
        })
        .capability("pair.large", |_: Context, size: usize| async move { Ok(Value::from(vec![b'x'; size])) })
        .capability("pair.slow", move |context: Context, body: Slow| slow(runs.clone(), context, body))
}

/// What has a content type is no MessagePack and goes back as it is; all else is read and written again.
fn echo(body: Payload) -> Result<Payload, HandlerError> {
    if body.content_type.is_some() {
        return Ok(body);
    }
    Ok(body.decode::<Value>()?.into_payload()?)
}

async fn slow(board: Board, context: Context, Slow { key, ms }: Slow) -> Result<u64, HandlerError> {
    let began = {
        let mut seen = board.look();
        let runs = seen.runs.entry(key.clone()).or_default();
        *runs += 1;
        *runs
    };
    context.progress(began).await?;
    tokio::time::sleep(Duration::from_millis(ms)).await;
    let runs = board.look().runs.get(&key).copied();
    Ok(runs.unwrap_or_default())
}
