//! A hub under a supervisor: the tests play systemd, with a socket to be notified on and sockets to pass.
#![cfg(test)]

#[macro_use]
mod raw;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use raw::{Hub, PATIENCE, certs, hub};

/// `agent-reach serve` in a directory that [`hub::prepared`] made, through a shell that turns its stdin into the sockets of
/// `LISTEN_FDS`: as many as there are names. `more` are further variables.
fn start(dir: &Path, socket: TcpListener, names: &str, more: &[(&str, &str)]) -> Child {
    let passed = names.split(':').count();
    let descriptors: String = (3..3 + passed).map(|number| format!("{number}<&0 ")).collect();
    let script = format!(
        "exec {descriptors}0</dev/null; LISTEN_PID=$$ WATCHDOG_PID=$$ LISTEN_FDS={passed} LISTEN_FDNAMES={names} \
         exec \"$@\""
    );
    let config = dir.join("agent-reach.toml");
    Command::new("sh")
        .args([
            "-c",
            &script,
            "sh",
            env!("CARGO_BIN_EXE_agent-reach"),
            "serve",
            "--config",
            certs::path(&config),
        ])
        .current_dir(dir)
        .envs(more.iter().copied())
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::piped())
        .stderr(File::create(hub::log_path(dir)).unwrap())
        .spawn()
        .unwrap()
}

fn socket() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// What a start with this socket says that has to be refused.
fn refused(config: impl Fn(String) -> String, socket: TcpListener, names: &str) -> String {
    let dir = hub::prepared(hub::OPEN, "");
    let file = dir.path().join("agent-reach.toml");
    std::fs::write(&file, config(std::fs::read_to_string(&file).unwrap())).unwrap();
    let mut child = start(dir.path(), socket, names, &[]);
    // One that serves after all says so, and one that does not ends.
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().unwrap()).read_line(&mut line);
    if !line.is_empty() {
        child.kill().unwrap();
    }
    let (status, log) = (child.wait().unwrap(), hub::log_of(dir.path()));
    assert_eq!((status.code(), read.unwrap()), (Some(1), 0), "{line}{log}");
    log
}

/// The next message to the supervisor.
fn heard(supervisor: &UnixDatagram) -> String {
    let mut message = [0; 1024];
    let length = supervisor.recv(&mut message).expect("a message within the patience of a test");
    String::from_utf8(message[..length].to_vec()).unwrap()
}

#[tokio::test]
async fn a_socket_that_was_passed_takes_the_place_of_an_address() {
    let dir = hub::prepared(hub::OPEN, "");
    let socket = socket();
    let address = socket.local_addr().unwrap();
    let child = start(dir.path(), socket, "agents", &[]);
    let hub = Hub::of(dir, child);
    assert_eq!(hub.agents, address);
    hub.agent("a", &["x"]).await.fence().await;
    // The others are opened as they are configured.
    assert_eq!(raw::http::get(hub.http(), "/readyz").await.status, 200);
}

#[tokio::test]
async fn sockets_for_http_and_metrics_are_taken_too() {
    for (name, path) in [("http", "/readyz"), ("metrics", "/metrics")] {
        let dir = hub::prepared(hub::OPEN, "");
        let socket = socket();
        let address = socket.local_addr().unwrap();
        let child = start(dir.path(), socket, name, &[]);
        let hub = Hub::of(dir, child);
        assert_eq!(if name == "http" { hub.http() } else { hub.metrics() }, address);
        assert_eq!(raw::http::get(address, path).await.status, 200);
    }
}

#[test]
fn a_socket_that_nobody_would_answer_on_is_refused_at_the_start() {
    let same = |config: String| config;
    let log = refused(same, socket(), "agent-reach.socket");
    assert!(log.contains("agent-reach.socket") && log.contains("FileDescriptorName="), "{log}");
    let log = refused(same, socket(), "agents:agents");
    assert!(log.contains("two sockets"), "{log}");
    let without_http = |config: String| config.replace("[http]\nlisten = \"127.0.0.1:0\"\n", "");
    let log = refused(without_http, socket(), "http");
    assert!(log.contains("no section [http]"), "{log}");
}

#[test]
fn plain_http_is_refused_on_a_passed_socket_that_others_can_reach() {
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let log = refused(|config| config, everywhere, "http");
    assert!(log.contains("loopback"), "{log}");
}

#[test]
fn the_supervisor_hears_that_the_hub_serves_lives_and_drains() {
    let dir = hub::prepared(hub::OPEN, "");
    let path = dir.path().join("notify");
    let supervisor = UnixDatagram::bind(&path).unwrap();
    supervisor.set_read_timeout(Some(6 * PATIENCE)).unwrap();
    let told = [("NOTIFY_SOCKET", certs::path(&path)), ("WATCHDOG_USEC", "400000")];
    let child = start(dir.path(), socket(), "agents", &told);
    let mut hub = Hub::of(dir, child);
    assert_eq!(heard(&supervisor), format!("READY=1\nSTATUS=serving wss://{}\n", hub.agents));
    assert_eq!([heard(&supervisor), heard(&supervisor)], ["WATCHDOG=1\n", "WATCHDOG=1\n"]);
    hub.terminate();
    let last = std::iter::repeat_with(|| heard(&supervisor)).find(|message| message != "WATCHDOG=1\n");
    assert_eq!(last.unwrap(), "STOPPING=1\nSTATUS=draining\n");
    assert!(hub.exited().success());
}

#[test]
fn a_supervisor_that_cannot_be_reached_does_not_stop_the_hub() {
    let dir = hub::prepared(hub::OPEN, "");
    let child = start(dir.path(), socket(), "agents", &[("NOTIFY_SOCKET", "/nowhere/notify")]);
    let mut hub = Hub::of(dir, child);
    assert!(hub.log().contains("the supervisor cannot be told how the hub is"), "{}", hub.log());
    hub.terminate();
    assert!(hub.exited().success());
}
