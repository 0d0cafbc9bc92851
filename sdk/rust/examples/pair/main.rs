//! Both halves of a pair: what `docs/sdk-behaviour.md` asks of them under "Pairs".
//!
//! ```text
//! AGENT_REACH_HUB=... pair provider NAME
//! AGENT_REACH_HUB=... pair caller NAME PROVIDER
//! ```
#![expect(clippy::print_stdout, reason = "whoever runs a pair reads these lines")]

mod caller;
mod provider;

use std::env::var;
use std::error::Error;
use std::time::Duration;

use agent_reach_sdk::{Agent, AgentBuilder, Tls};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["provider", name] => provider::serve(named(name)?).await,
        ["caller", name, provider] => caller::ask(named(name)?, provider).await,
        _ => Err("pair provider NAME | pair caller NAME PROVIDER".into()),
    }
}

/// An agent of this name, by the variables that name hub and certificates. It dials again within 200 ms.
fn named(name: &str) -> Outcome<AgentBuilder> {
    let tls = Tls::from_pem_files(var("AGENT_REACH_CA")?, var("AGENT_REACH_CERT")?, var("AGENT_REACH_KEY")?)?;
    let (first, most) = (Duration::from_millis(50), Duration::from_millis(200));
    Ok(Agent::builder(var("AGENT_REACH_HUB")?, name).tls(tls).reconnect_waits(first, most))
}
