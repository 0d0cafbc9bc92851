//! One call that is served, and when it is over.

use std::time::Duration;

use agent_reach_sdk::{CallMode, Context, ErrorCode, HandlerError};
use tokio::sync::watch;
use tokio::time::sleep_until;

/// Longest text of somebody else that goes into a failure. Bytes.
pub(super) const EXCERPT_BYTES_MAX: usize = 2 * 1024;

/// How long after its deadline a call goes on. The hub ends it in time, with a word of its own to the caller; this is for
/// one that is away.
const BEHIND: Duration = Duration::from_secs(1);

/// One call.
pub(super) struct Job {
    /// What is known of it.
    pub(super) context: Context,
    /// Most bytes of an answer, or of one of its pieces.
    pub(super) answer_max: usize,
    /// Whether a second run is harmless.
    pub(super) idempotent: bool,
    /// Says that the bridge waits no longer for its calls.
    pub(super) stop: watch::Receiver<bool>,
}

impl Job {
    /// Resolves when nobody wants the answer any more, with what the call ends with.
    pub(super) async fn over(&self) -> HandlerError {
        let mut stop = self.stop.clone();
        // Cancel-safe: each of them only waits.
        tokio::select! {
            () = self.context.cancelled() => HandlerError::wire(ErrorCode::Cancelled, "the call was cancelled"),
            () = self.past_deadline() => self.unknown("deadline", "the time of the call is over"),
            // The sender lives as long as the agent.
            _ = stop.wait_for(|stop| *stop) => self.unknown("stopped", "the bridge was stopped"),
        }
    }

    /// The processing time of a task is a promise: the hub says when it is too late.
    async fn past_deadline(&self) {
        if self.context.mode() == CallMode::Task {
            return std::future::pending().await;
        }
        sleep_until(self.context.deadline() + BEHIND).await;
    }

    /// A failure after which nobody knows what was done: another try is good only where it is harmless.
    pub(super) fn unknown(&self, code: &str, message: impl Into<String>) -> HandlerError {
        let error = HandlerError::new(code, message);
        if self.idempotent { error.retryable() } else { error }
    }

    /// The answer has too many bytes.
    pub(super) fn too_large(&self) -> HandlerError {
        let most = self.answer_max;
        HandlerError::new("answer_too_large", format!("the answer has more than {most} bytes (--max-answer)"))
    }
}

/// At most [`EXCERPT_BYTES_MAX`] bytes of what somebody wrote, as text.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let head = bytes.get(..EXCERPT_BYTES_MAX).unwrap_or(bytes);
    String::from_utf8_lossy(head).trim_end().to_owned()
}
