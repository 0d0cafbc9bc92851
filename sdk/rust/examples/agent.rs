//! An agent that shouts. Reads AGENT_REACH_HUB, AGENT_REACH_CA, AGENT_REACH_CERT and AGENT_REACH_KEY.
#![expect(clippy::print_stdout, reason = "a program for people")]

use agent_reach_sdk::{Agent, Capability, Context, Tls};
use std::env::var;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tls = Tls::from_pem_files(var("AGENT_REACH_CA")?, var("AGENT_REACH_CERT")?, var("AGENT_REACH_KEY")?)?;
    let upper = Capability::new("text.upper").idempotent(true).description("Says it louder");
    let agent = Agent::builder(var("AGENT_REACH_HUB")?, "shouter")
        .tls(tls)
        .capability(upper, |_: Context, text: String| async move { Ok(text.to_uppercase()) })
        .connect()
        .await?;
    println!("{}", agent.serve().await);
    Ok(())
}
