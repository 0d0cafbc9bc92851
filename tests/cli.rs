//! The client commands against a hub that `dev` runs, with an agent of the SDK.
#![cfg(test)]

mod command;
#[macro_use]
mod raw;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_reach_sdk::{Agent, AgentBuilder, Capability, Context, ErrorCode, HandlerError, Tls};
use command::{Ended, Running};
use raw::{Hub, certs};
use rmpv::Value;
use serde_json::json;
use tokio::sync::{Barrier, Notify, mpsc};

/// An agent of the hub's CA, still to be connected.
fn agent(hub: &Hub, name: &str) -> AgentBuilder {
    certs::run(&["certs", "issue", name, "--dir", certs::path(hub.dir())]);
    let [ca, cert, key] = files(hub.dir(), name);
    let url = format!("wss://{}", hub.agents);
    Agent::builder(url, name).tls(Tls::from_pem_files(ca, cert, key).expect("the certificate"))
}

fn files(dir: &Path, name: &str) -> [PathBuf; 3] {
    let agents = dir.join("agents");
    [dir.join("ca.pem"), agents.join(format!("{name}.pem")), agents.join(format!("{name}-key.pem"))]
}

/// An agent that answers with what it got, and fails when it is asked to.
async fn echo(hub: &Hub, name: &str) -> Agent {
    agent(hub, name)
        .label("zone", name)
        .capability(
            Capability::new("test.echo").description("Says it again"),
            |_: Context, body: Value| async { Ok(body) },
        )
        .capability(
            "test.caller",
            |context: Context, _: Value| async move { Ok(context.caller().to_owned()) },
        )
        .capability("test.fail", |_: Context, _: Value| async {
            Err::<(), _>(HandlerError::new("no_ink", "the pen is dry").retryable())
        })
        .connect()
        .await
        .expect("a session")
}

/// Runs a command against the hub, off the runtime's threads.
async fn run(hub: &Hub, arguments: &[&str]) -> Ended {
    run_with(hub, arguments, "").await
}

async fn run_with(hub: &Hub, arguments: &[&str], input: &str) -> Ended {
    let command = start(hub, arguments, input);
    tokio::task::spawn_blocking(move || command.ended()).await.expect("the command")
}

fn start(hub: &Hub, arguments: &[&str], input: &str) -> Running {
    let mut all = arguments.to_vec();
    all.extend(["--dir", certs::path(hub.dir())]);
    Running::start_with(hub.dir(), &all, &[], input)
}

/// The next line of a command, off the runtime's threads.
async fn line(command: Running) -> (Running, String) {
    let read = tokio::task::spawn_blocking(move || {
        let line = command.line().expect("a line");
        (command, line)
    });
    read.await.expect("a line")
}

async fn ended(command: Running) -> Ended {
    tokio::task::spawn_blocking(move || command.ended()).await.expect("the end")
}

#[tokio::test]
async fn a_completed_call_prints_its_result_alone_on_stdout_and_exits_0() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    let body = "{\"b\":[1.0,{\"$int\":\"9007199254740993\"}],\"a\":\"ä\"}";
    let file = hub.dir().join("body.json");
    std::fs::write(&file, body).expect("a file");
    let from_file = format!("@{}", file.display());
    for (argument, input) in [(body, ""), (&*from_file, ""), ("-", body)] {
        let called = run_with(&hub, &["call", "test.echo", argument], input).await;
        assert_eq!((called.code, &*called.stdout), (Some(0), &*format!("{body}\n")), "{called:?}");
    }
    let nothing = run(&hub, &["call", "test.echo"]).await;
    assert_eq!((nothing.code, &*nothing.stdout), (Some(0), "null\n"), "{nothing:?}");
}

#[tokio::test]
async fn the_whole_reply_names_call_request_target_route_and_attempts() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    let called =
        run(&hub, &["call", "test.echo", "7", "--json", "--request-id", "r-1", "--priority", "high"]).await;
    let reply = called.json();
    assert_eq!(called.code, Some(0), "{called:?}");
    assert_eq!(reply["status"], "completed");
    assert_eq!(
        (&reply["body"], &reply["target"], &reply["request_id"]),
        (&json!(7), &json!("echo"), &json!("r-1"))
    );
    assert_eq!(reply["attempts"][0]["target"], "echo");
    assert!(reply["call_id"].is_string() && reply["route"].is_string(), "{reply}");

    let again = run(&hub, &["call", "test.echo", "7", "--json", "--request-id", "r-1"]).await.json();
    assert_eq!(again["status"], "completed", "another command is another caller: {again}");
}

