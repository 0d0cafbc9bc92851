//! Which lines of an audit are wanted.

use std::time::Duration;

use agent_reach_protocol::names::{Pattern, fold};
use clap::Args;
use clap::builder::PossibleValuesParser;
use time::OffsetDateTime;

use super::super::call_options::duration;
use super::row::Row;
use crate::audit::EVENTS;

/// What narrows the audit down; a line has to fit all of it.
#[derive(Debug, Default, Args)]
pub struct FilterArgs {
    /// Lines of this event
    #[arg(long, value_name = "EVENT", value_parser = events())]
    pub event: Option<String>,
    /// What this agent asked for
    #[arg(long, value_name = "ID")]
    pub caller: Option<String>,
    /// What this agent did, or what was done to it or to this task
    #[arg(long, value_name = "ID")]
    pub target: Option<String>,
    /// Of these capabilities: a name, `prefix.*` or `*`
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    pub capability: Option<Pattern>,
    /// What ended so: `completed` or an error code
    #[arg(long, value_name = "OUTCOME")]
    pub outcome: Option<String>,
    /// No older than this, like 90s, 15m, 8h or 7d
    #[arg(long, value_name = "DURATION", value_parser = ago)]
    pub since: Option<Duration>,
    /// One call, by the hub's name for it
    #[arg(long, value_name = "ID")]
    pub call_id: Option<String>,
    /// One call, by the caller's name for it
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
}

fn events() -> PossibleValuesParser {
    PossibleValuesParser::new(EVENTS.map(|(name, _)| name))
}

fn pattern(text: &str) -> Result<Pattern, String> {
    fold(text).parse().map_err(|error| format!("{error}"))
}

/// As times of calls are written, and days.
fn ago(text: &str) -> Result<Duration, String> {
    let Some(days) = text.strip_suffix('d') else { return duration(text) };
    let days: u64 = days.parse().map_err(|_| "a whole number with s, m, h or d, like 90s".to_owned())?;
    days.checked_mul(86_400).map(Duration::from_secs).ok_or_else(|| "too long".to_owned())
}

impl FilterArgs {
    /// What is asked for, from now on.
    pub(super) fn filter(&self) -> Filter {
        let Self { event, caller, target, capability, outcome, since, call_id, request_id } = self;
        let since = since.and_then(|since| OffsetDateTime::now_utc().checked_sub(since.try_into().ok()?));
        Filter {
            event: event.clone(),
            caller: caller.clone(),
            target: target.clone(),
            capability: capability.clone(),
            outcome: outcome.clone(),
            since: since.map(written),
            call_id: call_id.clone(),
            request_id: request_id.clone(),
        }
    }
}

/// A moment as the audit writes it: all are equally long, so that texts compare as times do.
fn written(at: OffsetDateTime) -> String {
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second, milli) = at.to_hms_milli();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// See [`FilterArgs`].
#[derive(Debug, Default)]
pub(super) struct Filter {
    event: Option<String>,
    caller: Option<String>,
    target: Option<String>,
    capability: Option<Pattern>,
    outcome: Option<String>,
    since: Option<String>,
    call_id: Option<String>,
    request_id: Option<String>,
}

impl Filter {
    pub(super) fn takes(&self, row: &Row) -> bool {
        let same = |wanted: &Option<String>, own: Option<&str>| wanted.is_none() || wanted.as_deref() == own;
        let whom = |id: &String| {
            let among = |all: &Option<String>| all.iter().any(|all| all.split(',').any(|one| one == *id));
            among(&row.target) || among(&row.subject)
        };
        same(&self.event, Some(&row.event))
            && same(&self.caller, row.caller.as_deref())
            && same(&self.outcome, row.outcome.as_deref())
            && same(&self.call_id, row.call_id.as_deref())
            && same(&self.request_id, row.request_id.as_deref())
            && self.target.as_ref().is_none_or(whom)
            && self.since.as_ref().is_none_or(|since| row.time >= *since)
            && self.capability.as_ref().is_none_or(|pattern| {
                row.capability.as_deref().is_some_and(|capability| is_below(pattern, capability))
            })
    }
}

/// Whether a pattern has a name in it. Here operators' capabilities are names like others.
fn is_below(pattern: &Pattern, name: &str) -> bool {
    match pattern {
        Pattern::All => true,
        Pattern::Below(prefix) => name.starts_with(&**prefix),
        Pattern::Name(own) => own.as_str() == name,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        filter: FilterArgs,
    }

    fn filter(options: &str) -> Result<Filter, clap::Error> {
        let words = std::iter::once("audit").chain(options.split_whitespace());
        Command::try_parse_from(words).map(|command| command.filter.filter())
    }

    fn takes(options: &str, line: &str) -> bool {
        filter(options).unwrap().takes(&serde_json::from_str(line).unwrap())
    }

    const CALL: &str = r#"{"time":"2016-11-30T08:15:02.042Z","event":"call","call_id":"1-2","request_id":"r",
        "caller":"shop","target":"a,b","capability":"hub.config.reload","outcome":"timeout"}"#;
    const ACT: &str = r#"{"time":"2999-11-30T08:15:02.042Z","event":"act","caller":"ops","subject":"a"}"#;

    #[test]
    fn a_line_has_to_fit_all_that_is_asked() {
        assert!(takes("", CALL) && takes("", ACT));
        for fits in [
            "--event call --caller shop --target a --outcome timeout --call-id 1-2 --request-id r",
            "--target b",
            "--capability *",
            "--capability hub.*",
            "--capability HUB.config.reload",
        ] {
            assert!(takes(fits, CALL), "{fits}");
        }
        for not in [
            "--event act",
            "--caller sho",
            "--target a,b --caller ops",
            "--target c",
            "--capability hub",
            "--capability config.*",
            "--outcome completed",
            "--call-id 1",
            "--request-id R",
            "--since 7d",
        ] {
            assert!(!takes(not, CALL), "{not}");
        }
        assert!(takes("--target a --since 7d", ACT) && !takes("--capability *", ACT));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in ["--event calls", "--capability a*", "--since soon", "--since 99999999999999999999d"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
        for good in ["--since 90s", "--since 15m", "--since 8h", "--since 7d", "--since 99999999d"] {
            filter(good).unwrap();
        }
    }

    #[test]
    fn a_moment_is_written_as_in_the_audit() {
        let at = OffsetDateTime::from_unix_timestamp(1_796_026_502).unwrap();
        assert_eq!(written(at), "2026-11-30T08:15:02.000Z");
    }
}
