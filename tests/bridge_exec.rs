//! `agent-reach bridge exec`: the real binary between a real hub and commands of the system.
#![cfg(test)]

mod bridge_world;
#[macro_use]
mod raw;
mod sdk_world;

use agent_reach_sdk::{ErrorCode, Payload};
use bridge_world::{Bridge, CAPABILITY, Life, NAME, call, caller, contents, details, gate, open};
use raw::Hub;
use sdk_world::within;
use serde_json::json as value;

/// A bridge to a command.
fn bridge(hub: &Hub, arguments: &[&str], command: &[&str]) -> Bridge {
    let arguments = [&CAPABILITY, arguments].concat();
    Bridge::start(hub.dir(), "exec", NAME, &arguments, &[&["--"], command].concat())
}

/// A bridge to a script of the shell, which the operator asked for here.
fn script(hub: &Hub, arguments: &[&str], text: &str) -> Bridge {
    bridge(hub, arguments, &["sh", "-c", text])
}

#[tokio::test]
async fn the_body_is_on_stdin_and_stdout_is_the_result() {
    let hub = Hub::dev();
    let _bridge = bridge(&hub, &[], &["cat"]);
    let caller = caller(&hub).await;
    let body = value!({"a": [1, null, -2.5, u64::MAX], "text": "größer\0\n"});
    assert_eq!(call(&caller, body.clone()).await.expect("a result"), body);
    assert_eq!(call(&caller, value!(null)).await.expect("a result"), value!(null));
    let large = value!("x".repeat(500_000));
    assert_eq!(call(&caller, large.clone()).await.expect("more than a pipe holds"), large);
    let png = Payload::new(&b"\x89PNG\0"[..]).content_type("image/png");
    let back: Payload = within("bytes", caller.call("old.code", png).into_future()).await.expect("a result");
    assert_eq!(&back.body[..], b"\x89PNG\0");
}

#[tokio::test]
async fn what_is_no_json_is_text_and_nothing_is_nil() {
    let hub = Hub::dev();
    let text = "read word; case $word in 1) echo hello you;; 2) ;; 3) printf '1\\n2';; esac";
    let _bridge = script(&hub, &[], text);
    let caller = caller(&hub).await;
    assert_eq!(call(&caller, value!(1)).await.expect("a result"), value!("hello you"));
    assert_eq!(call(&caller, value!(2)).await.expect("a result"), value!(null));
    assert_eq!(call(&caller, value!(3)).await.expect("a result"), value!("1\n2"));
}

#[tokio::test]
async fn a_command_that_reads_no_input_answers_all_the_same() {
    let hub = Hub::dev();
    let _bridge = bridge(&hub, &[], &["echo", "7"]);
    let caller = caller(&hub).await;
    assert_eq!(call(&caller, value!("x".repeat(500_000))).await.expect("a result"), value!(7));
}

#[tokio::test]
async fn nothing_that_a_call_carries_is_taken_for_a_command() {
    let hub = Hub::dev();
    let text = "printf '%s|%s|' \"$AGENT_REACH_REQUEST_ID\" \"$#\"; cat";
    let _bridge = script(&hub, &[], text);
    let _plain = Bridge::start(
        hub.dir(),
        "exec",
        "plain",
        &["--capability", "old.words"],
        &["--", "printf", "%s", "$HOME;`touch harm`|*\n'\""],
    );
    let caller = caller(&hub).await;
    let id = "$(touch harm); `touch harm` | touch harm > harm \"'\\ --help\n*";
    let asked = caller.call::<String>("old.code", id).request_id(id).into_future();
    let said = within("a result", asked).await.expect("a result");
    assert_eq!(said, format!("{id}|0|{}", serde_json::to_string(id).unwrap()));
    let words: String = within("words", caller.call("old.words", id).into_future()).await.expect("a result");
    assert_eq!(words, "$HOME;`touch harm`|*\n'\"");
    assert!(!hub.dir().join("harm").exists());
}

