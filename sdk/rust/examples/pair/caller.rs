//! The asking half. What does not hold ends it with an error.

use std::fmt::Debug;
use std::time::Duration;

use agent_reach_sdk::{
    Accepted, Agent, AgentBuilder, CallBuilder, CallError, ErrorCode, FromPayload, IntoPayload, Payload,
    TaskState,
};
use rmpv::Value;
use serde::{Deserialize, Serialize};

use super::Outcome;

#[derive(Serialize)]
struct Key<'a> {
    key: &'a str,
}

#[derive(Serialize)]
struct Slow<'a> {
    key: &'a str,
    ms: u64,
}

#[derive(Serialize)]
struct Fail {
    code: &'static str,
    message: &'static str,
    retryable: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Told {
    code: String,
    message: String,
}

/// One caller and whom it asks.
struct Pair<'a> {
    agent: Agent,
    provider: &'a str,
}

/// Asks for one thing after the other. Says `restart` when the hub is to be killed and started again, and goes on by
/// itself when it is back.
pub(crate) async fn ask(builder: AgentBuilder, provider: &str) -> Outcome {
    let pair = Pair { agent: builder.connect().await?, provider };
    pair.values().await?;
    println!("PAIR-1 ok");
    pair.streams().await?;
    println!("PAIR-2 ok");
    pair.failures().await?;
    println!("PAIR-3 ok");
    pair.cancels().await?;
    println!("PAIR-4 ok");
    pair.tasks().await?;
    println!("PAIR-5 ok");
    pair.restarts().await?;
    println!("PAIR-6 ok");
    pair.repeats().await?;
    println!("PAIR-7 ok");
    pair.others().await?;
    println!("PAIR-8 ok");
    pair.large().await?;
    println!("PAIR-9 ok");
    pair.agent.close().await;
    Ok(())
}

fn same<T: PartialEq + Debug>(what: &str, seen: T, expected: T) -> Outcome {
    if seen == expected { Ok(()) } else { Err(format!("{what}: {seen:?} is not {expected:?}").into()) }
}

fn values() -> Vec<Value> {
    let text = |text: &str| Value::from(text);
    let bytes = |bytes: &[u8]| Value::from(bytes);
    let whole: [i64; 9] =
        [0, -1, 127, 128, -(1 << 31), (1 << 53) + 1, 86_699_530_287_996_692, i64::MAX, i64::MIN];
    // 999 ns after 1 s, in the 64-bit form.
    let timestamp = ((999_u64 << 34) | 1).to_be_bytes();
    let mut values: Vec<Value> = [Value::Nil, true.into(), false.into(), u64::MAX.into()].into();
    values.extend(whole.map(Value::from));
    values.extend([0.5, -0.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Value::from));
    values.extend(["", "\0é😀\u{2028}", &"x".repeat(70_000)].map(text));
    values.extend([&b""[..], b"\x00\xff\x80", &[b'x'; 70_000]].map(bytes));
    let nested = |key: &str, value: Value| (text(key), value);
    values.extend([
        Value::Array(vec![]),
        Value::Array(vec![0.into(), 255.into(), bytes(b"\x80"), text("\u{80}")]),
        Value::Map(vec![]),
        Value::Map(vec![
            nested("", Value::Array(vec![Value::Map(vec![])])),
            nested("é", Value::Map(vec![nested("n", bytes(b"\0"))])),
        ]),
        Value::Map(vec![(1.into(), text("by a number")), nested("1", text("by a text"))]),
        Value::Ext(-1, timestamp.into()),
        Value::Ext(5, vec![1]),
    ]);
    values
}

