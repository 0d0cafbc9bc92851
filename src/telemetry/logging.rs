//! The log: one line for each event, on stderr.
//!
//! An event is a fixed sentence in lower case with fields. Text that a peer chose is only ever a field: it
//! is escaped, so that it cannot begin a line of its own or drive a terminal, and cut to 1 KiB.

use std::io::IsTerminal;

use agent_reach_core::Fact;
use tracing::{Dispatch, debug, info, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{LogFormat, Tracing};

/// Longest text of a peer in the log. Bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Why the log could not be set up: the operator's fault, or ours when it is done twice.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `tracing.log` is no filter.
    #[error(
        "tracing.log: {filter:?} is no filter: {reason}; write a level as \"info\", or directives as \
         \"info,agent_reach=debug\""
    )]
    Filter {
        /// As it was written.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The process has a log already.
    #[error("the log is set up already")]
    Twice,
}

/// Sets up the log of this process, on stderr, with the filter and format of `[tracing]`. In colour when
/// stderr is a terminal and NO_COLOR is not set.
///
/// # Errors
/// [`LogError`] when the filter has no meaning, or the log was set up before.
pub fn init(settings: &Tracing) -> Result<(), LogError> {
    let colour =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let log = subscriber(settings, std::io::stderr, colour)?;
    tracing::dispatcher::set_global_default(log).map_err(|_| LogError::Twice)
}

/// Whether `init` would take this filter.
///
/// # Errors
/// [`LogError::Filter`] with the reason.
pub fn check_filter(filter: &str) -> Result<(), LogError> {
    parse(filter).map(drop)
}

/// Writes down what happened. Ended calls are for `debug`: at `info` a busy hub would drown everything else.
pub fn log_fact(fact: &Fact) {
    match fact {
        Fact::Registered { agent, identity, replaced } => {
            info!(agent_id = cut(agent), identity = cut(identity), replaced, "agent registered");
        }
        Fact::Refused { identity, agent, reason } => {
            info!(agent_id = cut(agent), identity = cut(identity), reason, "registration refused");
        }
        Fact::Left { agent, identity: _, reason } => info!(agent_id = cut(agent), reason, "agent left"),
        Fact::Liveness { agent, to } => {
            info!(agent_id = cut(agent), to = to.as_str(), "liveness changed");
        }
        Fact::SlowConsumer { agent } => warn!(agent_id = cut(agent), "slow consumer"),
        Fact::CallEnded { capability, mode, outcome, accept_us, process_us, total_us, record: _ } => debug!(
            capability = capability.as_deref().map(cut),
            mode = mode.as_str(),
            outcome = outcome.as_str(),
            accept_us,
            process_us,
            total_us,
            "call ended"
        ),
        Fact::WatchEnded { outcome, total_us, record: _ } => {
            debug!(outcome = outcome.as_str(), total_us, "watch ended");
        }
        Fact::Act { capability, agent, identity, subject } => {
            let (agent_id, identity, subject) = (cut(agent), cut(identity), cut(subject));
            info!(capability, agent_id, identity, subject, "operator acted");
        }
        // Traces go where traces are looked at.
        Fact::CallTraced(_) => {}
        Fact::TaskEnded { callback } => debug!(callback, "task end stored"),
        Fact::Evicted { count } => debug!(count, "ends forgotten early"),
        Fact::Dedupe(outcome) => debug!(outcome = outcome.as_str(), "request_id known"),
        Fact::Retry(tier) => debug!(tier = tier.as_str(), "call tried again"),
    }
}

/// At most [`TEXT_BYTES_MAX`] bytes of a text, cut at a character.
#[must_use]
pub fn cut(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

fn subscriber<W>(settings: &Tracing, writer: W, colour: bool) -> Result<Dispatch, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log = tracing_subscriber::fmt().with_env_filter(parse(&settings.log)?).with_writer(writer);
    Ok(match settings.format {
        LogFormat::Text => log.with_ansi(colour).into(),
        LogFormat::Json => log.json().flatten_event(true).into(),
    })
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::builder()
        .parse(filter)
        .map_err(|error| LogError::Filter { filter: cut(filter).to_owned(), reason: error.to_string() })
}

#[cfg(test)]
#[path = "logging_tests.rs"]
mod tests;
