//! Sessions of browsers: a token becomes a cookie, which pages of other origins cannot use, and ends with its token.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use http::{bearer, log_in, revoke_all, token};
use raw::http::{Answer, ask, get};
use raw::{Hub, hub, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A request with a cookie and further lines.
async fn with(hub: &Hub, method: &str, path: &str, cookie: &str, lines: &str) -> Answer {
    ask(hub.http(), method, path, &format!("Cookie: {cookie}\r\n{lines}"), "").await
}

fn own_origin(hub: &Hub) -> String {
    format!("Origin: http://{}\r\n", hub.http())
}

/// A request for a WebSocket: the status of its answer.
async fn upgrade(hub: &Hub, lines: &str) -> u16 {
    open(hub, lines).await.0
}

/// The same, with what it has become.
async fn open(hub: &Hub, lines: &str) -> (u16, TcpStream) {
    within("an answer", async {
        let mut socket = TcpStream::connect(hub.http()).await.expect("a connection");
        let request = format!(
            "GET /v1/connect HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: agent-reach.v1.json\r\n{lines}\r\n",
            hub.http()
        );
        socket.write_all(request.as_bytes()).await.expect("sent");
        let mut head = vec![0; 1024];
        let read = socket.read(&mut head).await.expect("an answer");
        (raw::http::status(&String::from_utf8_lossy(&head[..read])), socket)
    })
    .await
}

#[tokio::test]
async fn a_token_is_shown_once_and_the_cookie_says_who_it_is() {
    let hub = Hub::serve(hub::OPEN, "");
    let eve = token(&hub, "eve", "viewer").await;
    let opened = log_in(&hub, &eve, "").await;
    assert_eq!((opened.status, opened.body.as_str()), (204, ""), "{opened:?}");
    let set = opened.field("set-cookie").expect("a cookie");
    assert!(set.starts_with("agent_reach_session="), "{set}");
    let mut attributes: Vec<&str> = set.split("; ").skip(1).collect();
    attributes.sort_unstable();
    assert_eq!(attributes, ["HttpOnly", "Max-Age=43200", "Path=/", "SameSite=Strict"]);
    let cookie = opened.cookie();
    assert!(cookie.len() >= "agent_reach_session=".len() + 43, "256 bits: {cookie}");
    let who = serde_json::json!({"identity": "token:eve", "agent_id": "eve", "role": "viewer"});
    assert_eq!(with(&hub, "GET", "/v1/session", &cookie, "").await.json(), who);
    assert_eq!(ask(hub.http(), "GET", "/v1/session", &bearer(&eve), "").await.json(), who);
    assert_eq!(upgrade(&hub, &format!("Cookie: {cookie}\r\n{}", own_origin(&hub))).await, 101);
    assert!(!hub.log().contains(&eve) && !hub.log().contains(&cookie), "neither is in a log");
}

#[tokio::test]
async fn a_session_that_was_ended_is_ended() {
    let hub = Hub::serve(hub::OPEN, "");
    let cookie = log_in(&hub, &token(&hub, "eve", "viewer").await, "").await.cookie();
    let closed = with(&hub, "DELETE", "/v1/session", &cookie, &own_origin(&hub)).await;
    assert_eq!(closed.status, 204, "{closed:?}");
    assert!(closed.field("set-cookie").is_some_and(|set| set.contains("Max-Age=0")), "{closed:?}");
    let after = with(&hub, "GET", "/v1/session", &cookie, "").await;
    assert_eq!((after.status, after.code().as_str()), (401, "unauthorized"));
    let again = with(&hub, "DELETE", "/v1/session", &cookie, &own_origin(&hub)).await;
    assert_eq!(again.status, 401, "nobody is known any more: {again:?}");
}

#[tokio::test]
async fn who_logs_out_has_no_connection_left_and_other_sessions_of_the_token_keep_theirs() {
    let hub = Hub::serve(hub::OPEN, "");
    let eve = token(&hub, "eve", "viewer").await;
    let (out, stays) = (log_in(&hub, &eve, "").await.cookie(), log_in(&hub, &eve, "").await.cookie());
    let lines = |cookie: &str| format!("Cookie: {cookie}\r\n{}", own_origin(&hub));
    let (ended, mut socket) = open(&hub, &lines(&out)).await;
    let (kept, mut other) = open(&hub, &lines(&stays)).await;
    assert_eq!((ended, kept), (101, 101));
    assert_eq!(with(&hub, "DELETE", "/v1/session", &out, &own_origin(&hub)).await.status, 204);
    let mut told = Vec::new();
    within("the end", socket.read_to_end(&mut told)).await.expect("closed in order");
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("credentials_expired"), "{told}");
    // A ping, masked with zeros, and its pong.
    other.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await.expect("sent");
    let mut pong = [0; 2];
    within("a pong", other.read_exact(&mut pong)).await.expect("an answer");
    assert_eq!(pong, [0x8a, 0]);
}