#[tokio::test]
async fn the_environment_says_which_call_it_is_and_has_no_key_of_the_bridge() {
    let hub = Hub::dev();
    let _bridge = bridge(&hub, &["--timeout", "20s"], &["env"]);
    let caller = caller(&hub).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let asked =
        caller.call::<String>("old.code", ()).request_id("order-17").trace(parent, None).into_future();
    let said = within("the environment", asked).await.expect("a result");
    let of = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(of("AGENT_REACH_CALLER"), "caller");
    assert_eq!(of("AGENT_REACH_CAPABILITY"), "old.code");
    assert_eq!(of("AGENT_REACH_REQUEST_ID"), "order-17");
    assert!(of("AGENT_REACH_TRACEPARENT").starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{said}");
    let left: u64 = of("AGENT_REACH_DEADLINE_MS").parse().unwrap();
    assert!(left > 0 && left <= 24_000, "{left}");
    assert!(!said.contains("AGENT_REACH_KEY") && said.contains("BRIDGE_TEST_SECRET"), "{said}");
}

#[tokio::test]
async fn a_request_id_that_no_environment_can_hold_fails_its_call() {
    let hub = Hub::dev();
    let _bridge = bridge(&hub, &[], &["cat"]);
    let caller = caller(&hub).await;
    let asked = caller.call::<()>("old.code", ()).request_id("a\0b").into_future();
    let error = within("a refusal", asked).await.expect_err("a NUL");
    assert!(error.code == ErrorCode::InvalidRequest, "{error:?}");
}

#[tokio::test]
async fn each_line_is_streamed_as_the_command_writes_it() {
    let hub = Hub::dev();
    let gate = gate(hub.dir(), "gate");
    let text = format!("echo '{{\"n\":1}}'; cat {}; printf 'two\\r\\n\\n3'", gate.display());
    let _bridge = script(&hub, &["--stream"], &text);
    let caller = caller(&hub).await;
    let mut stream = caller.call::<()>("old.code", ()).stream::<serde_json::Value>().await.expect("a stream");
    let chunk = within("a chunk", stream.next()).await.unwrap().expect("a chunk");
    assert_eq!(chunk.body, value!({"n": 1}), "before the command has written the rest");
    open(&gate).await;
    for rest in [value!("two"), value!(""), value!(3)] {
        assert_eq!(within("a chunk", stream.next()).await.unwrap().expect("a chunk").body, rest);
    }
    assert_eq!(within("the end", stream.next()).await, None);
    stream.end().await.expect("a whole stream");
    let waiting = caller.call::<serde_json::Value>("old.code", ()).into_future();
    let (whole, ()) = within("the list", async { tokio::join!(waiting, open(&gate)) }).await;
    assert_eq!(whole.expect("a result"), value!([{"n": 1}, "two", "", 3]), "who does not stream gets all");
}

#[tokio::test]
async fn a_failure_has_the_exit_code_and_the_end_of_stderr() {
    let hub = Hub::dev();
    let text = "read code; seq 5000 >&2; echo no ink >&2; test $code = 9 && kill -9 $$; exit $code";
    let bridge = script(&hub, &[], text);
    let caller = caller(&hub).await;
    for (code, retryable) in [(3, false), (75, true), (9, false)] {
        let error = call(&caller, value!(code)).await.expect_err("a failure");
        let told = details(&error);
        let field = if code == 9 { "signal" } else { "exit_code" };
        assert_eq!((told[field].as_u64(), error.retryable), (Some(code), retryable), "{told}");
        let stderr = told["stderr"].as_str().unwrap();
        assert!(stderr.ends_with("5000\nno ink") && stderr.len() <= 2048, "{stderr}");
    }
    assert!(bridge.says("the command says").contains("line=\"1\""));
    bridge.says("more than the log takes");
}

#[tokio::test]
async fn a_cancelled_call_ends_its_command_and_all_that_it_started() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    let text = format!(
        "exec 9>{}; trap 'echo told >&9; exit' TERM; (echo begun >&9; exec sleep 600) & wait",
        life.path()
    );
    let _bridge = script(&hub, &[], &text);
    let caller = caller(&hub).await;
    let pending = caller.call::<()>("old.code", ()).start().await.expect("begun");
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    drop(pending);
    assert_eq!(life.over().await, ["told"]);
}

#[tokio::test]
async fn who_ignores_the_signal_is_killed_after_the_grace_with_its_children() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    let text = format!(
        "exec 9>{}; trap '' TERM; (trap '' TERM; (echo begun >&9; exec sleep 600) & wait) & wait; wait",
        life.path()
    );
    let bridge = script(&hub, &["--grace", "100ms"], &text);
    let caller = caller(&hub).await;
    let pending = caller.call::<()>("old.code", ()).start().await.expect("begun");
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    drop(pending);
    assert_eq!(life.over().await, Vec::<String>::new());
    bridge.says("is killed");
}

#[tokio::test]
async fn a_call_past_its_time_ends_its_command() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    // Nothing is heard of it any more when it has to be ended.
    let text = format!(
        "exec 9>{} 2>&-; trap 'echo told >&9; exit' TERM; echo begun >&9; sleep 600 & wait",
        life.path()
    );
    let _bridge = script(&hub, &["--timeout", "1s"], &text);
    let caller = caller(&hub).await;
    let error = call(&caller, value!(null)).await.expect_err("no answer");
    assert!(error.code == ErrorCode::Timeout, "{error:?}");
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    assert_eq!(life.over().await, ["told"]);
}

#[tokio::test]
async fn what_a_command_leaves_behind_does_not_hold_its_call_open() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    let text = format!("exec 9>{}; echo begun >&9; sleep 600 & echo '\"done\"'", life.path());
    let _bridge = script(&hub, &[], &text);
    let caller = caller(&hub).await;
    assert_eq!(call(&caller, value!(null)).await.expect("a result"), value!("done"));
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    assert_eq!(life.over().await, Vec::<String>::new());
}