#[tokio::test]
async fn a_failed_call_exits_1_with_its_typed_error_on_stderr() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    let called = run(&hub, &["call", "test.fail", "1", "--json"]).await;
    assert_eq!(called.code, Some(1), "{called:?}");
    assert!(
        called.stderr.contains("agent-reach call: degraded: ") && called.stderr.contains("the pen is dry\n"),
        "{called:?}"
    );
    assert!(called.stderr.contains("agent-reach trace "), "{called:?}");
    let reply = called.json();
    assert_eq!(reply["status"], "failed");
    let cause = json!({
        "code": "handler_error",
        "message": "the pen is dry",
        "retryable": true,
        "details": {"code": "no_ink", "message": "the pen is dry"},
    });
    assert_eq!((&reply["error"]["code"], &reply["error"]["details"]["cause"]), (&json!("degraded"), &cause));
    assert_eq!(reply["attempts"].as_array().map(Vec::len), Some(3), "{reply}");

    let plain = run(&hub, &["call", "test.nobody-has-this"]).await;
    assert_eq!((plain.code, &*plain.stdout), (Some(1), ""), "{plain:?}");
    assert!(plain.stderr.starts_with("agent-reach call: no_capability: "), "{plain:?}");
}

#[test]
fn arguments_that_cannot_be_used_exit_2_before_any_hub_is_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let cases: [(&[&str], &str); 10] = [
        (&["call", "x.y", "no json"], "the input is no JSON"),
        (&["call", "x.y", "@/no/such/file"], "/no/such/file"),
        (&["call", "x..y"], "capability"),
        (&["call", "x.y", "--agent", "a", "--agent", "b", "--task"], "--task"),
        (&["call", "x.y", "--timeout", "soon"], "--timeout"),
        (&["call", "x.y", "--expect", "@/no/such/file"], "/no/such/file"),
        (&["call", "x.y", "--expect", "{"], "the schema is no JSON"),
        (&["call", "x.y", "--agent", "a", "--agent", "b", "--stream"], "--stream"),
        (&["agents", "--hub", "wss://127.0.0.1:1"], "--cert"),
        (&["stats", "--cert", "c.pem"], "missing: --key"),
    ];
    for (arguments, told) in cases {
        let ended = command::run(dir.path(), arguments);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(told), "{arguments:?}: {ended:?}");
    }
}

#[tokio::test]
async fn without_a_hub_every_command_exits_3_and_says_what_to_do() {
    let empty = tempfile::tempdir().expect("a directory");
    for arguments in
        [&["call", "x.y"][..], &["agents"], &["capabilities"], &["tail"], &["trace", "1-2"], &["stats"]]
    {
        let ended = command::run(empty.path(), arguments);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.stderr.contains("no hub: ") && ended.stderr.contains("agent-reach dev"), "{ended:?}");
    }

    let (hub, other) = (Hub::dev(), Hub::dev());
    let address = format!("wss://{}", hub.agents);
    let stranger = run(&other, &["stats", "--hub", &address]).await;
    assert_eq!(stranger.code, Some(3), "a certificate of another CA: {stranger:?}");

    drop(hub);
    let gone = run(&other, &["stats", "--hub", &address]).await;
    assert_eq!(gone.code, Some(3), "{gone:?}");
    assert!(gone.stderr.contains(&format!("nothing answers at {address}")), "{gone:?}");
}