impl Pair<'_> {
    fn call<T: FromPayload>(&self, capability: &str, body: impl IntoPayload) -> CallBuilder<T> {
        let (wait, budget) = (Duration::from_secs(20), Duration::from_secs(30));
        self.agent.call(capability, body).agents([self.provider]).wait_for_agent(wait).budget(budget)
    }

    /// Waits until the handler of this key was cancelled.
    async fn cancelled(&self, key: &str) -> Outcome {
        while !self.call::<bool>("pair.cancelled", Key { key }).await? {}
        Ok(())
    }

    async fn values(&self) -> Outcome {
        for value in values() {
            let sent = value.clone().into_payload()?;
            let back: Value = self.call("pair.echo", value).await?;
            // The bytes, which tell -0.0 from 0.0 and one NaN from a number.
            same("what came back", back.into_payload()?, sent)?;
        }
        let raw = Payload::new(&b"\xc1\x00"[..]).content_type("image/png");
        let back: Payload = self.call("pair.echo", raw.clone()).await?;
        same("a raw body", back, raw)
    }

    async fn streams(&self) -> Outcome {
        let mut stream = self.call::<u64>("pair.count", 500).window(7).stream::<u64>().await?;
        let mut pieces = Vec::new();
        while let Some(chunk) = stream.next().await {
            pieces.push(chunk?.body);
        }
        same("the pieces", pieces, (0..500).collect())?;
        same("the end", stream.end().await?.body, 500)?;
        let key = &format!("endless-{}", self.agent.agent_id());
        let mut endless = self.call::<()>("pair.endless", Key { key }).window(4).stream::<u64>().await?;
        for due in 0..50 {
            let piece = endless.next().await.ok_or("an endless stream has no end")??;
            same("a piece", piece.body, due)?;
        }
        drop(endless);
        self.cancelled(key).await
    }

    async fn failures(&self) -> Outcome {
        for (code, retryable) in [("no-tea", false), ("later", true)] {
            let body = Fail { code, message: "é", retryable };
            let error = failure(self.call("pair.fail", body).retries(0).await)?;
            let told = Told { code: code.to_owned(), message: "é".to_owned() };
            same("whether a provider had it", error.accepted, Accepted::Yes)?;
            let (kind, again, details) = match &error.cause {
                Some(cause) => (&cause.code, cause.retryable, &cause.details),
                None => (&error.code, error.retryable, &error.details),
            };
            same("the code", kind.as_str(), "handler_error")?;
            same("retryable", again, retryable)?;
            same("details", Payload::new(details.clone().unwrap_or_default()).decode()?, told)?;
        }
        let nobody = self.agent.call::<()>("pair.none", ()).agents([self.provider]);
        let nobody = failure(nobody.await)?;
        same("of nobody", (nobody.code.as_str(), nobody.accepted), ("no_capability", Accepted::No))?;
        let absent = self.agent.call::<()>("pair.echo", ()).agents(["nobody-is-called-so"]);
        let absent = absent.wait_for_agent(Duration::from_secs(20)).budget(Duration::from_millis(300));
        let absent = failure(absent.await)?;
        let expected = (ErrorCode::BudgetExhausted.as_str(), Accepted::Unknown);
        same("of one that does not come", (absent.code.as_str(), absent.accepted), expected)
    }

    async fn cancels(&self) -> Outcome {
        let key = self.agent.agent_id();
        let mut pending = self.call::<()>("pair.wait", Key { key }).start().await?;
        pending.accepted().await?;
        drop(pending);
        self.cancelled(key).await
    }

    async fn tasks(&self) -> Outcome {
        let key = &format!("task-{}", self.agent.agent_id());
        let task = self.agent.call::<u64>("pair.slow", Slow { key, ms: 10 }).agents([self.provider]);
        let mut task = task.budget(Duration::from_secs(30)).submit().await?;
        same("the task's result", task.result().await?, 1)?;
        same("the task's state", task.info().await?.state, TaskState::Succeeded)
    }

    async fn restarts(&self) -> Outcome {
        let key = &format!("call-{}", self.agent.agent_id());
        let mut pending = self.call::<u64>("pair.slow", Slow { key, ms: 1500 }).start().await?;
        pending.accepted().await?;
        println!("restart");
        same("how often it began", pending.result().await?, 1)?;
        same("what came back", self.call::<String>("pair.echo", "after").await?, "after".to_owned())
    }

    async fn repeats(&self) -> Outcome {
        let key = &format!("once-{}", self.agent.agent_id());
        let ask = || self.call::<u64>("pair.slow", Slow { key, ms: 200 }).request_id(key);
        let mut first = ask().start().await?;
        first.accepted().await?;
        let second = ask().start().await?;
        same("how often it began", (first.result().await?, second.result().await?), (1, 1))?;
        let third = ask().reply().await?;
        same("its stored end", (third.body, third.duplicate), (1, true))
    }

    async fn others(&self) -> Outcome {
        let key = &format!("notified-{}", self.agent.agent_id());
        self.call::<()>("pair.slow", Slow { key, ms: 0 }).notify().await?;
        same("runs after a word", self.call::<u64>("pair.slow", Slow { key, ms: 0 }).await?, 2)?;
        let said = self.call::<String>("pair.echo", "all").all().await?;
        let heard: Vec<(String, Option<String>)> =
            said.parts.into_iter().map(|part| (part.target, part.result.ok().map(|r| r.body))).collect();
        same("the parts", heard, vec![(self.provider.to_owned(), Some("all".to_owned()))])?;
        same("the targets", (said.summary.targets, said.summary.completed), (1, 1))?;
        let body = Fail { code: "no-tea", message: "", retryable: false };
        let failed = self.call::<()>("pair.fail", body).all().await?;
        let heard: Vec<Option<String>> = failed
            .parts
            .iter()
            .map(|part| Some(part.result.as_ref().err()?.code.as_str().to_owned()))
            .collect();
        same("a failed part", heard, vec![Some("handler_error".to_owned())])?;
        same("who failed", (failed.summary.completed, failed.summary.failed), (0, 1))
    }

    async fn large(&self) -> Outcome {
        const SIZE: usize = 900_000;
        let mut pending = Vec::new();
        for _ in 0..30 {
            pending.push(self.call::<Value>("pair.large", SIZE).start().await?);
        }
        for call in pending {
            same("a large result", call.result().await?.as_slice().map(<[u8]>::len), Some(SIZE))?;
        }
        Ok(())
    }
}

fn failure(ended: Result<(), CallError>) -> Outcome<CallError> {
    ended.err().ok_or_else(|| "it did not fail".into())
}