#[tokio::test]
async fn too_much_output_ends_the_command_and_fails_its_call() {
    let hub = Hub::dev();
    for arguments in [&["--max-answer", "4000"][..], &["--max-answer", "4000", "--stream"]] {
        let life = Life::new(hub.dir(), &format!("life{}", arguments.len()));
        let text = format!("exec 9>{}; exec yes", life.path());
        let _bridge = script(&hub, arguments, &text);
        let caller = caller(&hub).await;
        let error = call(&caller, value!(null)).await.expect_err("too much");
        assert_eq!(details(&error)["code"].as_str(), Some("answer_too_large"));
        life.over().await;
    }
}

#[tokio::test]
async fn told_to_stop_it_lets_commands_end() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    let gate = gate(hub.dir(), "gate");
    let text = format!("echo begun >{}; cat {}; echo '\"done\"'", life.path(), gate.display());
    let bridge = script(&hub, &[], &text);
    let caller = caller(&hub).await;
    let pending = caller.call::<String>("old.code", ()).start().await.expect("begun");
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    bridge.terminate();
    bridge.says("draining");
    open(&gate).await;
    assert_eq!(within("the result", pending.result()).await.expect("a result"), "done");
    assert_eq!(bridge.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_command_that_outlasts_the_drain_is_told_to_end() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    let text =
        format!("exec 9>{}; trap 'echo told >&9; exit' TERM; echo begun >&9; sleep 600 & wait", life.path());
    let bridge = script(&hub, &["--drain", "100ms"], &text);
    let caller = caller(&hub).await;
    let pending = caller.call::<String>("old.code", ()).start().await.expect("begun");
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    bridge.terminate();
    let error = within("the failure", pending.result()).await.expect_err("it was stopped");
    assert_eq!((details(&error)["code"].as_str(), error.retryable), (Some("stopped"), false));
    assert_eq!(life.over().await, ["told"]);
    assert_eq!(bridge.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_with_its_commands() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    let text = format!("exec 9>{}; trap '' TERM; (echo begun >&9; exec sleep 600) & wait; wait", life.path());
    let bridge = script(&hub, &["--drain", "1h"], &text);
    let caller = caller(&hub).await;
    let _pending = caller.call::<()>("old.code", ()).start().await.expect("begun");
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    bridge.terminate();
    bridge.says("draining");
    bridge.terminate();
    assert_eq!(bridge.ended().await.code, Some(130));
    assert_eq!(life.over().await, Vec::<String>::new());
}

#[tokio::test]
async fn no_more_commands_run_at_once_than_it_takes() {
    let hub = Hub::dev();
    let mut life = Life::new(hub.dir(), "life");
    let gate = gate(hub.dir(), "gate");
    // Holds the pipe of the test, so that the word of a second one would be there before the first has ended.
    let text = format!("exec 9>{}; echo begun >&9; cat {}; echo ended >&9", life.path(), gate.display());
    let _bridge = script(&hub, &["--concurrency", "1"], &text);
    let caller = caller(&hub).await;
    let first = caller.call::<()>("old.code", ()).start().await.expect("begun");
    assert_eq!(life.word().await.as_deref(), Some("begun"));
    let error = caller.call::<()>("old.code", ()).queue(false).into_future();
    let error = within("a refusal", error).await.expect_err("it is busy");
    assert!(error.code == ErrorCode::Overloaded, "{error:?}");
    open(&gate).await;
    within("the first", first.result()).await.expect("a result");
    assert_eq!(life.over().await, ["ended"]);
}

#[tokio::test]
async fn a_command_that_is_not_there_is_said_at_once() {
    let hub = Hub::dev();
    let ended = Bridge::begin(hub.dir(), "exec", NAME, &CAPABILITY, &["--", "no-such-command"]).ended().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("there is no command no-such-command"), "{ended:?}");
    let place = hub.dir().join("schema.json");
    std::fs::write(&place, "{").unwrap();
    let schema = ["--input-schema", place.to_str().unwrap(), "--", "cat"];
    let ended = Bridge::begin(hub.dir(), "exec", NAME, &CAPABILITY, &schema).ended().await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(contents(&place) == "{" && ended.stderr.contains("no JSON"), "{ended:?}");
}

#[tokio::test]
async fn schemas_are_held_by_the_hub() {
    let hub = Hub::dev();
    let place = hub.dir().join("schema.json");
    std::fs::write(&place, r#"{"type": "integer"}"#).unwrap();
    let schema = place.to_str().unwrap();
    let offer = ["--input-schema", schema, "--output-schema", schema, "--description", "Counts"];
    let _bridge = script(&hub, &offer, "cat >/dev/null; echo '\"no number\"'");
    let caller = caller(&hub).await;
    let error = call(&caller, value!("a")).await.expect_err("no integer");
    assert!(error.code == ErrorCode::SchemaMismatch, "{error:?}");
    let offered = caller.capabilities().await.expect("a list");
    assert!(format!("{offered:?}").contains("Counts"), "{offered:?}");
}