#[tokio::test]
async fn a_certificate_of_ones_own_is_the_caller_by_the_name_in_it() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    certs::run(&["certs", "issue", "billing", "--dir", certs::path(hub.dir())]);
    let [ca, cert, key] = files(hub.dir(), "billing");
    let address = format!("wss://{}", hub.agents);
    let [ca, cert, key] = [&ca, &cert, &key].map(|path| certs::path(path));
    let elsewhere = tempfile::tempdir().expect("a directory");

    let flags = ["call", "test.caller", "--hub", &address, "--cert", cert, "--key", key, "--ca", ca];
    let called = ended(Running::start(elsewhere.path(), &flags)).await;
    assert_eq!((called.code, &*called.stdout), (Some(0), "\"billing\"\n"), "{called:?}");

    let variables = [
        ("AGENT_REACH_HUB", &*address),
        ("AGENT_REACH_CERT", cert),
        ("AGENT_REACH_KEY", key),
        ("AGENT_REACH_CA", ca),
    ];
    let started = Running::start_with(elsewhere.path(), &["call", "test.caller"], &variables, "");
    let called = ended(started).await;
    assert_eq!((called.code, &*called.stdout), (Some(0), "\"billing\"\n"), "{called:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_at_once_do_not_replace_each_other() {
    let hub = Hub::dev();
    let both = Arc::new(Barrier::new(2));
    let _meeting = agent(&hub, "meeting")
        .capability("test.meet", move |context: Context, _: Value| {
            let both = Arc::clone(&both);
            async move {
                both.wait().await;
                Ok(context.caller().to_owned())
            }
        })
        .connect()
        .await
        .expect("a session");
    let meet = ["call", "test.meet"];
    let (first, second) = tokio::join!(run(&hub, &meet), run(&hub, &meet));
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{first:?} {second:?}");
    assert_ne!(first.stdout, second.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_prints_each_piece_as_it_comes() {
    let hub = Hub::dev();
    let go_on = Arc::new(Notify::new());
    let waits = Arc::clone(&go_on);
    let _counter = agent(&hub, "counter")
        .capability("test.count", move |context: Context, _: Value| {
            let waits = Arc::clone(&waits);
            async move {
                context.emit(json!({"n": 1})).await?;
                waits.notified().await;
                context.emit(json!({"n": 2})).await?;
                Ok("end")
            }
        })
        .connect()
        .await
        .expect("a session");
    let (command, first) = line(start(&hub, &["call", "test.count", "--stream"], "")).await;
    assert_eq!(first, "{\"n\":1}");
    go_on.notify_one();
    let rest = ended(command).await;
    assert_eq!((rest.code, &*rest.stdout), (Some(0), "{\"n\":2}\n\"end\"\n"), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fan_out_prints_one_line_for_each_target_and_counts_on_stderr() {
    let hub = Hub::dev();
    let (_a, _b) = (echo(&hub, "a").await, echo(&hub, "b").await);
    let all = run(&hub, &["call", "test.echo", "5", "--all"]).await;
    let mut lines = all.json_lines();
    lines.sort_by_key(|line| line["target"].to_string());
    let line = |target| json!({"target": target, "status": "completed", "body": 5});
    assert_eq!((all.code, lines), (Some(0), vec![line("a"), line("b")]), "{}", all.stderr);
    assert!(all.stderr.contains("2 agents: 2 completed, 0 failed"), "{}", all.stderr);

    let part = run(&hub, &["call", "test.echo", "5", "--agent", "a", "--agent", "absent", "--json"]).await;
    assert_eq!(part.code, Some(1), "{part:?}");
    let lines = part.json_lines();
    let of = |target: &str| lines.iter().find(|line| line["target"] == target).expect("its line");
    assert_eq!((&of("a")["body"], &of("absent")["error"]["code"]), (&json!(5), &json!("no_instance")));
    assert!(of("a")["call_id"].is_string(), "{lines:?}");
}

#[tokio::test]
async fn labels_agents_and_notices_reach_the_hub() {
    let hub = Hub::dev();
    let (_a, _b) = (echo(&hub, "a").await, echo(&hub, "b").await);
    for choice in [["--agent", "b"], ["--label", "zone=b"], ["--require", "zone=b"]] {
        let reply = run(&hub, &["call", "test.echo", "1", "--json", choice[0], choice[1]]).await.json();
        assert_eq!(reply["target"], "b", "{choice:?}: {reply}");
    }
    let notice = run(&hub, &["call", "test.echo", "1", "--notify", "--agent", "a"]).await;
    assert_eq!((notice.code, &*notice.stdout, &*notice.stderr), (Some(0), "", "a has it\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_the_call_at_its_provider_and_exits_1() {
    let hub = Hub::dev();
    let (tell, mut told) = mpsc::channel(2);
    let _waiter = agent(&hub, "waiter")
        .capability("test.wait", move |context: Context, _: Value| {
            let tell = tell.clone();
            async move {
                tell.send("started").await?;
                context.cancelled().await;
                tell.send("cancelled").await?;
                Err::<(), _>(HandlerError::wire(ErrorCode::Cancelled, "as was asked"))
            }
        })
        .connect()
        .await
        .expect("a session");
    let command = start(&hub, &["call", "test.wait"], "");
    assert_eq!(raw::within("the call", told.recv()).await, Some("started"));
    command.interrupt();
    assert_eq!(raw::within("CANCEL", told.recv()).await, Some("cancelled"));
    let cancelled = ended(command).await;
    assert_eq!((cancelled.code, &*cancelled.stdout), (Some(1), ""), "{cancelled:?}");
    assert!(cancelled.stderr.contains("agent-reach call: cancelled"), "{cancelled:?}");
}

#[tokio::test]
async fn agents_and_capabilities_show_tables_to_people_and_json_to_programs() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    let table = run(&hub, &["agents"]).await;
    assert_eq!(table.code, Some(0), "{table:?}");
    let row = table.stdout.lines().find(|line| line.starts_with("echo ")).expect("its row");
    assert!(row.contains("ready") && row.contains("test.echo") && row.contains("zone=echo"), "{row}");

    let list = run(&hub, &["agents", "--json", "--capability", "test.echo"]).await.json();
    let ids: Vec<_> =
        list["agents"].as_array().expect("a list").iter().map(|agent| &agent["agent_id"]).collect();
    assert_eq!(ids, ["echo"]);
    let one = run(&hub, &["agents", "echo", "--json"]).await.json();
    assert_eq!((&one["open_calls"], &one["calls"]), (&json!(0), &json!([])));
    let unknown = run(&hub, &["agents", "absent"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");

    let table = run(&hub, &["capabilities"]).await;
    let row = table.stdout.lines().find(|line| line.starts_with("test.echo ")).expect("its row");
    assert!(row.contains("echo") && row.ends_with("Says it again"), "{row}");
    let list = run(&hub, &["capabilities", "test.echo", "--json"]).await.json();
    assert_eq!(list["capabilities"][0]["agents"][0]["agent_id"], "echo");
    let unknown = run(&hub, &["capabilities", "test.absent"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
}

#[tokio::test]
async fn lists_of_many_pages_are_followed_to_their_end() {
    let hub = Hub::dev_with(&[("LIMITS__MAX_MESSAGE", "8192")]);
    let mut many = agent(&hub, "many");
    let names: Vec<_> = (0..25).map(|n| format!("page.n{n:02}")).collect();
    for name in &names {
        let capability = Capability::new(name).description("d".repeat(200));
        many = many.capability(capability, |_: Context, body: Value| async { Ok(body) });
    }
    let _many = many.connect().await.expect("a session");
    let list = run(&hub, &["capabilities", "--json"]).await.json();
    let all = list["capabilities"].as_array().expect("a list");
    let found: Vec<_> = all.iter().map(|row| row["name"].as_str().expect("a name")).collect();
    assert_eq!(found, names);
}

#[tokio::test]
async fn a_trace_tells_the_decisions_of_a_call_in_order() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    let reply = run(&hub, &["call", "test.echo", "1", "--json"]).await.json();
    let call_id = reply["call_id"].as_str().expect("a call_id");
    let trace = run(&hub, &["trace", call_id, "--json"]).await.json();
    let steps: Vec<_> = trace["steps"].as_array().expect("steps").iter().map(|step| &step["step"]).collect();
    assert_eq!(steps, ["routed", "given", "accepted", "answered", "ended"]);
    let text = run(&hub, &["trace", call_id]).await;
    assert_eq!((text.code, text.stdout.lines().count()), (Some(0), 7), "{text:?}");
    let head = text.stdout.lines().next().unwrap_or_default();
    assert!(head.starts_with(&format!("test.echo, call {call_id} of cli-")), "{head}");

    let unknown = run(&hub, &["trace", "0-0"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
}

#[tokio::test]
async fn stats_are_figures_in_both_forms() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    let stats = run(&hub, &["stats", "--json"]).await.json();
    assert_eq!((&stats["agents"], &stats["connections"]), (&json!(2), &json!(2)));
    let table = run(&hub, &["stats"]).await;
    assert!(table.stdout.lines().any(|line| line.starts_with("agents ready ")), "{table:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_begins_with_the_state_and_tells_what_happens_until_ctrl_c() {
    let hub = Hub::dev();
    let echo = echo(&hub, "echo").await;
    let mut tail = start(&hub, &["tail", "--json"], "");
    let mut seen = Vec::new();
    loop {
        let (command, text) = line(tail).await;
        tail = command;
        let event: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        seen.extend(event["agents"].as_array().into_iter().flatten().map(|agent| agent["agent_id"].clone()));
        if event["more"] == false {
            break;
        }
    }
    assert!(seen.contains(&json!("echo")), "{seen:?}");
    let said: String = echo.call("test.echo", "x").await.expect("a result");
    assert_eq!(said, "x");
    loop {
        let (command, text) = line(tail).await;
        tail = command;
        let event: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        if event["event"] == "call.ended" && event["call"]["capability"] == "test.echo" {
            assert_eq!((&event["outcome"], &event["call"]["caller"]), (&json!("completed"), &json!("echo")));
            break;
        }
    }
    tail.interrupt();
    assert_eq!(ended(tail).await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_shows_people_one_line_for_each_event_of_the_kind_they_want() {
    let hub = Hub::dev();
    let _echo = echo(&hub, "echo").await;
    let (mut tail, mut text) = line(start(&hub, &["tail", "--agents"], "")).await;
    while !text.contains("snapshot            echo  ready") {
        (tail, text) = line(tail).await;
    }
    let second = agent(&hub, "second").connect().await.expect("a session");
    while !text.contains("agent.connected     second  ready") {
        (tail, text) = line(tail).await;
    }
    second.close().await;
    while !text.contains("agent.disconnected  second") {
        (tail, text) = line(tail).await;
    }
    tail.interrupt();
    assert_eq!(ended(tail).await.code, Some(0));
}
