//! Tokens: made by the command, shown on the HTTP listener, and revoked while the hub runs.
#![cfg(test)]

#[macro_use]
mod raw;

use std::process::Command;
use std::time::Duration;

use agent_reach_sdk::{Agent, CloseReason, Code, ConnectError, ErrorCode};
use raw::{Hub, hub, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// `agent-reach token add NAME --role ROLE`: exit code, stdout, stderr.
fn add(hub: &Hub, name: &str, role: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-reach"));
    command.args(["token", "add", name, "--role", role, "--config"]).arg(hub.dir().join("agent-reach.toml"));
    let output = command.output().expect("the binary");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn token(hub: &Hub, name: &str, role: &str) -> String {
    let (code, told, problem) = add(hub, name, role);
    assert_eq!((code, problem.as_str()), (Some(0), ""));
    told.trim().to_owned()
}

async fn connect(hub: &Hub, name: &str, token: &str) -> Result<Agent, ConnectError> {
    let builder = Agent::builder(format!("ws://{}", hub.http()), name).token(token);
    within("a session or a refusal", builder.connect_timeout(Duration::from_secs(4)).connect()).await
}

/// Has the hub read its files, by an operator with a certificate.
async fn reload(hub: &Hub) {
    let mut operator = hub.agent("ops", &[]).await;
    let id = operator.call("hub.config.reload", map! {}, rmpv::Value::Nil).await;
    operator.completed(id).await;
}

/// What a request for a WebSocket gets with these further lines: the head of the answer.
async fn asked(hub: &Hub, lines: &str) -> String {
    within("an answer", async {
        let mut socket = tokio::net::TcpStream::connect(hub.http()).await.expect("a connection");
        let request = format!(
            "GET /v1/connect HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: agent-reach.v1.json\r\n{lines}\r\n",
            hub.http()
        );
        socket.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = vec![0; 4096];
        let read = socket.read(&mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer[..read]).into_owned()
    })
    .await
}

#[tokio::test]
async fn an_operators_token_calls_everything_and_a_viewers_only_reads() {
    let hub = Hub::serve(hub::OPEN, "");
    let (alice, eve) = (token(&hub, "alice", "operator"), token(&hub, "eve", "viewer"));
    reload(&hub).await;
    let mut provider = hub.agent("provider", &["x"]).await;
    let alice = connect(&hub, "alice", &alice).await.expect("a session");
    let eve = connect(&hub, "eve", &eve).await.expect("a session");
    let (answer, _) = tokio::join!(alice.call::<u64>("x", 21), provider.echo());
    assert_eq!(answer.expect("a result"), 21);
    assert!(eve.agents().await.expect("the list").iter().any(|agent| agent.agent_id == "alice"));
    for name in ["x", "hub.config.reload", "hub.agents.disconnect"] {
        let refused = eve.call::<()>(name, ()).await.expect_err("not a viewer's");
        assert_eq!(refused.code, Code::Known(ErrorCode::Unauthorized), "{name}");
    }
}

#[tokio::test]
async fn who_has_no_token_of_this_hub_gets_401_and_a_page_of_another_origin_403() {
    let hub = Hub::serve(hub::OPEN, "");
    let alice = token(&hub, "alice", "operator");
    reload(&hub).await;
    for (lines, status) in [
        (String::new(), 401),
        ("Authorization: Bearer alice.wrong\r\n".to_owned(), 401),
        (format!("Authorization: Basic {alice}\r\n"), 401),
        (format!("Authorization: Bearer {alice}\r\nOrigin: https://evil.example\r\n"), 403),
        (format!("Authorization: Bearer {alice}\r\nOrigin: null\r\n"), 403),
        (format!("Authorization: Bearer {alice}\r\nOrigin: http://{}\r\n", hub.http()), 101),
        (format!("Authorization: Bearer {alice}\r\n"), 101),
    ] {
        let answer = asked(&hub, &lines).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{lines} {answer}");
        let challenged = answer.to_ascii_lowercase().contains("www-authenticate: bearer");
        assert_eq!(challenged, status == 401, "{answer}");
    }
    let page = raw::http::get(hub.metrics(), "/metrics").await.body;
    assert!(page.contains("agent_reach_auth_failures_total{reason=\"token\"} 1\n"), "a wrong one is counted");
    assert!(!hub.log().contains(&alice), "a token is in no log");
}

#[tokio::test]
async fn a_token_whose_section_is_gone_is_ended_and_comes_back_no_more() {
    let hub = Hub::serve(hub::OPEN, "");
    let alice = token(&hub, "alice", "operator");
    reload(&hub).await;
    let agent = connect(&hub, "alice", &alice).await.expect("a session");
    std::fs::write(hub.dir().join("tokens.toml"), "version = 1\n").expect("the file");
    reload(&hub).await;
    let end = within("the end of the session", agent.closed()).await;
    assert!(matches!(&end, CloseReason::Goodbye { code, .. } if code == "unauthorized"), "{end:?}");
    assert!(asked(&hub, &format!("Authorization: Bearer {alice}\r\n")).await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn a_token_is_its_own_agent_and_no_other() {
    let hub = Hub::serve(hub::OPEN, "");
    let alice = token(&hub, "alice", "operator");
    reload(&hub).await;
    let refused = connect(&hub, "provider", &alice).await.expect_err("another's name");
    assert!(matches!(&refused, ConnectError::Refused { code, .. } if code == "unauthorized"), "{refused:?}");
}

#[test]
fn a_token_is_printed_once_and_a_second_one_of_a_name_refused() {
    let hub = Hub::serve(hub::OPEN, "");
    let alice = token(&hub, "alice", "viewer");
    let (code, told, problem) = add(&hub, "alice", "operator");
    assert_eq!((code, told.as_str()), (Some(1), ""));
    assert!(problem.contains("has a token already"), "{problem}");
    let file = std::fs::read_to_string(hub.dir().join("tokens.toml")).expect("the file");
    assert!(!file.contains(alice.split_once('.').expect("NAME.SECRET").1), "{file}");
}
