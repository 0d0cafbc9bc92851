//! How client commands find a hub, prove who they are, and end.
//!
//! An `agent_id` is connected only once: the newest wins. So with the directory of `dev` every command takes a
//! name of its own, and with a certificate the name that is in it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use agent_reach_sdk::{Agent, AgentBuilder, CallError, ConnectError, Tls};
use clap::Args;
use rmpv::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::http::Uri;

use super::dev;
use super::serve::Signals;
use crate::certs;
use crate::transport::{identity, pem, tls};

/// The command did what was asked.
pub(super) const DONE: u8 = 0;
/// The call failed.
pub(super) const FAILED: u8 = 1;
/// The arguments cannot be used.
pub(super) const USAGE: u8 = 2;
/// There is no hub, or it refuses this command.
pub(super) const NO_HUB: u8 = 3;

/// How long a hub may take to welcome a command.
const CONNECT: Duration = Duration::from_secs(5);
/// After so long without an answer it is asked whether anybody listens at all.
const PROBE_AFTER: Duration = Duration::from_millis(300);
/// How long the farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Which hub, and with what certificate.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Hub (else that of `dev` or `demo` in this directory)")]
pub struct HubArgs {
    /// Address, like wss://hub.example:7443 [or AGENT_REACH_HUB]
    #[arg(long, value_name = "URL")]
    pub hub: Option<String>,
    /// Certificate of this caller; the name in it is its agent_id [or AGENT_REACH_CERT]
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate [or AGENT_REACH_KEY]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The authority that certified the hub [or AGENT_REACH_CA]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Directory of a hub that `dev` or `demo` runs [default: .agent-reach]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cert", "key", "ca"])]
    pub dir: Option<PathBuf>,
}

/// Why a command has no hub.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoHub {
    /// What was given cannot be used.
    Usage(String),
    /// What was given leads nowhere.
    Connect(String),
}

impl NoHub {
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Connect(_) => NO_HUB,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Usage(text) | Self::Connect(text) => text,
        }
    }
}

/// Who a command is at the hub.
#[derive(Clone, Copy)]
pub(super) enum Name<'a> {
    /// As it was asked for.
    Given(&'a str),
    /// The name in the certificate; without one this and a number of its own, so that others like it can be there too.
    Own(&'static str),
}

/// A hub and who this command is there.
struct Found {
    hub: String,
    agent_id: String,
    tls: Tls,
    /// The directory that it was found in.
    dir: Option<PathBuf>,
}

/// Connects, does the work, and says good-bye. SIGINT and SIGTERM drop the work, which cancels its open
/// calls, and end with `interrupted`; a second one ends at once.
pub(super) fn run(
    command: &str,
    args: &HubArgs,
    interrupted: u8,
    work: impl AsyncFnOnce(&Agent) -> u8,
) -> ExitCode {
    let failed = |text: &str, code| {
        eprintln!("agent-reach {command}: {text}");
        ExitCode::from(code)
    };
    let found = match find(args, Name::Own("cli"), variable) {
        Ok(found) => found,
        Err(error) => return failed(error.text(), error.code()),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start the runtime: {error}"), FAILED),
    };
    runtime.block_on(async {
        let mut signals = match Signals::new() {
            Ok(signals) => signals,
            Err(error) => return failed(&format!("cannot listen for signals: {error}"), FAILED),
        };
        // Cancel-safe: what is dropped here is not used again.
        let connected = tokio::select! {
            connected = connect(found) => connected,
            () = signals.stop() => return ExitCode::from(interrupted),
        };
        let agent = match connected {
            Ok(agent) => agent,
            Err(error) => return failed(error.text(), error.code()),
        };
        // Cancel-safe: dropping the work cancels its calls, which is what is wanted.
        let code = tokio::select! {
            code = work(&agent) => code,
            () = signals.stop() => {
                if interrupted != DONE {
                    eprintln!("agent-reach {command}: cancelled");
                }
                interrupted
            }
        };
        // Cancel-safe: the process ends in any case.
        tokio::select! {
            _ = agent.close_within(FAREWELL) => {}
            () = tokio::time::sleep(FAREWELL) => {}
            () = signals.stop() => {}
        }
        ExitCode::from(code)
    })
}

/// A list of the hub, all its pages. `name` is the list's key in the answer, `id` what its items are ordered
/// by.
///
/// # Errors
/// The failure of the call.
pub(super) async fn list(
    agent: &Agent,
    capability: &str,
    name: &str,
    id: &str,
    filter: &[(&str, &str)],
) -> Result<Vec<Value>, CallError> {
    let mut items: Vec<Value> = Vec::new();
    loop {
        let text = |(key, value): &(&str, &str)| (Value::from(*key), Value::from(*value));
        let mut body: Vec<_> = filter.iter().map(text).collect();
        let after = items.last().and_then(|item| field(item, id)).cloned();
        body.extend(after.clone().map(|after| (Value::from("after"), after)));
        let mut answer: Value = agent.call(capability, Value::Map(body)).await?;
        let more = field(&answer, "more").and_then(Value::as_bool).unwrap_or(false);
        let page = match take(&mut answer, name) {
            Some(Value::Array(page)) => page,
            Some(_) | None => Vec::new(),
        };
        items.extend(page);
        // A page that does not lead on must not be asked for for ever.
        if !more || items.last().and_then(|item| field(item, id)) == after.as_ref() {
            return Ok(items);
        }
    }
}

/// The value under a key of a map.
pub(super) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.as_map()?.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
}

