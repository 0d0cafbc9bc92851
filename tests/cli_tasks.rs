//! `agent-reach tasks` and `agent-reach call --task`, against a hub that `dev` runs.
#![cfg(test)]

mod command;
#[macro_use]
mod raw;
mod sdk_world;

use agent_reach_sdk::{Agent, AgentBuilder, Context, HandlerError};
use command::{Ended, Running};
use raw::Hub;
use rmpv::Value;
use sdk_world::{Door, agent, within};
use serde_json::json;

/// Owns what the commands submit: with the directory of `dev` each command would be another caller.
const OWNER: &str = "owner";

async fn connected(builder: AgentBuilder) -> Agent {
    builder.connect().await.expect("a session")
}

/// A hub that lets one caller come and go as often as these commands do.
fn patient() -> Hub {
    Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "1000")])
}

fn start(hub: &Hub, arguments: &[&str]) -> Running {
    // Issues the certificate when it is first asked for.
    drop(sdk_world::tls(hub.dir(), OWNER));
    let file = |name: &str| hub.dir().join(name).display().to_string();
    let (cert, key) = (file(&format!("agents/{OWNER}.pem")), file(&format!("agents/{OWNER}-key.pem")));
    let url = format!("wss://{}", hub.agents);
    let who = ["--hub", &url, "--cert", &cert, "--key", &key, "--ca", &file("ca.pem")];
    Running::start(hub.dir(), &[arguments, &who].concat())
}

async fn ended(command: Running) -> Ended {
    tokio::task::spawn_blocking(move || command.ended()).await.expect("the command")
}

async fn run(hub: &Hub, arguments: &[&str]) -> Ended {
    ended(start(hub, arguments)).await
}

/// With `test.work`, which says twice how far it is, and `test.fail`.
fn worker(hub: &Hub) -> AgentBuilder {
    agent(hub.dir(), hub.agents, "worker")
        .capability("test.work", |context: Context, n: u64| async move {
            context.progress(json!({"done": 1})).await?;
            context.progress(json!({"done": 2})).await?;
            Ok(2 * n)
        })
        .capability("test.fail", |_: Context, _: Value| async {
            Err::<(), _>(HandlerError::new("no_ink", "the pen is dry"))
        })
}

#[tokio::test]
async fn a_task_is_waited_for_with_its_steps_on_stderr_and_its_result_on_stdout() {
    let hub = patient();
    let waits = start(&hub, &["call", "test.work", "21", "--task"]);
    // It shows what happens from the moment on that it watches.
    let mut looker = hub.agent("looker", &[]).await;
    within("the command's watch", async {
        let mut watches = 0;
        while watches == 0 {
            let id = looker.call("hub.stats", map! {}, Value::Nil).await;
            watches = looker.completed(id).await.content()["watches"].as_u64().expect("a count");
        }
    })
    .await;
    let _worker = connected(worker(&hub)).await;
    let done = ended(waits).await;
    assert_eq!((done.code, &*done.stdout), (Some(0), "42\n"), "{done:?}");
    let steps: Vec<&str> = done.stderr.lines().skip(1).collect();
    assert!(done.stderr.starts_with("task 0") && done.stderr.contains(" is stored\n"), "{done:?}");
    assert!(
        steps.ends_with(&[
            "PROCESSING worker",
            "progress {\"done\":1}",
            "progress {\"done\":2}",
            "SUCCEEDED worker"
        ]),
        "{done:?}"
    );
    let streamed = run(&hub, &["call", "test.work", "1", "--task", "--stream", "--json"]).await;
    let lines = streamed.json_lines();
    assert_eq!(lines.last().expect("the end")["body"], 2, "{streamed:?}");
    let failed = run(&hub, &["call", "test.fail", "1", "--task", "--json"]).await;
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert_eq!(failed.json()["error"]["details"]["code"], "no_ink", "{failed:?}");
    assert!(!failed.stderr.contains("goes on"), "{failed:?}");
}

#[tokio::test]
async fn a_detached_task_is_found_watched_looked_at_and_cancelled_by_its_id() {
    let hub = patient();
    let submitted = run(&hub, &["call", "test.work", "21", "--task", "--detach"]).await;
    assert_eq!((submitted.code, &*submitted.stderr), (Some(0), ""), "{submitted:?}");
    let id = submitted.stdout.trim_end();
    let listed = run(&hub, &["tasks", "--json"]).await;
    assert_eq!(listed.json()["tasks"][0]["task_id"], id, "{listed:?}");
    let table = run(&hub, &["tasks", "list", "--state", "queued", "--capability", "test.work"]).await;
    assert!(table.stdout.starts_with("TASK") && table.stdout.contains("QUEUED  test.work"), "{table:?}");
    let none = run(&hub, &["tasks", "--state", "FAILED", "--json"]).await;
    assert_eq!(none.json()["tasks"], json!([]));

    let watch = start(&hub, &["tasks", "watch", id]);
    assert_eq!(watch.line(), Some(format!("{id}  QUEUED  test.work")));
    let cancelled = run(&hub, &["tasks", "cancel", id]).await;
    assert_eq!((cancelled.code, &*cancelled.stdout), (Some(0), "cancelled\n"), "{cancelled:?}");
}

