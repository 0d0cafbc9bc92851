//! Why a call, a connection or a handler failed.

use std::fmt;
use std::ops::{Deref, DerefMut};

use agent_reach_protocol::ErrorCode;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::payload::{IntoPayload, Payload, PayloadError};

/// The kind of a call's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// A code of the protocol's table.
    Known(ErrorCode),
    /// A stream ended without its end mark, or with a gap: what came is not the whole.
    Interrupted,
    /// The agent itself is closed, or was refused for good: see [`crate::Agent::closed`].
    Closed,
    /// The result came and is not of the type wanted.
    Decode,
    /// A word that this version of the SDK does not know.
    Other(String),
}

impl Code {
    pub(crate) fn of(word: &str) -> Self {
        ErrorCode::parse(word).map_or_else(|| Self::Other(word.to_owned()), Self::Known)
    }

    /// The word, as in logs.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(code) => code.as_str(),
            Self::Interrupted => "interrupted",
            Self::Closed => "closed",
            Self::Decode => "decode",
            Self::Other(word) => word,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<ErrorCode> for Code {
    fn eq(&self, other: &ErrorCode) -> bool {
        matches!(self, Self::Known(code) if code == other)
    }
}

/// Whether a provider had the call when it failed: whether it may have had an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accepted {
    /// A provider had it.
    Yes,
    /// No provider had it.
    No,
    /// Nobody here can say.
    #[default]
    Unknown,
}

/// One try of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Who was tried.
    pub target: String,
    /// `completed` or an error code.
    pub outcome: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Why this agent, or why it failed.
    pub reason: String,
}

/// What is known of a failed call. [`CallError`] derefs to it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallFailure {
    /// What kind of failure.
    pub code: Code,
    /// For people.
    pub message: String,
    /// Whether the same call, with the same `request_id`, can end otherwise.
    pub retryable: bool,
    /// Whether a provider had it.
    pub accepted: Accepted,
    /// For programs, as MessagePack; read with [`CallError::details_as`].
    pub details: Option<Bytes>,
    /// The business intent: the user's own, or made by the SDK.
    pub request_id: String,
    /// Hub-wide id for `hub.traces.get`, if the hub had given one.
    pub call_id: Option<String>,
    /// Who failed, if it had gone anywhere.
    pub target: Option<String>,
    /// Every try in order.
    pub attempts: Vec<Attempt>,
    /// Of `degraded`: the failure that was left when every further try was used up.
    pub cause: Option<Cause>,
}

/// The failure itself, behind a `degraded`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cause {
    /// What kind of failure.
    pub code: Code,
    /// For people.
    pub message: String,
    /// Whether the same call can end otherwise.
    pub retryable: bool,
    /// For programs, as MessagePack.
    pub details: Option<Bytes>,
}

/// A call failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {}", .0.code, .0.message)]
pub struct CallError(Box<CallFailure>);

impl CallError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let retryable = matches!(&code, Code::Known(code) if code.retryable());
        Self(Box::new(CallFailure {
            code,
            message: message.into(),
            retryable,
            accepted: Accepted::Unknown,
            details: None,
            request_id: String::new(),
            call_id: None,
            target: None,
            attempts: Vec::new(),
            cause: None,
        }))
    }

    pub(crate) fn known(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(Code::Known(code), message)
    }

    /// A failure before anything was sent.
    pub(crate) fn local(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::known(code, message).accepted(Accepted::No)
    }

    pub(crate) fn accepted(mut self, accepted: Accepted) -> Self {
        self.0.accepted = accepted;
        self
    }

    /// Reads `details` as a type.
    ///
    /// # Errors
    /// When they are absent and the type is not optional, or are of another type.
    pub fn details_as<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        Payload::new(self.0.details.clone().unwrap_or_default()).decode()
    }
}

impl Deref for CallError {
    type Target = CallFailure;

    fn deref(&self) -> &CallFailure {
        &self.0
    }
}

impl DerefMut for CallError {
    fn deref_mut(&mut self) -> &mut CallFailure {
        &mut self.0
    }
}