fn take(value: &mut Value, name: &str) -> Option<Value> {
    let Value::Map(map) = value else { return None };
    map.iter_mut()
        .find(|(key, _)| key.as_str() == Some(name))
        .map(|(_, value)| std::mem::replace(value, Value::Nil))
}

async fn connect(found: Found) -> Result<Agent, NoHub> {
    // Cancel-safe: the other one is not needed again.
    let connected = tokio::select! {
        connected = found.builder().connect_timeout(CONNECT).connect() => connected,
        error = refused(&found.hub) => return Err(found.unreachable(&error)),
    };
    connected.map_err(|error| found.refusal(&error))
}

impl Found {
    fn builder(&self) -> AgentBuilder {
        Agent::builder(self.hub.as_str(), self.agent_id.as_str())
            .tls(self.tls.clone())
            .service("agent-reach", env!("CARGO_PKG_VERSION"))
    }

    fn unreachable(&self, error: &dyn std::fmt::Display) -> NoHub {
        let hub = &self.hub;
        let hint = match &self.dir {
            Some(dir) => format!(
                "\nThe address is that of {}. Start `agent-reach dev` here, or give --hub.",
                dir.join(dev::READY_FILE).display()
            ),
            None => String::new(),
        };
        NoHub::Connect(format!("nothing answers at {hub}: {error}{hint}"))
    }

    /// Why there is no connection, for people.
    fn refusal(&self, error: &ConnectError) -> NoHub {
        let Self { hub, agent_id, .. } = self;
        match error {
            ConnectError::Config(text) => NoHub::Usage(text.clone()),
            ConnectError::Io(_) | ConnectError::Timeout { .. } => self.unreachable(error),
            ConnectError::Refused { code, reason } => {
                NoHub::Connect(format!("{hub} refuses {agent_id}: {code}: {reason}"))
            }
            ConnectError::Tls(_) | ConnectError::Http { .. } | ConnectError::Closed | _ => {
                NoHub::Connect(format!("{hub}: {error}"))
            }
        }
    }
}

/// Connects an agent that stays: `build` says what it offers. It tries for as long as the SDK does, since what runs
/// beside a hub may be started before it.
pub(super) async fn connect_agent(
    args: &HubArgs,
    name: Name<'_>,
    build: impl FnOnce(AgentBuilder) -> AgentBuilder,
) -> Result<Agent, NoHub> {
    let found = find(args, name, variable)?;
    build(found.builder()).connect().await.map_err(|error| found.refusal(&error))
}

/// A variable of the environment that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Resolves when nobody listens at the address: dialling again, as an agent does, would not help.
async fn refused(hub: &str) -> std::io::Error {
    tokio::time::sleep(PROBE_AFTER).await;
    let uri = hub.parse::<Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match TcpStream::connect((host, uri.port_u16().unwrap_or(7443))).await {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => error,
        Ok(_) | Err(_) => std::future::pending().await,
    }
}

