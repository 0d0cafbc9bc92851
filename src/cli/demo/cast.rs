//! The three sample agents and their caller, each on a WebSocket of its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_reach_sdk::{Agent, AgentBuilder, Capability, ConnectError, Context, ErrorCode, HandlerError, Tls};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use crate::certs;

/// Quick: answers at once.
pub(super) const TEXT: &str = "demo-text";
/// Slow: streams.
pub(super) const STORY: &str = "demo-story";
/// Flaky: fails now and then.
pub(super) const DICE: &str = "demo-dice";
/// Asks the others.
pub(super) const CALLER: &str = "demo-caller";

/// Pause between two words of a story.
const PAUSE: Duration = Duration::from_millis(60);
/// Most words of a story.
const WORDS_MAX: u64 = 1_000;
/// Words that a story has when nobody says how many.
const WORDS: u64 = 12;
/// One roll in so many falls off the table.
const FAILS_EVERY: u64 = 3;
/// What stories are made of.
const STORY_WORDS: [&str; 14] = [
    "Once",
    "an",
    "agent",
    "asked",
    "into",
    "the",
    "dark,",
    "and",
    "another",
    "one",
    "answered;",
    "they",
    "never",
    "met.",
];

/// Everybody who takes part.
pub(super) struct Cast {
    /// Who asks.
    pub(super) caller: Agent,
    /// Words that the last cancelled story had; how the writer hears of a cancellation.
    pub(super) stopped_at: watch::Receiver<Option<u64>>,
    agents: Vec<Agent>,
}

/// What `text.*` takes, and `text.upper` answers.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Text {
    /// The text.
    pub(super) text: String,
}

/// What `text.stats` answers.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct TextStats {
    characters: usize,
    words: usize,
}

/// What `story.write` may be told.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Order {
    /// How long the story is to be.
    pub(super) words: Option<u64>,
}

/// How a story ends.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Written {
    /// Words that were streamed.
    pub(super) words: u64,
}

/// A roll of the dice.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Rolled {
    /// 1 to 6.
    pub(super) rolled: u64,
}

/// What `agent.hello` answers.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Hello {
    /// What the agent says of itself.
    pub(super) says: String,
}

impl Cast {
    /// Makes certificates and connects all four.
    ///
    /// # Errors
    /// A message for people.
    pub(super) async fn connect(hub: &str, dir: &Path) -> Result<Self, String> {
        certs::ensure_dev(dir, &[TEXT, STORY, DICE, CALLER]).map_err(|e| e.to_string())?;
        let begin = |name: &str| -> Result<AgentBuilder, ConnectError> {
            let (cert, key) = certs::paths(dir, name);
            let tls = Tls::from_pem_files(dir.join("ca.pem"), cert, key)?;
            Ok(Agent::builder(hub, name).tls(tls).service("agent-reach demo", env!("CARGO_PKG_VERSION")))
        };
        let (stop, stopped_at) = watch::channel(None);
        let connected = async {
            let (quick, slow, flaky) = (text(begin(TEXT)?), story(begin(STORY)?, stop), dice(begin(DICE)?));
            let (quick, slow, flaky, caller) =
                tokio::try_join!(quick.connect(), slow.connect(), flaky.connect(), begin(CALLER)?.connect())?;
            Ok::<_, ConnectError>((vec![quick, slow, flaky], caller))
        };
        let (agents, caller) = connected.await.map_err(|error| format!("a sample agent: {error}"))?;
        Ok(Self { caller, stopped_at, agents })
    }

    /// Everybody leaves.
    pub(super) async fn leave(self) {
        let leaving =
            self.agents.iter().chain([&self.caller]).map(|agent| agent.close_within(Duration::ZERO));
        futures_util::future::join_all(leaving).await;
    }
}

fn text(agent: AgentBuilder) -> AgentBuilder {
    let takes = json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}});
    let upper = Capability::new("text.upper")
        .version("1.0.0")
        .description("Says it louder")
        .idempotent(true)
        .input_schema(&takes);
    let stats = Capability::new("text.stats")
        .version("1.0.0")
        .description("Counts characters and words")
        .idempotent(true)
        .input_schema(&takes);
    hello(agent.label("speed", "quick"), "I shout, and I count")
        .capability(
            upper,
            |_: Context, input: Text| async move { Ok(Text { text: input.text.to_uppercase() }) },
        )
        .capability(stats, |_: Context, Text { text }: Text| async move {
            Ok(TextStats { characters: text.chars().count(), words: text.split_whitespace().count() })
        })
}

fn story(agent: AgentBuilder, stop: watch::Sender<Option<u64>>) -> AgentBuilder {
    let write = Capability::new("story.write")
        .version("1.0.0")
        .description("Streams a story word by word; takes {\"words\": 12} or nothing")
        .input_schema(json!({"type": ["object", "null"], "properties": {"words": {"type": "integer"}}}));
    let stop = Arc::new(stop);
    hello(agent.label("speed", "slow"), "I write, word by word").capability(
        write,
        move |context: Context, order: Option<Order>| {
            let stop = Arc::clone(&stop);
            async move {
                let words = order.and_then(|order| order.words).unwrap_or(WORDS).min(WORDS_MAX);
                for (word, number) in STORY_WORDS.iter().cycle().zip(0..words) {
                    let cancelled = tokio::select! {
                        () = tokio::time::sleep(PAUSE) => context.emit(word).await.is_err(),
                        () = context.cancelled() => true,
                    };
                    if cancelled {
                        stop.send_replace(Some(number));
                        return Err(HandlerError::wire(ErrorCode::Cancelled, "nobody reads on"));
                    }
                }
                Ok(Written { words })
            }
        },
    )
}

fn dice(agent: AgentBuilder) -> AgentBuilder {
    let roll = Capability::new("dice.roll")
        .version("1.0.0")
        .description("Rolls a die, which falls off the table every third time");
    let rolls = Arc::new(AtomicU64::new(0));
    hello(agent.label("speed", "quick"), "I roll, and sometimes I drop the die").capability(
        roll,
        move |_: Context, _: Option<serde::de::IgnoredAny>| {
            let roll = rolls.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                if roll.is_multiple_of(FAILS_EVERY) {
                    let error = HandlerError::new("off_the_table", "the die fell off the table: roll again");
                    return Err(error.retryable());
                }
                // No chance is needed to show a roll, only a number that changes.
                Ok(Rolled { rolled: roll.wrapping_mul(2_654_435_761) % 6 + 1 })
            }
        },
    )
}

/// What all three offer, for the fan-out.
fn hello(agent: AgentBuilder, says: &'static str) -> AgentBuilder {
    let hello = Capability::new("agent.hello")
        .version("1.0.0")
        .description("Says what the agent is")
        .idempotent(true);
    agent.capability(hello, move |_: Context, _: Option<serde::de::IgnoredAny>| async move {
        Ok(Hello { says: says.to_owned() })
    })
}
