//! Tasks through the Rust SDK, against the real hub: over its end, over that of the caller, and over that of the
//! provider.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use std::path::Path;

use agent_reach_sdk::{
    Agent, AgentBuilder, Capability, Code, Context, ErrorCode, TaskEvent, TaskFilter, TaskHandle, TaskState,
};
use sdk_world::proxy::Proxy;
use sdk_world::{Count, Door, Place, agent, until, within};
use tokio::runtime::Runtime;

const MANY_HELLOS: (&str, &str) = ("LIMITS__REGISTRATIONS_PER_10S", "1000");

/// With `work`, which waits at the door and then doubles.
fn worker(builder: AgentBuilder, door: &Door) -> AgentBuilder {
    offering(builder, "work".into(), door)
}

fn offering(builder: AgentBuilder, capability: Capability, door: &Door) -> AgentBuilder {
    let door = door.clone();
    builder.capability(capability, move |_: Context, n: u64| {
        let door = door.clone();
        async move {
            door.pass().await;
            Ok(2 * n)
        }
    })
}

async fn connected(builder: AgentBuilder) -> Agent {
    builder.connect().await.expect("a session")
}

async fn submitted(caller: &Agent, n: u64) -> TaskHandle<u64> {
    within("the task to be stored", caller.call::<u64>("work", n).submit()).await.expect("stored")
}

async fn result(task: &mut TaskHandle<u64>) -> u64 {
    within("the result", task.result()).await.expect("a result")
}

#[tokio::test]
async fn a_task_is_stored_before_anybody_has_it_and_its_owner_sees_it_through_to_its_end() {
    let place = Place::new(&[]);
    let caller = connected(place.agent("caller")).await;
    let mut task = submitted(&caller, 21).await;
    assert_eq!(task.info().await.expect("known").state, TaskState::Queued);
    let door = Door::new();
    door.let_go(1);
    let _provider = connected(worker(place.agent("provider"), &door)).await;
    let reply = within("the result", task.reply()).await.expect("a result");
    assert_eq!((reply.body, reply.target.as_deref()), (42, Some("provider")));
    assert_eq!(reply.task_id.as_deref(), Some(task.id()));
    assert_eq!(result(&mut task).await, 42, "it can be asked for again");
    let info = task.info().await.expect("known");
    assert_eq!((info.state, info.outcome.as_deref()), (TaskState::Succeeded, Some("completed")));
    let second = submitted(&caller, 1).await;
    let all = caller.tasks(TaskFilter::default()).await.expect("a list");
    let ids: Vec<&str> = all.iter().map(|task| task.task_id.as_str()).collect();
    assert_eq!(ids, [second.id(), task.id()], "the newest first");
    let ended = TaskFilter::default().state(TaskState::Succeeded).capability("work").limit(1);
    assert_eq!(caller.tasks(ended).await.expect("a list").len(), 1);
}

#[tokio::test]
async fn the_hub_is_killed_between_submit_and_result_and_the_task_runs_once_and_comes_home() {
    let mut place = Place::new(&[MANY_HELLOS]);
    let door = Door::new();
    let _provider = connected(worker(place.agent("provider"), &door)).await;
    let caller = connected(place.agent("caller")).await;
    let mut running = submitted(&caller, 1).await;
    let waiting = caller.call::<u64>("later", 2).submit();
    let mut waiting = within("the second", waiting).await.expect("stored");
    door.arrived(1).await;
    place.kill();
    until("the loss", || async { !caller.is_connected() }).await;
    // Submitted while there is no hub: stored by the next one.
    let meanwhile = caller.call::<u64>("work", 3);
    let meanwhile = tokio::spawn(async move { meanwhile.submit().await });
    place.restart();
    door.let_go(3);
    let later = Door::new();
    later.let_go(1);
    let _late = connected(offering(place.agent("late"), "later".into(), &later)).await;
    assert_eq!(result(&mut running).await, 2);
    assert_eq!(result(&mut waiting).await, 4);
    let mut meanwhile = within("the third", meanwhile).await.expect("no panic").expect("stored");
    assert_eq!(result(&mut meanwhile).await, 6);
    assert_eq!((door.count(), later.count()), (2, 1), "one run for each");
}

#[tokio::test]
async fn another_life_of_the_caller_has_its_results_by_id_and_in_its_inbox_each_once() {
    let place = Place::new(&[MANY_HELLOS]);
    let door = Door::new();
    let _provider = connected(worker(place.agent("provider"), &door)).await;
    let first = connected(place.agent("caller")).await;
    let (open, done) =
        (submitted(&first, 1).await.id().to_owned(), submitted(&first, 2).await.id().to_owned());
    door.arrived(2).await;
    first.close().await;
    door.let_go(2);
    let second = connected(place.agent("caller")).await;
    let mut task = second.task::<u64>(open.as_str());
    assert_eq!(result(&mut task).await, 2);
    let taken = within("the other", second.inbox().next()).await.expect("open");
    assert_eq!((taken.task_id.as_str(), taken.result.is_ok()), (done.as_str(), true));
    // Stored behind what was just confirmed.
    let new = submitted(&second, 3).await.id().to_owned();
    second.close().await;
    assert_eq!(second.inbox().next().await, None, "closed and empty");

    let third = connected(place.agent("caller")).await;
    door.let_go(1);
    let next = within("the newest", third.inbox().next()).await.expect("open");
    assert_eq!(next.task_id, new, "what was taken is not sent again");
    assert_eq!(next.result.expect("a result").body.decode::<u64>(), Ok(6));
    // What was taken can still be looked up.
    assert_eq!(result(&mut third.task(done)).await, 4);
}

