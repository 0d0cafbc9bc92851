//! The caller's walk through what a hub does.

use std::time::Duration;

use agent_reach_sdk::{Agent, CallError, ErrorCode, Reply, TaskEvent};
use rmpv::Value;
use serde_json::json;
use tokio::time::Instant;

use super::cast::{Cast, DICE, Hello, Order, Rolled, STORY, TEXT, Text, TextStats, Written};
use super::screen::{Screen, millis};
use crate::cli::trace;

/// How many steps there are.
pub(super) const STEPS: usize = 9;
/// Words that are read before the caller lets go.
const READ: usize = 3;
/// The longest that a cancellation may take to reach the agent.
const HEARD: Duration = Duration::from_secs(5);

/// What a step tells when it did not go as it should.
type Step = Result<(), String>;

/// Shows every step.
pub(super) async fn walk(cast: &Cast, screen: &mut Screen) {
    let caller = &cast.caller;
    let note = "The caller names what it needs; the hub chooses an agent that offers it.";
    screen.step("Call by capability", note, async |screen| call(caller, screen).await).await;
    let note = "The same capability, at one agent that the caller names.";
    screen.step("Directed call", note, async |screen| directed(caller, screen).await).await;
    let note = "Pieces come as they are made. The reader sets the pace: nothing piles up in the hub.";
    screen.step("Stream", note, async |screen| stream(caller, screen).await).await;
    let note = "The caller lets go after a few words, and the agent hears of it.";
    screen.step("Cancel", note, async |screen| cancel(cast, screen).await).await;
    let note = "One call to every agent that offers it; each answers for itself.";
    screen.step("Fan-out", note, async |screen| fan_out(caller, screen).await).await;
    let note = "Done as soon as an agent has it: nobody waits for the result.";
    screen.step("Notify", note, async |screen| notify(caller, screen).await).await;
    let note =
        "The hub stores it before it says so: it survives restarts, and its result waits for the caller.";
    screen.step("Task", note, async |screen| task(caller, screen).await).await;
    let note = "An agent's own error arrives with a type, and says whether another try can succeed.";
    screen.step("Failure", note, async |screen| failure(caller, screen).await).await;
    let note = "What the hub decided about one call, why, and when.";
    screen.step("Trace", note, async |screen| traced(caller, screen).await).await;
}

async fn call(caller: &Agent, screen: &Screen) -> Step {
    screen.asks("text.upper {\"text\":\"hello, agents\"}");
    let reply: Reply<Text> = ended(caller.call("text.upper", text("hello, agents")).reply().await)?;
    screen.gets(&format!("{} from {}", json!(reply.body), target(&reply)));
    expect(reply.body.text == "HELLO, AGENTS", "the answer is another one")
}

async fn directed(caller: &Agent, screen: &Screen) -> Step {
    screen.asks(&format!("text.stats {{\"text\":\"one two three\"}} at {TEXT}"));
    let call = caller.call::<TextStats>("text.stats", text("one two three")).agents([TEXT]);
    let reply = ended(call.reply().await)?;
    screen.gets(&format!("{} from {}", json!(reply.body), target(&reply)));
    expect(target(&reply) == TEXT, "another agent answered")
}

async fn stream(caller: &Agent, screen: &Screen) -> Step {
    let order = Order { words: Some(14) };
    screen.asks("story.write {\"words\":14}, as a stream");
    let begun = Instant::now();
    let mut stream = ended(caller.call::<Written>("story.write", &order).stream::<String>().await)?;
    let (mut pieces, mut first) = (0, Duration::ZERO);
    screen.begins();
    while let Some(chunk) = stream.next().await {
        if pieces == 0 {
            first = begun.elapsed();
        }
        pieces += 1;
        screen.piece(&format!(" {}", ended(chunk)?.body));
    }
    screen.line("");
    let written = ended(stream.end().await)?.body.words;
    screen.gets(&format!(
        "{} pieces: the first after {}, the last after {}",
        pieces,
        millis(first),
        millis(begun.elapsed())
    ));
    expect(written == 14 && pieces == 14, "pieces are missing")
}