/// Why a connection could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address of the hub, the agent's name or a capability cannot be used.
    #[error("configuration: {0}")]
    Config(String),
    /// Certificates or keys cannot be read, or the TLS handshake failed.
    #[error("tls: {0}")]
    Tls(String),
    /// The hub answered HELLO with GOODBYE.
    #[error("refused by the hub: {code}: {reason}")]
    Refused {
        /// Word of the GOODBYE table.
        code: String,
        /// The hub's reason.
        reason: String,
    },
    /// The upgrade was answered with another HTTP status.
    #[error("upgrade refused with HTTP {status}: {reason}")]
    Http {
        /// The status.
        status: u16,
        /// Beginning of the answer's text.
        reason: String,
    },
    /// The network.
    #[error("io: {0}")]
    Io(String),
    /// No session within the time given; `last` is why the last try failed.
    #[error("no session in time; last failure: {last}")]
    Timeout {
        /// The last failure, in words.
        last: String,
    },
    /// The agent was closed meanwhile.
    #[error("closed")]
    Closed,
}

impl ConnectError {
    /// Whether dialling again cannot help until somebody changes something.
    ///
    /// An HTTP 4xx is final (a wrong path, credentials or protocol version stay wrong) but for 408, 425 and
    /// 429. TLS failures are not: the certificate may be renewed on disk.
    pub(crate) const fn is_final(&self) -> bool {
        match self {
            Self::Config(_) | Self::Closed => true,
            Self::Http { status, .. } => matches!(*status, 400..=499) && !matches!(*status, 408 | 425 | 429),
            Self::Tls(_) | Self::Refused { .. } | Self::Io(_) | Self::Timeout { .. } => false,
        }
    }
}

/// Why an agent's life ended: what [`crate::Agent::closed`] resolves to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// [`crate::Agent::close`] was called, or the last handle was dropped.
    #[error("closed by this program")]
    Closed,
    /// The hub ended the session with a GOODBYE after which one does not come back.
    #[error("the hub ended the session: {code}: {reason}")]
    Goodbye {
        /// Word of the GOODBYE table: `replaced`, `unauthorized`, …
        code: String,
        /// The hub's reason.
        reason: String,
    },
    /// Dialling failed in a way that trying again cannot mend.
    #[error("{0}")]
    Connect(ConnectError),
    /// The task that owns the connection ended with its runtime.
    #[error("the runtime stopped")]
    RuntimeStopped,
}

/// What a handler answers when it cannot complete a call.
///
/// Every `std::error::Error` turns into one with `?`: code `error`, its text as message, not retryable.
#[derive(Clone, Debug)]
pub struct HandlerError {
    pub(crate) wire: ErrorCode,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) details: Option<Bytes>,
}

impl HandlerError {
    /// The handler's own failure, which callers see as `handler_error` with this code in `details`. Not
    /// retryable unless said so.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            wire: ErrorCode::HandlerError,
            code: code.into(),
            message: message.into(),
            retryable: false,
            details: None,
        }
    }

    /// A failure that passes to the caller with its own code: `unsupported`, `invalid_request`,
    /// `schema_mismatch`, `overloaded`, `rate_limited` or `cancelled`. Any other becomes `handler_error`.
    pub fn wire(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut error = Self::new(code.as_str(), message);
        if code.passes_from_provider() {
            error.wire = code;
        }
        error.retryable = code.retryable();
        error
    }

    /// The body is not what this capability takes.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::wire(ErrorCode::InvalidRequest, message)
    }

    /// The same call can succeed later, perhaps elsewhere. It will run again: such a failure is not
    /// remembered.
    #[must_use]
    pub const fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// More for programs. Replaces the `{code, message}` of a `handler_error`; ignored when it cannot be
    /// written as MessagePack.
    #[must_use]
    pub fn details(mut self, details: impl IntoPayload) -> Self {
        self.details = details.into_payload().ok().map(|p| p.body);
        self
    }
}

impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::new("error", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_refusals_are_final_unless_they_say_later() {
        let of = |status| ConnectError::Http { status, reason: String::new() }.is_final();
        assert_eq!([400, 401, 403, 404, 499].map(of), [true; 5]);
        assert_eq!([408, 425, 429, 500, 502, 503, 302].map(of), [false; 7]);
        assert!(!ConnectError::Tls(String::new()).is_final());
    }

    #[test]
    fn a_call_error_is_one_pointer() {
        assert_eq!(size_of::<CallError>(), size_of::<usize>());
    }
}
