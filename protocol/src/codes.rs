//! The tables of error codes (section 7) and of GOODBYE codes (section 3).

use std::fmt;

/// Whether a caller may try the same call again and expect another end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Trying again can help.
    Yes,
    /// Trying again gives the same end.
    No,
    /// Only for capabilities declared `idempotent`, or when the provider had not accepted.
    ByIdempotency,
    /// The provider's handler decides.
    ByHandler,
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $retry:ident;)*) => {
        /// Why a call failed, or an envelope could not be used. One row of the table in `docs/protocol.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ErrorCode { $($(#[$doc])* $variant),* }

        impl ErrorCode {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The table's column "retryable".
            pub const fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry),* }
            }

            /// The code of a word, if it is one of the table.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

error_codes! {
    /// The capability is known, but no agent is able to take the call now.
    NoInstance = "no_instance", Yes;
    /// Nobody has ever offered the capability.
    NoCapability = "no_capability", No;
    /// Policy or the agent's own declaration forbids it.
    Unauthorized = "unauthorized", No;
    /// A header is malformed, or asks for what is not there; `details.field` names the key.
    InvalidRequest = "invalid_request", No;
    /// The body or `expected_output` fits no candidate.
    SchemaMismatch = "schema_mismatch", No;
    /// The message or body is larger than the limit.
    PayloadTooLarge = "payload_too_large", No;
    /// A queue or an in-flight limit is full; `details.retry_after_ms`.
    Overloaded = "overloaded", Yes;
    /// A rate limit is reached.
    RateLimited = "rate_limited", Yes;
    /// The provider did not accept in time.
    AcceptTimeout = "accept_timeout", Yes;
    /// The provider accepted and did not finish in time.
    Timeout = "timeout", Yes;
    /// The total budget is spent.
    BudgetExhausted = "budget_exhausted", No;
    /// The provider went away in mid-call; the outcome may be unknown.
    AgentLost = "agent_lost", ByIdempotency;
    /// Every candidate's breaker is open.
    CircuitOpen = "circuit_open", Yes;
    /// The agent's own failure; its code and message are in `details`.
    HandlerError = "handler_error", ByHandler;
    /// The agent has no handler for the action.
    Unsupported = "unsupported", No;
    /// The asker cancelled.
    Cancelled = "cancelled", No;
    /// Further tiers were tried and used up; `details.cause` is the error itself.
    Degraded = "degraded", No;
    /// The `request_id` is taken by another capability or body.
    IdempotencyConflict = "idempotency_conflict", No;
    /// The hub is draining.
    ShuttingDown = "shutting_down", Yes;
    /// A task outlived twice its longest processing time without a result.
    Orphaned = "orphaned", No;
    /// A fault of the hub itself.
    Internal = "internal", No;
    /// Only in ERROR: the envelope's kind is not one of this version.
    UnknownKind = "unknown_kind", No;
}

impl ErrorCode {
    /// What `retryable` says where the code alone decides (`ByIdempotency` and `ByHandler` read as no).
    pub const fn retryable(self) -> bool {
        matches!(self.retry(), Retry::Yes)
    }

    /// Whether a provider's RESULT may carry this code to the caller as it is; any other becomes
    /// `handler_error`.
    pub const fn passes_from_provider(self) -> bool {
        matches!(
            self,
            Self::HandlerError
                | Self::Unsupported
                | Self::InvalidRequest
                | Self::SchemaMismatch
                | Self::Overloaded
                | Self::RateLimited
                | Self::Cancelled
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! goodbye_codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $close:literal;)*) => {
        /// Why a session ends.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum GoodbyeCode { $($(#[$doc])* $variant),* }

        impl GoodbyeCode {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The WebSocket close code that follows the GOODBYE.
            pub const fn close_code(self) -> u16 {
                match self { $(Self::$variant => $close),* }
            }

            /// The code of a word, if it is one of the table.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

goodbye_codes! {
    /// An orderly end.
    Normal = "normal", 1000;
    /// The hub stops: come back elsewhere or later, spread over the window given.
    Draining = "draining", 4000;
    /// Silent for too long.
    Gone = "gone", 4001;
    /// The outbound queue passed its bound.
    SlowConsumer = "slow_consumer", 4002;
    /// Too many registrations of one agent.
    RateLimited = "rate_limited", 4003;
    /// The certificate ran out while connected.
    CredentialsExpired = "credentials_expired", 4004;
    /// A newer connection of the same agent took over.
    Replaced = "replaced", 4500;
    /// Something that cannot be trusted as an envelope, or out of order.
    ProtocolError = "protocol_error", 4501;
    /// A message over the limit. Closes with WebSocket's own 1009.
    MessageTooLarge = "message_too_large", 1009;
    /// The identity may not be this agent.
    Unauthorized = "unauthorized", 4503;
    /// The certificate is revoked.
    CredentialsRevoked = "credentials_revoked", 4504;
    /// HELLO names a version that is not spoken here.
    VersionUnsupported = "version_unsupported", 4505;
}

impl GoodbyeCode {
    /// Whether an SDK comes back by itself after this code.
    ///
    /// `normal` and `message_too_large` end what their sender began, so they are not for coming back.
    pub const fn reconnects(self) -> bool {
        matches!(self.close_code(), 4000..=4499)
    }
}

impl fmt::Display for GoodbyeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_from_its_word() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
        }
        for code in GoodbyeCode::ALL {
            assert_eq!(GoodbyeCode::parse(code.as_str()), Some(*code));
        }
        assert_eq!(ErrorCode::parse("nope"), None);
    }

    #[test]
    fn the_close_code_range_says_whether_to_come_back() {
        let back: Vec<_> = GoodbyeCode::ALL.iter().filter(|c| c.reconnects()).map(|c| c.as_str()).collect();
        assert_eq!(back, ["draining", "gone", "slow_consumer", "rate_limited", "credentials_expired"]);
    }

    #[test]
    fn close_codes_are_unique() {
        let mut codes: Vec<_> = GoodbyeCode::ALL.iter().map(|c| c.close_code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), GoodbyeCode::ALL.len());
    }
}