#[tokio::test]
async fn a_reload_ends_the_sessions_of_a_token_that_is_gone() {
    let hub = Hub::serve(hub::OPEN, "");
    let eve = token(&hub, "eve", "viewer").await;
    let cookie = log_in(&hub, &eve, "").await.cookie();
    token(&hub, "other", "viewer").await;
    assert_eq!(with(&hub, "GET", "/v1/session", &cookie, "").await.status, 200, "others change nothing");
    revoke_all(&hub).await;
    assert_eq!(with(&hub, "GET", "/v1/session", &cookie, "").await.status, 401);
    assert_eq!(upgrade(&hub, &format!("Cookie: {cookie}\r\n{}", own_origin(&hub))).await, 401);
    assert_eq!(log_in(&hub, &eve, "").await.status, 401);
}

#[tokio::test]
async fn a_reload_ends_the_sessions_of_a_token_that_is_for_something_else_now() {
    let hub = Hub::serve(hub::OPEN, "");
    let cookie = log_in(&hub, &token(&hub, "eve", "operator").await, "").await.cookie();
    let file = hub.dir().join("tokens.toml");
    let text = std::fs::read_to_string(&file).expect("the file").replace("operator", "viewer");
    std::fs::write(&file, text).expect("the file");
    http::reload(&hub).await;
    assert_eq!(with(&hub, "GET", "/v1/session", &cookie, "").await.status, 401);
}

#[tokio::test]
async fn a_cookie_changes_nothing_for_a_page_of_another_origin_or_of_none() {
    let hub = Hub::serve(hub::OPEN, "");
    let cookie = log_in(&hub, &token(&hub, "eve", "viewer").await, "").await.cookie();
    let port = hub.http().port();
    for (lines, status) in [
        (String::new(), 403),
        ("Origin: https://evil.example\r\n".to_owned(), 403),
        ("Origin: null\r\n".to_owned(), 403),
        (format!("Origin: http://127.0.0.1:{}\r\n", port ^ 1), 403),
        ("Sec-Fetch-Site: same-site\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: cross-site\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: same-origin\r\n".to_owned(), 204),
    ] {
        let answer = with(&hub, "DELETE", "/v1/session", &cookie, &lines).await;
        assert_eq!(answer.status, status, "{lines} {answer:?}");
    }
    let eve = log_in(&hub, &token(&hub, "second", "viewer").await, "").await.cookie();
    for (lines, status) in
        [("", 403), ("Origin: https://evil.example\r\n", 403), ("Sec-Fetch-Site: same-site\r\n", 403)]
    {
        assert_eq!(upgrade(&hub, &format!("Cookie: {eve}\r\n{lines}")).await, status, "{lines}");
    }
    let read = with(&hub, "GET", "/v1/session", &eve, "Origin: https://evil.example\r\n").await;
    assert_eq!(read.status, 403, "reading neither: {read:?}");
}

#[tokio::test]
async fn no_page_of_another_origin_can_log_its_visitor_in() {
    let hub = Hub::serve(hub::OPEN, "");
    let eve = token(&hub, "eve", "viewer").await;
    let foreign = log_in(&hub, &eve, "Origin: https://evil.example\r\n").await;
    assert_eq!((foreign.status, foreign.field("set-cookie")), (403, None));
    let body = serde_json::json!({ "token": eve }).to_string();
    let form = ask(hub.http(), "POST", "/v1/session", "Content-Type: text/plain\r\n", &body).await;
    assert_eq!(form.status, 415, "what a form can send is not taken: {form:?}");
}

#[tokio::test]
async fn a_bearer_that_is_wrong_is_not_helped_by_a_cookie_and_two_cookies_are_none() {
    let hub = Hub::serve(hub::OPEN, "");
    let eve = token(&hub, "eve", "viewer").await;
    let cookie = log_in(&hub, &eve, "").await.cookie();
    assert_eq!(with(&hub, "GET", "/v1/session", &cookie, &bearer("eve.wrong")).await.status, 401);
    assert_eq!(with(&hub, "GET", "/v1/session", &cookie, "Authorization: Basic eve\r\n").await.status, 401);
    let two = format!("{cookie}; agent_reach_session=planted");
    assert_eq!(with(&hub, "GET", "/v1/session", &two, "").await.status, 401);
    assert_eq!(with(&hub, "GET", "/v1/session", &format!("a=b; {cookie}; c=d"), "").await.status, 200);
}