#[tokio::test]
async fn a_watch_shows_each_step_and_what_the_handler_says_and_ends_with_the_task() {
    let place = Place::new(&[]);
    let caller = connected(place.agent("caller")).await;
    let mut task = submitted(&caller, 2).await;
    let mut watch = task.watch().await.expect("a watch");
    let mut steps = Vec::new();
    let mut step = async || match within("a step", watch.next()).await {
        Some(Ok(TaskEvent::State(info))) => Some(info.state.as_str().to_owned()),
        Some(Ok(TaskEvent::Progress(said))) => Some(said.decode().expect("text")),
        None => None,
        other => panic!("{other:?}"),
    };
    steps.extend(step().await);
    let provider = place.agent("provider").capability("work", |context: Context, n: u64| async move {
        assert!(!context.wants_stream(), "the whole result is what it returns");
        for part in 1..=n {
            context.progress(format!("part {part}")).await?;
        }
        context.emit("said as a piece").await?;
        Ok(n)
    });
    let _provider = connected(provider).await;
    while let Some(next) = step().await {
        steps.push(next);
    }
    // What comes within 5 ms stands for ACCEPT, and begins it.
    assert_eq!(steps, ["QUEUED", "PROCESSING", "part 1", "part 2", "said as a piece", "SUCCEEDED"]);
    assert_eq!(result(&mut task).await, 2);
    let mut over = task.watch().await.expect("a watch");
    let Some(Ok(TaskEvent::State(info))) = over.next().await else { panic!("no state") };
    assert_eq!(info.state, TaskState::Succeeded);
    assert!(over.next().await.is_none());
}

#[tokio::test]
async fn a_task_that_waits_in_its_provider_is_received_and_one_that_is_worked_on_is_processing() {
    let place = Place::new(&[]);
    let door = Door::new();
    let one = Capability::new("work").max_concurrency(1);
    let _provider = connected(offering(place.agent("provider"), one, &door)).await;
    let caller = connected(place.agent("caller")).await;
    let (mut first, mut second) = (submitted(&caller, 1).await, submitted(&caller, 2).await);
    let is = async |task: &TaskHandle<u64>, state| task.info().await.expect("known").state == state;
    until("the first to begin", || is(&first, TaskState::Processing)).await;
    until("the second to be received", || is(&second, TaskState::Received)).await;
    door.let_go(1);
    result(&mut first).await;
    until("the second to begin", || is(&second, TaskState::Processing)).await;
    door.let_go(1);
    result(&mut second).await;
}

#[tokio::test]
async fn one_intent_submitted_twice_is_one_task_with_one_run_and_two_handles() {
    let place = Place::new(&[]);
    let door = Door::new();
    let _provider = connected(worker(place.agent("provider"), &door)).await;
    let caller = connected(place.agent("caller")).await;
    let submit = |n: u64| caller.call::<u64>("work", n).request_id("order-1").submit();
    let mut first = submit(1).await.expect("stored");
    let mut second = submit(1).await.expect("stored");
    assert_eq!(first.id(), second.id());
    let conflict = submit(2).await.expect_err("another body");
    assert_eq!(conflict.code, ErrorCode::IdempotencyConflict);
    door.let_go(1);
    assert_eq!((result(&mut first).await, result(&mut second).await), (2, 2));
    let mut third = submit(1).await.expect("its end");
    let reply = within("the end", third.reply()).await.expect("a result");
    assert!(reply.duplicate && reply.body == 2, "{reply:?}");
    assert_eq!(door.count(), 1);
}

#[tokio::test]
async fn a_cancelled_task_ends_its_handler_and_a_second_cancel_says_that_it_had_ended() {
    let place = Place::new(&[]);
    let cancelled = Count::default();
    let count = cancelled.clone();
    let provider = place.agent("provider").capability("work", move |context: Context, _: u64| {
        let count = count.clone();
        async move {
            context.cancelled().await;
            count.up();
            Ok(0)
        }
    });
    let _provider = connected(provider).await;
    let caller = connected(place.agent("caller")).await;
    let mut task = submitted(&caller, 1).await;
    until("it to begin", || async { task.info().await.expect("known").state == TaskState::Processing }).await;
    assert!(within("the cancel", task.cancel()).await.expect("cancelled"));
    let error = within("the end", task.result()).await.expect_err("cancelled");
    assert_eq!(error.code, ErrorCode::Cancelled);
    until("the handler's end", || async { cancelled.get() == 1 }).await;
    assert!(!task.cancel().await.expect("known"));
    let nobody = caller.task::<u64>("00000000-0000-7000-8000-000000000000");
    assert_eq!(nobody.cancel().await.expect_err("unknown").code, ErrorCode::InvalidRequest);
    let mut theirs = connected(place.agent("thief")).await.task::<u64>(task.id());
    let refused = within("the refusal", theirs.result()).await.expect_err("another's");
    assert_eq!(refused.code, ErrorCode::InvalidRequest);
}

