//! `agent-reach policy test` says what the hub does.
#![cfg(test)]

#[macro_use]
mod raw;

use std::process::Command;

use raw::{Hub, certs};
use rmpv::Value;

const POLICY: &str = r#"version = 1
[[rules]]
identity = "spiffe://agent-reach/agent/caller"
call = ["order.*", "invoices.make", "*.x"]
[[rules]]
identity = "*"
provide = ["order.*", "invoice.create"]
call = ["*"]
[aliases]
"invoices.make" = "invoice.create"
"#;

/// Exit code, stdout and stderr.
fn policy_test(policy: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-reach"));
    command.args(["policy", "test", "--policy", certs::path(policy)]).args(arguments);
    let output = command.output().expect("the binary");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn it_allows_what_the_hub_lets_through_and_denies_what_it_refuses() {
    let policy = POLICY.replace(", \"*.x\"", "");
    let hub = Hub::serve(&policy, "");
    let file = hub.dir().join("policy.toml");
    let mut caller = hub.agent("caller", &[]).await;
    let mut other = hub.agent("other", &[]).await;
    for name in [
        "order.create",
        "order",
        "orders.create",
        "invoices.make",
        "invoice.create",
        "hub.stats",
        "hub.config.reload",
    ] {
        for client in [&mut caller, &mut other] {
            let identity = hub.identity(&client.name).name();
            let (code, told, _) = policy_test(&file, &["--identity", &identity, "--call", name]);
            let id = client.call(name, map! {}, Value::Nil).await;
            let result = client.result(id).await;
            let refused = result.text("status") != "completed" && result.code() == "unauthorized";
            assert_eq!(code, Some(i32::from(refused)), "{identity} {name}: {told} but {result:?}");
            let word = if refused { "deny call " } else { "allow call " };
            assert!(told.starts_with(&format!("{word}{name}: rule ")), "{told}");
        }
    }
    let identity = hub.identity("other").name();
    for (agent, code) in [("other", 0), ("another", 1)] {
        let mut client = hub.connect_with(agent, raw::Format::MsgPack, &hub.identity("other")).await;
        client.hello(&[], map! {}).await;
        let answer = client.envelope("WELCOME or GOODBYE").await;
        assert_eq!(answer.kind == raw::kind::WELCOME, code == 0, "{answer:?}");
        assert_eq!(policy_test(&file, &["--identity", &identity, "--agent", agent]).0, Some(code));
    }
}

#[test]
fn a_broken_policy_or_question_is_no_answer_and_json_is_for_programs() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, POLICY).expect("a policy");
    let (code, told, problem) = policy_test(&file, &["--identity", "a", "--call", "order.create"]);
    assert_eq!((code, told.as_str()), (Some(2), ""));
    assert!(problem.contains("policy.toml:4: rules[1].call: \"*.x\""), "{problem}");
    std::fs::write(&file, POLICY.replace(", \"*.x\"", "")).expect("a policy");
    let (code, _, problem) = policy_test(&file, &["--identity", "a", "--call", "no name"]);
    assert_eq!(code, Some(2));
    assert!(problem.contains("--call \"no name\" has ' '"), "{problem}");
    let questions = ["--identity", "a", "--call", "order.create", "--provide", "x.y", "--json"];
    let (code, told, _) = policy_test(&file, &questions);
    assert_eq!(code, Some(1), "one is denied");
    let lines: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["allowed"], &lines[0]["rule"]), (&true.into(), &2.into()));
    assert_eq!((&lines[1]["wish"], &lines[1]["allowed"]), (&"provide".into(), &false.into()));
}
