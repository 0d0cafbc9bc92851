//! Who hears what the core and the listener say, and has it counted, logged, kept and written down.

use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::{Fact, Outcome};
use agent_reach_protocol::ErrorCode;
use tokio::sync::mpsc;
use tracing::warn;

use crate::audit::Audit;
use crate::driver::Observer;
use crate::keeping::Keeping;
use crate::reload::Order;
use crate::telemetry::logging;
use crate::telemetry::metrics::{Metrics, tls_reason};
use crate::telemetry::spans::SpanQueue;
use crate::transport::identity::IdentityError;
use crate::transport::listener::{Accepted, Gatekeeper};

/// Writes down what the core and the listener say.
pub(crate) struct Watcher {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) keeping: Arc<Keeping>,
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) reloads: mpsc::Sender<Order>,
    pub(crate) spans: Option<SpanQueue>,
}

impl Observer for Watcher {
    fn facts(&self, facts: &[Fact]) {
        for fact in facts {
            self.metrics.record(fact);
            logging::log_fact(fact);
            if let (Some(spans), Fact::CallTraced(trace)) = (&self.spans, fact) {
                spans.leave(trace);
            }
        }
        self.keeping.facts(facts);
        self.audit.iter().for_each(|audit| audit.facts(facts));
    }

    fn reload(&self, number: u64) {
        // There is room for all that the core has open.
        if self.reloads.try_send(Order::Operator(number)).is_err() {
            tracing::error!(number, "a reload was not taken");
        }
    }

    fn hop(&self, inside: Duration) {
        self.metrics.hub_seconds(inside);
    }
}

impl Gatekeeper for Watcher {
    fn accepted(&self, outcome: Accepted, took: Duration) {
        self.metrics.connection(match outcome {
            Accepted::Open => Outcome::Completed,
            Accepted::Full => Outcome::Failed(ErrorCode::Overloaded),
            Accepted::Certificate => Outcome::Failed(ErrorCode::Unauthorized),
            Accepted::NoWebSocket => Outcome::Failed(ErrorCode::InvalidRequest),
            Accepted::TooSlow => Outcome::Failed(ErrorCode::Timeout),
        });
        if outcome == Accepted::Open {
            self.metrics.handshake(took);
        }
    }

    fn tls_failed(&self, error: &std::io::Error) -> Accepted {
        match tls_reason(error) {
            Some(reason) => {
                self.metrics.auth_failure(reason);
                Accepted::Certificate
            }
            None => Accepted::NoWebSocket,
        }
    }

    fn unidentified(&self, error: &IdentityError) {
        self.metrics.auth_failure(error.reason());
        warn!(%error, "a certificate names nobody");
    }
}
