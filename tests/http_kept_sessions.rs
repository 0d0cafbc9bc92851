//! Sessions of browsers through restarts of the hub: what was open is open, and what was ended is ended.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use http::{bearer, log_in, reload, revoke_all, token};
use raw::http::{ask, get};
use raw::{Hub, hub};

fn store_in(file: &str) -> String {
    format!("[store]\npath = \"{file}\"\n")
}

/// A hub, and where it keeps sessions.
fn world() -> (Hub, PathBuf) {
    let hub = Hub::serve(hub::OPEN, &store_in("hub.db"));
    let file = hub.dir().join("hub.db.sessions");
    (hub, file)
}

/// The status with which a cookie is answered.
async fn status(hub: &Hub, cookie: &str) -> u16 {
    ask(hub.http(), "GET", "/v1/session", &format!("Cookie: {cookie}\r\n"), "").await.status
}

async fn log_out(hub: &Hub, cookie: &str) {
    let lines = format!("Cookie: {cookie}\r\nOrigin: http://{}\r\n", hub.http());
    assert_eq!(ask(hub.http(), "DELETE", "/v1/session", &lines, "").await.status, 204);
}

#[tokio::test]
async fn a_session_outlives_a_kill_of_the_hub_and_one_that_was_ended_does_not_come_back() {
    let (mut hub, file) = world();
    let eve = token(&hub, "eve", "viewer").await;
    let open = log_in(&hub, &eve, "").await.cookie();
    let ended = log_in(&hub, &eve, "").await.cookie();
    log_out(&hub, &ended).await;
    hub.kill_and_start_again();
    assert_eq!((status(&hub, &open).await, status(&hub, &ended).await), (200, 401));
    let who = ask(hub.http(), "GET", "/v1/session", &format!("Cookie: {open}\r\n"), "").await.json();
    assert_eq!(who, serde_json::json!({"identity": "token:eve", "agent_id": "eve", "role": "viewer"}));
    log_out(&hub, &open).await;
    hub.kill_and_start_again();
    assert_eq!(status(&hub, &open).await, 401);
    let text = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[tokio::test]
async fn the_file_has_hashes_alone_and_is_its_owners() {
    let (hub, file) = world();
    let eve = token(&hub, "eve", "viewer").await;
    let cookie = log_in(&hub, &eve, "").await.cookie();
    let text = std::fs::read_to_string(&file).expect("the file");
    let (_, value) = cookie.split_once('=').expect("a cookie");
    let (_, secret) = eve.split_once('.').expect("a token");
    assert!(text.ends_with(" eve\n") && !text.contains(value) && !text.contains(secret), "{text}");
    assert!(!text.contains("argon2"), "{text}");
    let mode = std::fs::metadata(&file).expect("the file").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600);
}

#[tokio::test]
async fn what_happened_to_a_token_while_the_hub_was_down_counts_for_its_sessions() {
    let (mut hub, _) = world();
    let mut cookies = Vec::new();
    for name in ["stays", "gone", "anew"] {
        cookies.push(log_in(&hub, &token(&hub, name, "viewer").await, "").await.cookie());
    }
    let tokens = hub.dir().join("tokens.toml");
    let text = std::fs::read_to_string(&tokens).expect("the tokens");
    let other = Hub::serve(hub::OPEN, "");
    token(&other, "anew", "viewer").await;
    let anew = std::fs::read_to_string(other.dir().join("tokens.toml")).expect("the tokens");
    let section = |text: &str, name: &str| {
        let start = text.find(&format!("[tokens.{name}]")).expect("a section");
        let section: Vec<&str> = text[start..].lines().take(3).collect();
        section.join("\n")
    };
    let left = format!("version = 1\n{}\n{}\n", section(&text, "stays"), section(&anew, "anew"));
    hub.terminate();
    hub.exited();
    std::fs::write(&tokens, left).expect("the tokens");
    hub.start_again();
    let [stays, gone, anew] = &cookies[..] else { panic!("three") };
    assert_eq!(status(&hub, stays).await, 200, "{}", hub.log());
    assert_eq!((status(&hub, gone).await, status(&hub, anew).await), (401, 401));
}

