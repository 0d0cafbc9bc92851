//! What tests of the HTTP API share: tokens made by the command, and requests of who has one.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::process::Command;

use crate::raw::http::{Answer, ask};
use crate::raw::{Hub, certs};

/// JSON is what a body is.
pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

/// Makes a token with `agent-reach token add`, and has the hub read it.
pub(crate) async fn token(hub: &Hub, name: &str, role: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-reach"));
    command.args(["token", "add", name, "--role", role, "--config"]).arg(hub.dir().join("agent-reach.toml"));
    let output = command.output().expect("the binary");
    assert!(output.status.success(), "{output:?}");
    reload(hub).await;
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

/// Has the hub read its files, by an operator with a certificate.
pub(crate) async fn reload(hub: &Hub) {
    let mut operator = hub.agent("ops", &[]).await;
    let id = operator.call("hub.config.reload", map! {}, rmpv::Value::Nil).await;
    operator.completed(id).await;
}

/// Takes every token back.
pub(crate) async fn revoke_all(hub: &Hub) {
    std::fs::write(hub.dir().join("tokens.toml"), "version = 1\n").expect("the file");
    reload(hub).await;
}

/// `Authorization` with this token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// `POST /v1/session` with these further lines.
pub(crate) async fn log_in(hub: &Hub, token: &str, lines: &str) -> Answer {
    let body = serde_json::json!({ "token": token }).to_string();
    ask(hub.http(), "POST", "/v1/session", &format!("{JSON}{lines}"), &body).await
}

/// Where a file of this hub's is.
pub(crate) fn file(hub: &Hub, name: &str) -> String {
    certs::path(&hub.dir().join(name)).to_owned()
}
