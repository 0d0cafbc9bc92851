//! Tasks as an agent meets them on the wire: sections 5, 6 and 8 of the contract.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::client::RawClient;
use raw::value::Envelope;
use raw::{Format, Hub, kind};
use rmpv::Value;

/// Submits a task under this request_id, and gives its id and the task's name.
async fn submit(caller: &mut RawClient, request_id: &str, body: Value) -> (u64, String) {
    let extra = map! {"mode" => "task", "request_id" => request_id};
    let id = caller.call("work", extra, body).await;
    let accept = caller.accepted(id).await;
    assert!(accept.get("target").is_nil(), "before any provider has it: {accept:?}");
    assert_eq!(accept.text("request_id"), request_id);
    (id, accept.text("task_id").to_owned())
}

async fn receipt(agent: &mut RawClient, task_id: &str) {
    agent.send(kind::RECEIPT, map! {"task_id" => task_id}, Value::Nil).await;
}

/// The end of a task, which must come next.
async fn ended(agent: &mut RawClient, task_id: &str) -> Envelope {
    let result = agent.expect(kind::RESULT, "the RESULT of a task").await;
    assert_eq!(result.text("task_id"), task_id, "{result:?}");
    result
}

async fn task(agent: &mut RawClient, task_id: &str) -> Value {
    let id = agent.call("hub.tasks.get", map! {}, map! {"task_id" => task_id}).await;
    agent.completed(id).await.content()
}

#[tokio::test]
async fn a_task_is_accepted_given_and_ended_and_its_owner_can_look_at_each_step() {
    let hub = Hub::dev();
    for (index, format) in Format::BOTH.into_iter().enumerate() {
        let provider = format!("provider-{index}");
        let mut caller = hub.agent_as(&format!("caller-{index}"), format, &[], map! {}).await;
        let (id, task_id) = submit(&mut caller, "r1", Value::from("x")).await;
        assert_eq!(task(&mut caller, &task_id).await["state"].as_str(), Some("QUEUED"));
        let mut provider = hub.agent_as(&provider, format, &["work"], map! {}).await;
        let call = provider.taken().await;
        assert_eq!((call.text("mode"), call.text("task_id")), ("task", &*task_id));
        assert_eq!(call.content(), Value::from("x"));
        provider.accept(&call).await;
        provider.fence().await;
        assert_eq!(task(&mut caller, &task_id).await["state"].as_str(), Some("RECEIVED"));
        provider.complete(&call, Value::from("y")).await;
        let result = ended(&mut caller, &task_id).await;
        assert_eq!((result.uint("id"), result.text("status")), (id, "completed"));
        assert_eq!(result.content(), Value::from("y"));
        let row = task(&mut caller, &task_id).await;
        assert_eq!((row["state"].as_str(), row["result"].as_str()), (Some("SUCCEEDED"), Some("y")));
        receipt(&mut caller, &task_id).await;
        caller.fence().await;
        provider.vanish().await;
    }
}

#[tokio::test]
async fn the_hub_is_killed_and_what_it_accepted_is_there_again() {
    let mut hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut provider = hub.agent_with("provider", &["other"], map! {"instance" => "life-1"}).await;
    let (_, waiting) = submit(&mut caller, "waiting", Value::from(1)).await;
    let mut worker = hub.agent_with("worker", &["work"], map! {"instance" => "life-1"}).await;
    let first = worker.taken().await;
    assert_eq!(first.text("task_id"), waiting);
    let (_, running) = submit(&mut caller, "running", Value::from(2)).await;
    let second = worker.taken().await;
    worker.accept(&second).await;
    worker.complete(&first, Value::from("done")).await;
    ended(&mut caller, &waiting).await;
    worker.fence().await;
    provider.fence().await;
    hub.kill_and_start_again();
    // The worker is the same process: it has its task again, and nobody else has.
    let mut worker = hub.agent_with("worker", &["work"], map! {"instance" => "life-1"}).await;
    let again = worker.taken().await;
    assert_eq!((again.text("task_id"), again.uint("attempt")), (&*running, 2));
    worker.complete(&again, Value::from("late")).await;
    // What was not confirmed comes again, and what was not known comes.
    let mut caller = hub.agent("caller", &[]).await;
    let ends = [caller.expect(kind::RESULT, "an end").await, caller.expect(kind::RESULT, "an end").await];
    let mut names: Vec<&str> = ends.iter().map(|end| end.text("task_id")).collect();
    let mut expected = vec![&*waiting, &*running];
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    for end in &ends {
        assert!(end.get("id").is_nil(), "its CALL was of another connection: {end:?}");
        receipt(&mut caller, end.text("task_id")).await;
    }
    // The request_id is still known.
    let extra = map! {"mode" => "task", "request_id" => "running"};
    let id = caller.call("work", extra, Value::from(2)).await;
    let repeated = caller.completed(id).await;
    assert_eq!(repeated.get("duplicate").as_bool(), Some(true), "{repeated:?}");
    assert_eq!(repeated.content(), Value::from("late"));
}

#[tokio::test]
async fn another_s_task_cannot_be_seen_cancelled_watched_or_confirmed() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut thief = hub.agent("thief", &[]).await;
    let (_, task_id) = submit(&mut caller, "r", Value::Nil).await;
    for capability in ["hub.tasks.get", "hub.tasks.cancel", "hub.tasks.watch"] {
        for name in [&*task_id, "00000000-0000-7000-8000-000000000000", "x"] {
            let id = thief.call(capability, map! {"stream" => true}, map! {"task_id" => name}).await;
            thief.invalid(id, "task_id").await;
        }
    }
    receipt(&mut thief, &task_id).await;
    thief.fence().await;
    let id = caller.call("hub.tasks.cancel", map! {}, map! {"task_id" => &*task_id}).await;
    let result = ended(&mut caller, &task_id).await;
    assert_eq!(result.code(), "cancelled");
    assert_eq!(caller.completed(id).await.content()["cancelled"].as_bool(), Some(true));
}