#[tokio::test]
async fn a_watch_of_one_task_ends_with_it_and_get_shows_its_end() {
    let hub = patient();
    let by = "agent:archive";
    let submit = ["call", "test.work", "21", "--task", "--detach", "--json", "--reply-to", by];
    let submitted = run(&hub, &submit).await.json();
    let id = submitted["task_id"].as_str().expect("an id");
    let watch = start(&hub, &["tasks", "watch", id, "--json"]);
    assert!(watch.line().is_some_and(|line| line.contains("QUEUED")));
    let _worker = connected(worker(&hub)).await;
    let watched = ended(watch).await;
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.stdout.lines().last().is_some_and(|line| line.contains("task.succeeded")), "{watched:?}");
    let shown = run(&hub, &["tasks", "get", id]).await;
    let row = |name: &str| {
        let line = shown.stdout.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.get(name.len()..)).map(str::trim).map(str::to_owned)
    };
    assert_eq!(row("result").as_deref(), Some("42"), "{shown:?}");
    assert_eq!(row("agent").as_deref(), Some("worker"), "{shown:?}");
    assert_eq!(run(&hub, &["tasks", "get", id, "--json"]).await.json()["outcome"], "completed");
    let late = run(&hub, &["tasks", "cancel", id]).await;
    assert_eq!((late.code, &*late.stdout), (Some(1), ""), "{late:?}");
    assert!(late.stderr.contains("it had ended before: completed"), "{late:?}");
    let unknown = run(&hub, &["tasks", "get", "00000000-0000-7000-8000-000000000000"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.starts_with("agent-reach tasks: invalid_request: "), "{unknown:?}");
}

#[tokio::test]
async fn a_task_that_failed_is_made_again_and_the_new_one_is_named() {
    let hub = patient();
    let _worker = connected(worker(&hub)).await;
    let failed = run(&hub, &["call", "test.fail", "1", "--task"]).await;
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let listed = run(&hub, &["tasks", "--state", "FAILED", "--json"]).await.json();
    let old = listed["tasks"][0]["task_id"].as_str().expect("a task").to_owned();
    let again = run(&hub, &["tasks", "retry", &old]).await;
    assert_eq!((again.code, &*again.stderr), (Some(0), ""), "{again:?}");
    let new = again.stdout.trim_end();
    let watched = run(&hub, &["tasks", "watch", new]).await;
    assert!(watched.stdout.contains("FAILED") && !watched.stdout.contains(&old), "{watched:?}");
    assert_eq!(run(&hub, &["tasks", "get", new, "--json"]).await.json()["retry_of"], *old);
    let json = run(&hub, &["tasks", "retry", &old, "--json"]).await;
    assert_eq!(json.json()["retry_of"], *old, "{json:?}");
    let unknown = run(&hub, &["tasks", "retry", "00000000-0000-7000-8000-000000000000"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.starts_with("agent-reach tasks: invalid_request: "), "{unknown:?}");
}

#[tokio::test]
async fn ctrl_c_leaves_the_task_to_the_hub_and_says_so() {
    let hub = patient();
    let door = Door::new();
    let held = door.clone();
    let hold = move |_: Context, _: Value| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok("through")
        }
    };
    let _holder = connected(agent(hub.dir(), hub.agents, "holder").capability("test.held", hold)).await;
    let waits = start(&hub, &["call", "test.held", "1", "--task"]);
    door.arrived(1).await;
    waits.interrupt();
    let left = ended(waits).await;
    assert_eq!(left.code, Some(1), "{left:?}");
    let id = left.stderr.split_whitespace().nth(1).expect("its id").to_owned();
    assert!(left.stderr.contains(&format!("the task goes on: {id}\n")), "{left:?}");
    door.let_go(1);
    let watched = run(&hub, &["tasks", "watch", &id]).await;
    assert!(watched.stdout.ends_with("SUCCEEDED  test.held  holder  completed\n"), "{watched:?}");
}

#[test]
fn what_only_tasks_have_needs_a_task() {
    let dir = tempfile::tempdir().expect("a directory");
    let cases: [&[&str]; 6] = [
        &["call", "x.y", "--detach"],
        &["call", "x.y", "--callback-url", "https://hooks.example.com/"],
        &["call", "x.y", "--reply-to", "agent:a"],
        &["call", "x.y", "--task", "--all"],
        &["call", "x.y", "--task", "--notify"],
        &["tasks", "--state", "DONE"],
    ];
    for arguments in cases {
        let ended = command::run(dir.path(), arguments);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{arguments:?}: {ended:?}");
    }
}

#[tokio::test]
async fn a_callback_to_a_host_that_is_not_allowed_is_refused() {
    let hub = patient();
    let url = "https://hooks.example.com/";
    let refused = run(&hub, &["call", "test.work", "1", "--task", "--callback-url", url, "--json"]).await;
    assert_eq!(refused.json()["error"]["code"], "unauthorized", "{refused:?}");
}