#[tokio::test]
async fn a_result_goes_to_the_inbox_that_reply_to_names_as_well() {
    let place = Place::new(&[]);
    let door = Door::new();
    door.let_go(1);
    let _provider = connected(worker(place.agent("provider"), &door)).await;
    let caller = connected(place.agent("caller")).await;
    let archive = connected(place.agent("archive")).await;
    let submit = caller.call::<u64>("work", 4).reply_to("agent:archive").request_id("for both").submit();
    let mut task = submit.await.expect("stored");
    assert_eq!(result(&mut task).await, 8);
    let filed = within("the copy", archive.inbox().next()).await.expect("open");
    assert_eq!((filed.task_id.as_str(), filed.request_id.as_str()), (task.id(), "for both"));
    let refused = caller.call::<u64>("work", 4).reply_to("archive").submit().await.expect_err("no inbox");
    assert_eq!(refused.code, ErrorCode::InvalidRequest);
}

/// A life of a provider's process: what runs in it ends with it, and nobody says goodbye.
struct Life(Option<Runtime>);

impl Life {
    async fn begin(builder: AgentBuilder) -> (Self, Agent) {
        let runtime = Runtime::new().expect("a runtime");
        let agent = runtime.spawn(builder.connect()).await.expect("no panic").expect("a session");
        (Self(Some(runtime)), agent)
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills a provider, and waits until its file is free for the next life.
async fn killed(mut life: Life, agent: &Agent) {
    life.kill();
    assert_eq!(within("its end", agent.closed()).await.to_string(), "the runtime stopped");
}

fn says(path: &Path, word: &str) -> bool {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

#[tokio::test]
async fn a_provider_killed_before_it_could_tell_a_result_tells_it_in_its_next_life_and_works_once() {
    let place = Place::new(&[MANY_HELLOS]);
    let file = place.dir().join("provider.dedupe");
    let link = Proxy::to(place.address()).await;
    let door = Door::new();
    let there = agent(place.dir(), link.address, "provider").dedupe_file(&file);
    let (life, provider) = Life::begin(worker(there, &door)).await;
    let caller = connected(place.agent("caller")).await;
    let mut task = submitted(&caller, 21).await;
    door.arrived(1).await;
    link.freeze();
    door.let_go(1);
    until("the end on disk", || async { says(&file, "Completed") }).await;
    killed(life, &provider).await;
    let (_life, _provider) = Life::begin(worker(place.agent("provider").dedupe_file(&file), &door)).await;
    let reply = within("the result", task.reply()).await.expect("a result");
    assert_eq!((reply.body, door.count()), (42, 1));
    let outcomes: Vec<&str> = reply.attempts.iter().map(|tried| tried.outcome.as_str()).collect();
    assert_eq!(outcomes, ["agent_lost", "completed"]);
}

#[tokio::test]
async fn what_a_provider_was_killed_in_runs_again_only_if_that_does_no_harm_and_else_is_unknown() {
    for idempotent in [false, true] {
        let place = Place::new(&[MANY_HELLOS]);
        let file = place.dir().join("provider.dedupe");
        let door = Door::new();
        let begin = || {
            let work = Capability::new("work").idempotent(idempotent);
            Life::begin(offering(place.agent("provider").dedupe_file(&file), work, &door))
        };
        let (life, provider) = begin().await;
        let caller = connected(place.agent("caller")).await;
        let mut task = submitted(&caller, 21).await;
        door.arrived(1).await;
        killed(life, &provider).await;
        let (_life, _provider) = begin().await;
        if idempotent {
            door.let_go(1);
            assert_eq!((result(&mut task).await, door.count()), (42, 2));
        } else {
            let error = within("the end", task.result()).await.expect_err("unknown");
            assert_eq!((&error.code, error.retryable), (&Code::Known(ErrorCode::HandlerError), false));
            assert!(error.message.contains("whether it is done is unknown"), "{error:?}");
            assert_eq!(door.count(), 1);
        }
    }
}

#[tokio::test]
async fn a_provider_without_a_file_has_lost_its_tasks_with_its_process() {
    let place = Place::new(&[MANY_HELLOS]);
    let door = Door::new();
    let (mut life, _first) = Life::begin(worker(place.agent("provider"), &door)).await;
    let caller = connected(place.agent("caller")).await;
    let mut task = submitted(&caller, 21).await;
    until("it to begin", || async { task.info().await.expect("known").state == TaskState::Processing }).await;
    life.kill();
    let (_life, _provider) = Life::begin(worker(place.agent("provider"), &door)).await;
    let error = within("the end", task.result()).await.expect_err("lost");
    assert_eq!((&error.code, error.retryable), (&Code::Known(ErrorCode::AgentLost), false));
    assert_eq!(door.count(), 1);
}