#[tokio::test]
async fn a_watch_of_tasks_begins_with_the_state_now_and_has_no_gap() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut watcher = hub.agent_with("caller-2", &[], map! {}).await;
    let (_, task_id) = submit(&mut caller, "r", Value::Nil).await;
    let id = caller.call("hub.tasks.watch", map! {"stream" => true, "credit" => 100}, Value::Nil).await;
    caller.accepted(id).await;
    let snapshot = caller.chunk_of(id, 0).await.content();
    assert_eq!(snapshot["tasks"][0]["task_id"].as_str(), Some(&*task_id));
    assert_eq!(caller.chunk_of(id, 1).await.content()["more"].as_bool(), Some(false));
    let mut provider = hub.agent("provider", &["work"]).await;
    let call = provider.taken().await;
    provider.accept_with(&call, map! {"queue_depth" => 0}).await;
    let begun = caller.chunk_of(id, 2).await.content();
    assert_eq!(
        (begun["event"].as_str(), begun["task"]["state"].as_str()),
        (Some("task.processing"), Some("PROCESSING"))
    );
    provider.complete(&call, Value::Nil).await;
    let end = caller.chunk_of(id, 3).await.content();
    assert_eq!(end["event"].as_str(), Some("task.succeeded"));
    ended(&mut caller, &task_id).await;
    watcher.fence().await;
}

/// Everybody offers and calls what it likes; the operator has what `*` leaves out, and everybody's tasks.
const OPERATED: &str = r#"
version = 1
[[rules]]
identity = "spiffe://agent-reach/agent/operator"
call = ["*", "hub.*", "hub.tasks.all"]
[[rules]]
identity = "*"
provide = ["*"]
call = ["*"]
"#;

#[tokio::test]
async fn an_operator_has_a_failed_task_made_again_and_a_kill_of_the_hub_changes_nothing_of_that() {
    let mut hub = Hub::serve(OPERATED, "");
    let mut caller = hub.agent("caller", &[]).await;
    let mut worker = hub.agent("worker", &["work"]).await;
    let (_, old) = submit(&mut caller, "r1", Value::from("x")).await;
    let call = worker.taken().await;
    let error = map! {"code" => "handler_error", "message" => "no ink", "retryable" => false};
    worker.fail(&call, error).await;
    assert_eq!(ended(&mut caller, &old).await.code(), "handler_error");
    worker.vanish().await;
    hub.kill_and_start_again();
    let retry =
        async |agent: &mut RawClient| agent.call("hub.tasks.retry", map! {}, map! {"task_id" => &*old}).await;
    let mut other = hub.agent("other", &[]).await;
    let id = retry(&mut other).await;
    other.failed(id, "unauthorized").await;
    let mut operator = hub.agent("operator", &[]).await;
    let id = retry(&mut operator).await;
    let answer = operator.completed(id).await.content();
    let new = answer["task_id"].as_str().expect("a new task").to_owned();
    assert_eq!(answer["retry_of"].as_str(), Some(&*old));
    hub.kill_and_start_again();
    let mut operator = hub.agent("operator", &[]).await;
    let id = retry(&mut operator).await;
    operator.invalid(id, "task_id").await;
    let mut worker = hub.agent("worker", &["work"]).await;
    let again = worker.taken().await;
    assert_eq!((again.text("task_id"), again.text("caller")), (&*new, "caller"));
    assert_eq!(again.content(), Value::from("x"));
    assert!(again.text("request_id").starts_with("r1~"), "{again:?}");
    worker.complete(&again, Value::from("y")).await;
    let mut caller = hub.agent("caller", &[]).await;
    // The first end was never confirmed: it comes too.
    let mut ends = [caller.expect(kind::RESULT, "an end").await, caller.expect(kind::RESULT, "an end").await];
    ends.sort_by_key(|end| end.text("task_id") == new);
    assert_eq!([ends[0].text("task_id"), ends[1].text("task_id")], [&*old, &*new]);
    assert_eq!((ends[0].code(), ends[1].content()), ("handler_error", Value::from("y")));
    assert_eq!(task(&mut caller, &new).await["retry_of"].as_str(), Some(&*old));
    assert_eq!(task(&mut caller, &old).await["state"].as_str(), Some("FAILED"));
    let id = operator.call("hub.tasks.retry", map! {}, map! {"task_id" => &*new}).await;
    operator.invalid(id, "task_id").await;
    operator.fence().await;
}

#[tokio::test]
async fn urls_that_are_not_allowed_and_deliveries_of_calls_are_refused_by_their_key() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let task = |url: &str| map! {"mode" => "task", "callback_url" => url};
    let id = caller.call("work", task("https://hooks.example.com/x"), Value::Nil).await;
    let refused = caller.failed(id, "unauthorized").await;
    assert_eq!(refused.details()["field"].as_str(), Some("callback_url"));
    for url in ["http://hooks.example.com/", "nonsense", "https://u:p@hooks.example.com/"] {
        let id = caller.call("work", task(url), Value::Nil).await;
        caller.invalid(id, "callback_url").await;
    }
    for (field, value) in [("callback_url", "https://hooks.example.com/"), ("reply_to", "agent:caller")] {
        let id = caller.call("work", Value::Map(vec![(field.into(), value.into())]), Value::Nil).await;
        caller.invalid(id, field).await;
    }
}