/// Finds the hub: flags before the environment before the directory of `dev`.
fn find(
    args: &HubArgs,
    name: Name<'_>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Found, NoHub> {
    let path = |flag: &Option<PathBuf>, name: &str| {
        let own = flag.clone();
        // A directory that was named goes before what the environment says.
        own.or_else(|| args.dir.is_none().then(|| environment(name).map(PathBuf::from)).flatten())
    };
    let hub =
        args.hub.clone().or_else(|| args.dir.is_none().then(|| environment("AGENT_REACH_HUB")).flatten());
    let files = [
        ("--cert or AGENT_REACH_CERT", path(&args.cert, "AGENT_REACH_CERT")),
        ("--key or AGENT_REACH_KEY", path(&args.key, "AGENT_REACH_KEY")),
        ("--ca or AGENT_REACH_CA", path(&args.ca, "AGENT_REACH_CA")),
    ];
    match (hub, files) {
        (Some(hub), [(_, Some(cert)), (_, Some(key)), (_, Some(ca))]) => {
            let agent_id = match name {
                Name::Given(name) => name.to_owned(),
                Name::Own(_) => name_in(&cert)?,
            };
            let tls = Tls::from_pem_files(ca, cert, key).map_err(|e| NoHub::Connect(e.to_string()))?;
            Ok(Found { hub, agent_id, tls, dir: None })
        }
        (None, [(_, Some(_)), (_, Some(_)), (_, Some(_))]) => {
            Err(NoHub::Usage("a certificate, but no hub: give --hub or AGENT_REACH_HUB".to_owned()))
        }
        (hub, [(_, None), (_, None), (_, None)]) => from_dir(hub, args.dir.as_deref(), name),
        (_, files) => {
            let missing: Vec<_> =
                files.iter().filter(|(_, path)| path.is_none()).map(|(name, _)| *name).collect();
            Err(NoHub::Usage(format!(
                "certificate, key and authority are needed together; missing: {}",
                missing.join("; ")
            )))
        }
    }
}

/// A certificate of its own from the authority of `dev`, for the hub that runs there or the one that is named.
fn from_dir(named: Option<String>, dir: Option<&Path>, name: Name<'_>) -> Result<Found, NoHub> {
    let dir = dir.unwrap_or(Path::new(dev::DIR));
    let ready = dir.join(dev::READY_FILE);
    let ca = dir.join("ca.pem");
    let (hub, dir_of_hub) = match named {
        Some(hub) if ca.exists() => (hub, None),
        Some(hub) => {
            return Err(NoHub::Usage(format!(
                "{hub} wants to know who calls: give --cert, --key and --ca (there is no {} to make a \
                 certificate from)",
                ca.display()
            )));
        }
        None => (address(&ready)?, Some(dir.to_owned())),
    };
    let unusable = |error: &dyn std::fmt::Display| NoHub::Connect(error.to_string());
    let agent_id = match name {
        Name::Given(name) => name.to_owned(),
        Name::Own(kind) => {
            let mut random = [0; 4];
            let filled = tls::provider().secure_random.fill(&mut random);
            filled.map_err(|_| unusable(&"no random numbers from the system"))?;
            format!("{kind}-{:08x}", u32::from_be_bytes(random))
        }
    };
    let made = certs::issue_in_memory(dir, &agent_id).map_err(|e| unusable(&e))?;
    let authority = std::fs::read(&ca).map_err(|e| unusable(&format!("{}: {e}", ca.display())))?;
    let tls =
        Tls::from_pem(&authority, made.cert.as_bytes(), made.key.as_bytes()).map_err(|e| unusable(&e))?;
    Ok(Found { hub, agent_id, tls, dir: dir_of_hub })
}

/// The address in the ready line that `dev` left.
fn address(ready: &Path) -> Result<String, NoHub> {
    let line = std::fs::read(ready).map_err(|_| {
        NoHub::Connect(format!(
            "no hub: there is no {}. Start `agent-reach dev` here, or give --hub, --cert, --key and --ca.",
            ready.display()
        ))
    })?;
    let line: Option<serde_json::Value> = serde_json::from_slice(&line).ok();
    let address = line.as_ref().and_then(|line| line.get("agents")).and_then(serde_json::Value::as_str);
    address.map(str::to_owned).ok_or_else(|| {
        NoHub::Connect(format!("{}: no ready line in it; start `agent-reach dev` anew", ready.display()))
    })
}

/// The name that the hub will read from a certificate.
fn name_in(cert: &Path) -> Result<String, NoHub> {
    let unusable = |error: &dyn std::fmt::Display| NoHub::Connect(format!("{}: {error}", cert.display()));
    let chain = pem::certs(cert).map_err(|e| NoHub::Connect(e.to_string()))?;
    let leaf = chain.first().ok_or_else(|| unusable(&"no certificate in it"))?;
    identity::principal(leaf).map(|principal| principal.name).map_err(|e| unusable(&e))
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
