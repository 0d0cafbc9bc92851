//! The life of a bridge: it connects, serves, and drains when it is told to stop.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_sdk::{Agent, AgentBuilder, Capability, CloseReason, Context, HandlerError, Payload};
use tokio::sync::watch;

use super::Offer;
use super::job::Job;
use crate::cli::hub::{self, DONE, FAILED, NO_HUB, Name, USAGE};
use crate::cli::serve::Signals;
use crate::config::Tracing;
use crate::telemetry::logging;

/// Exit code after a second signal.
const STOPPED: u8 = 130;
/// How long a cancelled call may take beyond what its work needs to stop.
const SLACK: Duration = Duration::from_secs(2);

/// What serves the calls.
pub(super) trait Work: Send + Sync + 'static {
    /// For the ready line: what answers.
    fn title(&self) -> String;

    /// How long it may take to stop what nobody wants any more.
    fn grace(&self) -> Duration;

    /// How many calls it takes at once where nobody says.
    fn concurrency(&self) -> u64;

    /// Serves one call; ends soon after [`Job::over`].
    fn serve(&self, job: Job, payload: Payload)
    -> impl Future<Output = Result<Payload, HandlerError>> + Send;

    /// What goes on beside the calls, for as long as the agent lives.
    fn beside(&self, agent: &Agent) -> impl Future<Output = ()>;
}

/// Runs a bridge to its end.
pub(super) fn run<W: Work>(command: &str, offer: &Offer, work: Result<W, String>) -> ExitCode {
    let failed = |text: &str, code| {
        eprintln!("agent-reach bridge {command}: {text}");
        ExitCode::from(code)
    };
    let work = match work {
        Ok(work) => Arc::new(work),
        Err(text) => return failed(&text, USAGE),
    };
    let settings = Tracing { log: offer.log.clone(), format: offer.log_format.into(), ..Tracing::default() };
    if let Err(error) = logging::init(&settings) {
        return failed(&error.to_string().replace("tracing.log", "--log"), USAGE);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start the runtime: {error}"), FAILED),
    };
    // What still runs when this returns is dropped with the runtime, and stops its work with it.
    runtime.block_on(async {
        let mut signals = match Signals::new() {
            Ok(signals) => signals,
            Err(error) => return failed(&format!("cannot listen for signals: {error}"), FAILED),
        };
        let (stop, stopped) = watch::channel(false);
        let name = offer.name.as_deref().map_or(Name::Own("bridge"), Name::Given);
        let connecting =
            hub::connect_agent(&offer.hub, name, |agent| describe(agent, offer, &work, &stopped));
        // Cancel-safe: what is dropped here is not used again.
        let connected = tokio::select! {
            connected = connecting => connected,
            () = signals.stop() => return ExitCode::from(DONE),
        };
        let agent = match connected {
            Ok(agent) => agent,
            Err(error) => return failed(error.text(), error.code()),
        };
        let offered = offer.capabilities.join(", ");
        eprintln!(
            "agent-reach bridge {command}: ready: {} offers {offered}, answered by {}",
            agent.agent_id(),
            work.title()
        );
        // Cancel-safe: what is dropped here is not used again.
        let lost = tokio::select! {
            reason = agent.closed() => Some(reason),
            () = signals.stop() => None,
            () = work.beside(&agent) => None,
        };
        match lost {
            Some(CloseReason::Closed) => ExitCode::from(DONE),
            Some(reason) => failed(&reason.to_string(), NO_HUB),
            None => ExitCode::from(drain(&agent, offer, work.grace(), &stop, &mut signals).await),
        }
    })
}

/// Lets open calls end; stops those that take too long, as if they were cancelled.
async fn drain(
    agent: &Agent,
    offer: &Offer,
    grace: Duration,
    stop: &watch::Sender<bool>,
    signals: &mut Signals,
) -> u8 {
    tracing::info!("draining");
    let closed = agent.close_within(offer.drain.saturating_add(grace).saturating_add(SLACK));
    tokio::pin!(closed);
    // Cancel-safe: `closed` goes on where it was.
    tokio::select! {
        _ = &mut closed => return DONE,
        () = tokio::time::sleep(offer.drain) => stop.send_replace(true),
        () = signals.stop() => return STOPPED,
    };
    // Cancel-safe: the process ends in any case.
    tokio::select! {
        _ = &mut closed => DONE,
        () = signals.stop() => STOPPED,
    }
}

fn describe<W: Work>(
    agent: AgentBuilder,
    offer: &Offer,
    work: &Arc<W>,
    stop: &watch::Receiver<bool>,
) -> AgentBuilder {
    let agent = agent
        .max_concurrency(offer.concurrency.unwrap_or_else(|| work.concurrency()))
        .cancel_grace(work.grace().saturating_add(SLACK));
    let agent = match &offer.dedupe_file {
        Some(file) => agent.dedupe_file(file),
        None => agent,
    };
    let labels = offer.labels.iter();
    let agent = labels.fold(agent, |agent, (key, value)| agent.label(key, value));
    offer.capabilities.iter().fold(agent, |agent, name| {
        let (work, stop) = (Arc::clone(work), stop.clone());
        let (answer_max, idempotent) = (offer.max_answer, offer.idempotent);
        agent.capability(capability(offer, name), move |context: Context, payload: Payload| {
            let work = Arc::clone(&work);
            let job = Job { context, answer_max, idempotent, stop: stop.clone() };
            async move { work.serve(job, payload).await }
        })
    })
}

fn capability(offer: &Offer, name: &str) -> Capability {
    let capability = Capability::new(name).idempotent(offer.idempotent);
    let capability = with(capability, offer.description.as_ref(), Capability::description);
    let capability = with(capability, offer.input_schema.as_ref(), Capability::input_schema);
    let capability = with(capability, offer.output_schema.as_ref(), Capability::output_schema);
    with(capability, offer.timeout.as_ref(), Capability::timeout)
}

fn with<T: Clone>(
    capability: Capability,
    value: Option<&T>,
    set: impl FnOnce(Capability, T) -> Capability,
) -> Capability {
    match value {
        Some(value) => set(capability, value.clone()),
        None => capability,
    }
}