#[tokio::test]
async fn too_many_wrong_tokens_are_answered_with_the_time_to_wait() {
    let hub = Hub::serve(hub::OPEN, "");
    let eve = token(&hub, "eve", "viewer").await;
    assert_eq!(ask(hub.http(), "GET", "/v1/session", &bearer(&eve), "").await.status, 200);
    for _ in 0..10 {
        assert_eq!(log_in(&hub, "eve.wrong", "").await.status, 401);
    }
    let refused = log_in(&hub, &eve, "").await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limited"));
    let seconds: u64 = refused.field("retry-after").expect("a time").parse().expect("seconds");
    assert!((1..=60).contains(&seconds), "{seconds}");
    let other = ask(hub.http(), "GET", "/v1/session", &bearer("eve.other"), "").await;
    assert_eq!(other.status, 429, "a bearer is no way around it");
    let known = ask(hub.http(), "GET", "/v1/session", &bearer(&eve), "").await;
    assert_eq!(known.status, 200, "who is known already goes on");
}

#[tokio::test]
async fn a_login_that_cannot_be_read_is_told_so() {
    let hub = Hub::serve(hub::OPEN, "");
    for (body, status, code) in [
        ("{}", 422, "invalid_request"),
        ("[", 422, "invalid_request"),
        (r#"{"token": 1}"#, 422, "invalid_request"),
        (r#"{"token": "a.b", "other": 1}"#, 422, "invalid_request"),
    ] {
        let answer = ask(hub.http(), "POST", "/v1/session", http::JSON, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{body}");
    }
    let long = format!("{{\"token\": \"{}\"}}", "x".repeat(5000));
    let answer = ask(hub.http(), "POST", "/v1/session", http::JSON, &long).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "payload_too_large"));
}

#[tokio::test]
async fn the_link_of_dev_is_good_for_one_session_and_stands_in_no_file() {
    let hub = Hub::dev();
    let link = hub.ready["console"].as_str().expect("a link");
    let path = link.strip_prefix(&format!("http://{}", hub.http())).expect("an address of this hub");
    let secret = path.strip_prefix("/?token=").expect("a token");
    for file in walk(hub.dir()) {
        let text = String::from_utf8_lossy(&std::fs::read(&file).expect("a file")).into_owned();
        assert!(!text.contains(secret), "{}", file.display());
    }
    // What a browser or a mail scanner does with an address before anybody opens it.
    assert_eq!(ask(hub.http(), "HEAD", path, "", "").await.field("set-cookie"), None);
    for lines in ["Sec-Fetch-Dest: image\r\n", "Sec-Purpose: prefetch\r\n"] {
        assert_eq!(ask(hub.http(), "GET", path, lines, "").await.status, 403, "{lines}");
    }
    assert_eq!(ask(hub.http(), "GET", "/v1/session", &bearer(secret), "").await.status, 401, "no bearer");
    let address = format!("/v1/session?token={secret}");
    assert_eq!(get(hub.http(), &address).await.status, 401, "in no other address");

    let opened = get(hub.http(), path).await;
    assert_eq!((opened.status, opened.field("location")), (303, Some("/")), "{opened:?}");
    assert_eq!(opened.field("referrer-policy"), Some("no-referrer"));
    assert_eq!(opened.field("cache-control"), Some("no-store"));
    let who = with(&hub, "GET", "/v1/session", &opened.cookie(), "").await.json();
    assert_eq!(who, serde_json::json!({"identity": "token:dev", "agent_id": "dev", "role": "operator"}));

    let stolen = get(hub.http(), path).await;
    assert_eq!((stolen.status, stolen.field("set-cookie")), (401, None), "{stolen:?}");
    assert_eq!(log_in(&hub, secret, "").await.status, 401);
}

#[tokio::test]
async fn a_token_of_the_file_in_the_address_becomes_a_session_too() {
    let hub = Hub::serve(hub::OPEN, "");
    let eve = token(&hub, "eve", "viewer").await;
    assert_eq!(hub.ready["console"], format!("http://{}/", hub.http()), "serve has no link");
    for _ in 0..2 {
        let opened = get(hub.http(), &format!("/?token={eve}")).await;
        assert_eq!(opened.status, 303, "{opened:?}");
        assert_eq!(with(&hub, "GET", "/v1/session", &opened.cookie(), "").await.status, 200);
    }
    let wrong = get(hub.http(), "/?token=eve.wrong").await;
    assert_eq!((wrong.status, wrong.field("set-cookie")), (401, None));
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
