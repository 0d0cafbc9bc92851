//! Runs the Autobahn|Testsuite against the connections of the hub: `autobahn WSTEST DIR` serves an echo behind
//! them, plain and over TLS, lets `WSTEST` (the suite's command) try every case on both, and judges its report,
//! which is in `DIR` then. Fails when a case ended as docs/websocket.md does not say.
#![expect(clippy::print_stdout, reason = "a program for people")]

mod echo;
mod report;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use agent_reach::certs;
use agent_reach::transport::tls::http_server_config;
use agent_reach::transport::tls_stream::TlsStream;
use agent_reach::transport::trust::Trust;
use agent_reach::transport::wire::Plain;
use agent_reach_protocol::limits::{CONNECT_PATH, SUBPROTOCOL_MSGPACK};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const LOCAL: (&str, u16) = ("127.0.0.1", 0);

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(wstest), Some(dir)) = (arguments.next(), arguments.next()) else {
        return Err("autobahn WSTEST DIR [CASE ...]".into());
    };
    let mut cases: Vec<_> = arguments.map(|case| case.to_string_lossy().into_owned()).collect();
    let at_least = if cases.is_empty() { report::ALL } else { 1 };
    if cases.is_empty() {
        cases.push("*".to_owned());
    }
    let dir = PathBuf::from(dir);
    std::fs::create_dir_all(&dir)?;

    let plain = TcpListener::bind(LOCAL).await?;
    let over_tls = TcpListener::bind(LOCAL).await?;
    let servers = [server("plain", "ws", &plain)?, server("tls", "wss", &over_tls)?];
    tokio::spawn(serve_plain(plain));
    tokio::spawn(serve_tls(over_tls)?);

    let spec = dir.join("fuzzingclient.json");
    let outdir = dir.join("report");
    let wanted = json!({ "outdir": outdir, "servers": servers, "cases": cases });
    std::fs::write(&spec, serde_json::to_vec_pretty(&wanted)?)?;
    let suite = move || Command::new(wstest).args(["--mode", "fuzzingclient", "--spec"]).arg(spec).status();
    let status = tokio::task::spawn_blocking(suite).await??;
    if !status.success() {
        return Err(format!("the suite itself failed: {status}").into());
    }
    judge(&outdir, servers.len(), at_least)
}

/// How the suite finds one of ours.
fn server(name: &str, scheme: &str, listener: &TcpListener) -> std::io::Result<Value> {
    let url = format!("{scheme}://{}{CONNECT_PATH}", listener.local_addr()?);
    Ok(json!({ "agent": name, "url": url, "protocols": [SUBPROTOCOL_MSGPACK] }))
}

async fn serve_plain(listener: TcpListener) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(async move { echo::serve(Plain::new(socket)).await });
    }
}

/// The suite has no certificate to show, so none is asked for. The stream is the hub's all the same.
fn serve_tls(listener: TcpListener) -> Result<impl Future<Output = ()>, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let issued = certs::init(dir.path(), &["IP:127.0.0.1".to_owned()])?;
    let trust = Trust::of_anybody(http_server_config(&issued.cert, &issued.key)?);
    let places = Arc::new(Semaphore::new(1));
    Ok(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (trust, places) = (Arc::clone(&trust), Arc::clone(&places));
            tokio::spawn(async move {
                match TlsStream::accept(socket, &trust, &[&places]).await {
                    Ok(stream) => echo::serve(stream).await,
                    Err(error) => println!("a TLS handshake failed: {error}"),
                }
            });
        }
    })
}

fn judge(outdir: &Path, servers: usize, at_least: usize) -> Result<ExitCode, Box<dyn Error>> {
    let index = serde_json::from_slice(&std::fs::read(outdir.join("index.json"))?)?;
    let report::Verdict { counts, unexpected } = report::judge(&index, servers, at_least)?;
    for ((server, behavior), count) in counts {
        println!("{server:<6} {behavior:<16} {count}");
    }
    for case in &unexpected {
        println!("unexpected: {case}");
    }
    Ok(if unexpected.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
