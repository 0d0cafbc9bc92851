//! Calls the agent that shouts. Reads AGENT_REACH_HUB, AGENT_REACH_CA, AGENT_REACH_CERT and AGENT_REACH_KEY.
#![expect(clippy::print_stdout, reason = "a program for people")]

use agent_reach_sdk::{Agent, Tls};
use std::env::var;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tls = Tls::from_pem_files(var("AGENT_REACH_CA")?, var("AGENT_REACH_CERT")?, var("AGENT_REACH_KEY")?)?;
    let agent = Agent::builder(var("AGENT_REACH_HUB")?, "caller").tls(tls).connect().await?;
    println!("{}", agent.call::<String>("text.upper", "hello").await?);
    agent.close().await;
    Ok(())
}
