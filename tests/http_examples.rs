//! The commands of docs/http.md, run by the real curl against a real hub with an agent.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use http::token;
use raw::{Hub, RawClient, hub, kind, within};
use rmpv::Value;
use tokio::process::Command;

/// Where the page says that a hub is.
const WRITTEN: &str = "http://127.0.0.1:7080";
/// What stands there for something that is another one each time.
const ANY: &str = "…";
/// The statuses with which the page's commands are answered, in its order.
const STATUSES: [u16; 9] = [200, 200, 202, 200, 200, 404, 204, 200, 204];

/// A command, and what the page shows of its answer.
#[derive(Debug, Default)]
struct Example {
    command: String,
    shown: String,
}

/// All of a page: indented lines, of which one that begins with `curl` begins an example and goes on behind a backslash.
fn examples(page: &str) -> Vec<Example> {
    let mut all: Vec<Example> = Vec::new();
    let (mut goes_on, mut is_open) = (false, false);
    for line in page.lines() {
        let Some(code) = line.strip_prefix("    ") else {
            // An empty line is within an example as long as indented ones follow it.
            is_open = is_open && line.is_empty();
            continue;
        };
        if code.starts_with("curl ") {
            all.push(Example::default());
            (goes_on, is_open) = (true, true);
        }
        let Some(example) = all.last_mut().filter(|_| is_open) else { continue };
        if goes_on {
            let part = code.trim().strip_suffix('\\');
            example.command.push_str(part.unwrap_or(code.trim()));
            goes_on = part.is_some();
        } else {
            example.shown.push_str(code);
            example.shown.push('\n');
        }
    }
    all
}

/// Answers every call, as the agent of the page's examples does.
async fn work(mut agent: RawClient) {
    loop {
        let call = agent.envelope("a call").await;
        if call.kind != kind::CALL {
            continue;
        }
        agent.accept(&call).await;
        match call.text("capability") {
            "text.upper" => agent.complete(&call, map! {"text" => "HELLO"}).await,
            "text.words" => {
                agent.chunk(&call, 0, Value::from("hello")).await;
                agent.complete(&call, Value::Nil).await;
            }
            _ => agent.complete(&call, Value::from("made")).await,
        }
    }
}

/// The documents of an answer: each with the name of its event, if it is a stream.
fn documents(text: &str) -> Vec<(String, serde_json::Value)> {
    let mut name = String::new();
    let mut all = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.to_owned();
            continue;
        }
        let data = line.strip_prefix("data: ").unwrap_or(line);
        all.push((
            name.clone(),
            serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")),
        ));
    }
    all
}

/// Whether an answer has the shape that is shown: the same keys, and the same words where they are not other ones each time.
fn is_like(shown: &serde_json::Value, answer: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Bool, Null, Number, Object, String};
    match (shown, answer) {
        (String(shown), String(_)) if shown == ANY => true,
        (Object(shown), Object(answer)) => {
            shown.len() == answer.len()
                && shown.iter().all(|(key, shown)| answer.get(key).is_some_and(|own| is_like(shown, own)))
        }
        (Number(_), Number(_)) => true,
        (Null | Bool(_) | String(_) | Array(_) | Object(_) | Number(_), _) => shown == answer,
    }
}

#[tokio::test]
async fn every_command_of_the_page_is_answered_as_it_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/http.md");
    let examples = examples(&std::fs::read_to_string(page).expect("the page"));
    assert_eq!(examples.len(), STATUSES.len(), "{examples:#?}");
    let hub = Hub::serve(hub::OPEN, "");
    let token = token(&hub, "alice", "operator").await;
    let agent = hub.agent("writer", &["text.upper", "text.words", "report.make"]).await;
    let work = tokio::spawn(work(agent));
    let mut task = String::new();
    for (Example { command, shown }, status) in examples.iter().zip(STATUSES) {
        let own = command.replace(WRITTEN, &format!("http://{}", hub.http()));
        let own = own.replacen("curl ", "curl --silent --show-error --write-out '\n%{http_code}' ", 1);
        let mut shell = Command::new("sh");
        shell.args(["-c", &own]).env("TOKEN", &token).env("TASK", &task).current_dir(hub.dir());
        let output = within(command, shell.kill_on_drop(true).output()).await.expect("a shell");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let (answer, code) = text.rsplit_once('\n').expect("a status");
        assert_eq!(code, status.to_string(), "{command}: {answer}");
        if command.contains("respond-async") {
            let (_, stored) = documents(answer).remove(0);
            stored["task_id"].as_str().expect("a task").clone_into(&mut task);
        }
        let (expected, told) =
            (documents(shown), if shown.is_empty() { Vec::new() } else { documents(answer) });
        assert_eq!(expected.len(), told.len(), "{command}: {answer}");
        for ((name, shown), (event, answer)) in expected.iter().zip(&told) {
            assert_eq!(name, event, "{command}");
            assert!(is_like(shown, answer), "{command}: the page shows {shown}, and there came {answer}");
        }
    }
    work.abort();
}

#[test]
fn what_differs_from_what_is_shown_is_found() {
    let like = |shown: &str, answer: &str| {
        is_like(&serde_json::from_str(shown).expect("JSON"), &serde_json::from_str(answer).expect("JSON"))
    };
    assert!(like(r#"{"a": "…", "n": 1}"#, r#"{"a": "x", "n": 7}"#));
    for answer in [
        r#"{"a": "x"}"#,
        r#"{"a": "x", "n": 7, "more": 1}"#,
        r#"{"a": 1, "n": 7}"#,
        r#"{"a": "x", "n": "7"}"#,
    ] {
        assert!(!like(r#"{"a": "…", "n": 1}"#, answer), "{answer}");
    }
    assert!(!like(r#"{"a": "HELLO"}"#, r#"{"a": "hello"}"#));
    let found = examples(
        "text\n\n    curl a \\\n        b\n    {\"x\": 1}\n\n    more\n\ntext\n    other\n    curl c\n",
    );
    let told: Vec<_> =
        found.iter().map(|example| (example.command.as_str(), example.shown.as_str())).collect();
    assert_eq!(told, [("curl a b", "{\"x\": 1}\nmore\n"), ("curl c", "")]);
}