#[tokio::test]
async fn a_token_that_was_taken_back_and_given_again_has_no_session_from_before() {
    let (mut hub, _) = world();
    let eve = token(&hub, "eve", "viewer").await;
    let cookie = log_in(&hub, &eve, "").await.cookie();
    let tokens = hub.dir().join("tokens.toml");
    let text = std::fs::read_to_string(&tokens).expect("the tokens");
    revoke_all(&hub).await;
    std::fs::write(&tokens, text).expect("the tokens");
    reload(&hub).await;
    assert_eq!(ask(hub.http(), "GET", "/v1/session", &bearer(&eve), "").await.status, 200, "it counts again");
    hub.terminate();
    hub.exited();
    hub.start_again();
    assert_eq!(status(&hub, &cookie).await, 401);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_and_a_log_in_replaces_it() {
    let (mut hub, file) = world();
    let eve = token(&hub, "eve", "viewer").await;
    let cookie = log_in(&hub, &eve, "").await.cookie();
    let good = std::fs::read_to_string(&file).expect("the file");
    let shown = file.display();
    for (text, mode, told) in [
        (format!("{good}nonsense\n"), 0o600, format!("{shown}:3: is no session")),
        (good.clone(), 0o644, format!("{shown}: others may use it (mode 0644); it has to have mode 0600")),
        ("SQLite format 3".to_owned(), 0o600, format!("{shown}:1: is no file of sessions")),
    ] {
        hub.terminate();
        hub.exited();
        std::fs::write(&file, text).expect("the file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("its mode");
        hub.start_again();
        let log = hub.log();
        assert!(log.contains("sessions of browsers begin anew") && log.contains(&told), "{told} in {log}");
        assert_eq!(status(&hub, &cookie).await, 401);
        let again = log_in(&hub, &eve, "").await.cookie();
        assert_eq!(status(&hub, &again).await, 200);
        let mode = std::fs::metadata(&file).expect("the file").permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600);
    }
}

#[tokio::test]
async fn who_logs_in_is_let_in_where_sessions_cannot_be_written() {
    let hub = Hub::serve_in(hub::OPEN, &store_in("hub.db"), |dir| {
        std::fs::create_dir_all(dir.join("hub.db.sessions/in-the-way")).expect("a folder");
    });
    let cookie = log_in(&hub, &token(&hub, "eve", "viewer").await, "").await.cookie();
    assert_eq!(status(&hub, &cookie).await, 200);
    let log = hub.log();
    assert!(log.contains("hub.db.sessions: is no file, or a link to one"), "{log}");
    assert!(log.contains("sessions of browsers cannot be written"), "{log}");
    assert!(get(hub.http(), "/readyz").await.status == 200, "everything else goes on");
}

#[tokio::test]
async fn the_link_of_dev_is_the_processs_own_and_the_session_it_opened_is_not() {
    let mut hub = Hub::dev();
    let link = |hub: &Hub| {
        let link = hub.ready["console"].as_str().expect("a link").to_owned();
        link.split_once("/?").map(|(_, query)| format!("/?{query}")).expect("a token")
    };
    let first = link(&hub);
    let opened = get(hub.http(), &first).await;
    assert_eq!(opened.status, 303, "{opened:?}");
    hub.kill_and_start_again();
    assert_eq!(status(&hub, &opened.cookie()).await, 200);
    assert_eq!(get(hub.http(), &first).await.status, 401, "it was used, by another process");
    let unused = link(&hub);
    assert_ne!(unused, first);
    hub.kill_and_start_again();
    assert_eq!(get(hub.http(), &unused).await.status, 401, "of a process that is gone");
    assert_eq!(get(hub.http(), &link(&hub)).await.status, 303);
}