async fn cancel(cast: &Cast, screen: &Screen) -> Step {
    let mut stopped = cast.stopped_at.clone();
    stopped.mark_unchanged();
    screen.asks("story.write {\"words\":1000}, as a stream");
    let order = Order { words: Some(1_000) };
    let mut stream = ended(cast.caller.call::<Written>("story.write", &order).stream::<String>().await)?;
    let mut words = Vec::new();
    while words.len() < READ {
        let Some(chunk) = stream.next().await else { return Err("the story ended too early".to_owned()) };
        words.push(ended(chunk)?.body);
    }
    screen.gets(&format!("{} ...", words.join(" ")));
    screen.asks("cancel");
    let begun = Instant::now();
    drop(stream);
    let heard = tokio::time::timeout(HEARD, stopped.changed()).await;
    let took = millis(begun.elapsed());
    let number = *stopped.borrow();
    match (heard, number) {
        (Ok(Ok(())), Some(words)) => {
            screen.gets(&format!("{STORY} stopped writing {took} later, {words} words in"));
            Ok(())
        }
        _ => Err(format!("{STORY} did not hear of it")),
    }
}

async fn fan_out(caller: &Agent, screen: &Screen) -> Step {
    screen.asks("agent.hello at all");
    let mut parts = ended(caller.call::<Hello>("agent.hello", ()).all().stream().await)?;
    while let Some(part) = parts.next().await {
        let says = ended(part.result)?.body.says;
        screen.gets(&format!("{:10}  {says}", part.target));
    }
    let summary = ended(parts.summary().await)?;
    screen.gets(&format!("{} of {} agents completed", summary.completed, summary.targets));
    expect(summary.completed == 3, "three agents offer it")
}

async fn notify(caller: &Agent, screen: &Screen) -> Step {
    screen.asks("text.upper {\"text\":\"nobody waits\"}, as a notice");
    let reply = ended(caller.call::<Text>("text.upper", text("nobody waits")).notify().await)?;
    screen.gets(&format!("{} has it", target(&reply)));
    expect(target(&reply) == TEXT, "nobody has it")
}

async fn task(caller: &Agent, screen: &Screen) -> Step {
    screen.asks("story.write {\"words\":5}, as a task");
    let begun = Instant::now();
    let order = Order { words: Some(5) };
    let mut task = ended(caller.call::<Written>("story.write", &order).submit().await)?;
    screen.gets(&format!("task {} is stored, {} later", task.id(), millis(begun.elapsed())));
    let mut watch = ended(task.watch().await)?;
    let mut said = Vec::new();
    while let Some(event) = watch.next().await {
        match ended(event)? {
            TaskEvent::State(info) if info.state.is_over() => {}
            TaskEvent::State(info) => {
                let who = info.target.map_or(String::new(), |target| format!(" at {target}"));
                screen.gets(&format!("{}{who}, {}", info.state.as_str(), millis(begun.elapsed())));
            }
            TaskEvent::Progress(piece) => said.push(piece.decode::<String>().unwrap_or_default()),
            _ => {}
        }
    }
    screen.gets(&format!("progress meanwhile: {}", said.join(" ")));
    let reply = ended(task.reply().await)?;
    let took = millis(begun.elapsed());
    screen.gets(&format!("{} from {}, {took}", json!(reply.body), target(&reply)));
    expect(reply.body.words == 5, "the result is another one")
}

async fn failure(caller: &Agent, screen: &Screen) -> Step {
    // One in three fails, wherever others have left the count.
    for _ in 0..3 {
        screen.asks("dice.roll");
        match caller.call::<Rolled>("dice.roll", ()).retries(0).reply().await {
            Ok(reply) => screen.gets(&json!(reply.body).to_string()),
            Err(error) => {
                let details: serde_json::Value = error.details_as().unwrap_or_default();
                screen.gets(&format!("{} from {DICE}: {}", error.code, error.message));
                screen.gets(&format!("details {details}, retryable: {}", error.retryable));
                let own = details.get("code").is_some_and(|code| code == "off_the_table");
                let typed = error.code == ErrorCode::HandlerError && error.retryable && own;
                return expect(typed, "the error is another one");
            }
        }
    }
    Err("three rolls, and the die stayed on the table".to_owned())
}

async fn traced(caller: &Agent, screen: &Screen) -> Step {
    screen.asks("text.upper {\"text\":\"trace me\"}");
    let reply = ended(caller.call::<Text>("text.upper", text("trace me")).reply().await)?;
    let call_id = reply.call_id.unwrap_or_default();
    screen.asks(&format!("hub.traces.get {}", json!({"call_id": call_id})));
    let found: Value = ended(trace::get(caller, &call_id).await)?;
    let found = trace::read(found);
    screen.block(&trace::timeline(&found));
    expect(found.steps.len() >= 3, "the trace is empty")
}

fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}

fn target<T>(reply: &Reply<T>) -> &str {
    reply.target.as_deref().unwrap_or("nobody")
}

fn ended<T>(result: Result<T, CallError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn expect(good: bool, otherwise: &str) -> Step {
    if good { Ok(()) } else { Err(otherwise.to_owned()) }
}
