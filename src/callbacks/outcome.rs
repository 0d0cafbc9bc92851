//! How a delivery ended.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_reach_protocol::ErrorCode;

use super::target::Refused;

/// Longest time that a receiver may ask for: 24 h, in milliseconds.
pub const RETRY_AFTER_MAX_MS: u64 = 24 * 60 * 60 * 1_000;

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx: the receiver has it.
    Delivered {
        /// The status.
        status: u16,
    },
    /// 410: the receiver wants no more of it.
    Gone,
    /// Another status.
    Status {
        /// The status.
        status: u16,
        /// How long the receiver wants to be left alone at least, in milliseconds, to [`RETRY_AFTER_MAX_MS`].
        /// Only of 429 and 503.
        retry_after_ms: Option<u64>,
    },
    /// There was no answer.
    Failed(Failure),
}

/// Why there was no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The URL may not be called, or not any more.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The name resolves to no address that may be connected to.
    #[error("blocked: the host has no address that may be called")]
    Blocked,
    /// The name does not resolve.
    #[error("the name of the host does not resolve")]
    Resolve,
    /// No address takes a connection.
    #[error("no connection: {0}")]
    Connect(std::io::ErrorKind),
    /// TLS fails, most often since the certificate is of another name or authority.
    #[error("TLS: {0}")]
    Tls(String),
    /// What came is no answer in HTTP/1.1, is too large, or ends early.
    #[error("no answer in HTTP: {0}")]
    Http(String),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The end of the task cannot be written as a webhook: our own fault.
    #[error("the result cannot be read")]
    NoResult,
    /// The delivery itself broke: our own fault.
    #[error("the delivery broke")]
    Broken,
}

impl Outcome {
    /// Of an answer. `retry_after` is that header; `now_ms` is in milliseconds since the Unix epoch.
    pub(super) fn of(status: u16, retry_after: Option<&str>, now_ms: u64) -> Self {
        match status {
            200..=299 => Self::Delivered { status },
            410 => Self::Gone,
            429 | 503 => Self::Status {
                status,
                retry_after_ms: retry_after.and_then(|text| retry_after_ms(text, now_ms)),
            },
            _ => Self::Status { status, retry_after_ms: None },
        }
    }

    /// For metrics: `completed`, or the error code that is the nearest.
    pub fn word(&self) -> &'static str {
        let code = match self {
            Self::Delivered { .. } => return "completed",
            Self::Gone => ErrorCode::Cancelled,
            Self::Status { status: 429, .. } => ErrorCode::RateLimited,
            Self::Status { status: 503, .. } => ErrorCode::Overloaded,
            Self::Status { .. } => ErrorCode::HandlerError,
            Self::Failed(failure) => match failure {
                Failure::Refused(refused) => refused.code(),
                Failure::Blocked | Failure::Tls(_) => ErrorCode::Unauthorized,
                Failure::Resolve | Failure::Connect(_) => ErrorCode::NoInstance,
                Failure::Http(_) => ErrorCode::HandlerError,
                Failure::Timeout => ErrorCode::Timeout,
                Failure::NoResult | Failure::Broken => ErrorCode::Internal,
            },
        };
        code.as_str()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered { status } | Self::Status { status, .. } => write!(f, "HTTP {status}"),
            Self::Gone => f.write_str("HTTP 410: the receiver wants no more"),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

/// What the header `Retry-After` asks for, in seconds or as a date; in milliseconds, at most [`RETRY_AFTER_MAX_MS`].
pub fn retry_after_ms(text: &str, now_ms: u64) -> Option<u64> {
    let text = text.trim();
    let ms = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // A number too long to read is a long time as well.
        text.parse::<u64>().map_or(RETRY_AFTER_MAX_MS, |seconds| seconds.saturating_mul(1_000))
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        let now: SystemTime = UNIX_EPOCH.checked_add(Duration::from_millis(now_ms))?;
        let wait = date.duration_since(now).unwrap_or_default();
        u64::try_from(wait.as_millis()).unwrap_or(RETRY_AFTER_MAX_MS)
    };
    Some(ms.min(RETRY_AFTER_MAX_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: u64 = 784_111_777_000;

    #[test]
    fn a_status_is_delivered_gone_or_tried_again() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(Outcome::of(status, Some("9"), NOW), Outcome::Delivered { status });
        }
        assert_eq!(Outcome::of(410, Some("9"), NOW), Outcome::Gone);
        for status in [199, 300, 301, 302, 307, 308, 400, 401, 404, 409, 500, 502, 504, 999] {
            let outcome = Outcome::of(status, Some("9"), NOW);
            assert_eq!(outcome, Outcome::Status { status, retry_after_ms: None });
        }
    }

    #[test]
    fn who_is_busy_says_how_long_within_a_day() {
        let day = Some(RETRY_AFTER_MAX_MS);
        let table = [
            (None, None),
            (Some(""), None),
            (Some("soon"), None),
            (Some("-1"), None),
            (Some("1.5"), None),
            (Some("0"), Some(0)),
            (Some(" 120 "), Some(120_000)),
            (Some("86400"), day),
            (Some("86401"), day),
            (Some("99999999999999999999999"), day),
            (Some("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60_000)),
            (Some("Sun, 06 Nov 1994 08:48:37 GMT"), Some(0)),
            (Some("Tue, 06 Nov 2040 08:49:37 GMT"), day),
        ];
        for (text, retry_after_ms) in table {
            for status in [429, 503] {
                let outcome = Outcome::of(status, text, NOW);
                assert_eq!(outcome, Outcome::Status { status, retry_after_ms }, "{text:?}");
            }
        }
    }
}
