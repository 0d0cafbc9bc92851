//! The hub's own capabilities, `hub.*`: callable like any other, governed by the same policy.

use std::sync::Arc;

use agent_reach_protocol::codec::{Entries, Value, read_one};
use agent_reach_protocol::{
    Call as Asking, CallMode, CallResult, ErrorCode, Kind, ResultStatus, encode, limits, names,
};
use serde::{Deserialize, Serialize};

use crate::calls::{Failure, Refusal};
use crate::effects::{CallRecord, Fact, Outcome};
use crate::events::{WATCHES_MAX, Watch};
use crate::hub::{Hub, Turn};
use crate::operators::unknown_agent;
use crate::registry::Agent;
use crate::session::Lane;
use crate::text::CallId;
use crate::time::Now;
use crate::trace_id::TraceId;
use crate::views::{
    AgentView, CallView, CapabilityView, OfferView, ProviderView, TraceView, WatchFilter, pack, status_of,
};

/// Every capability that the hub provides.
pub const HUB_CAPABILITIES: [&str; 15] = [
    "hub.agents.list",
    "hub.agents.get",
    "hub.agents.disconnect",
    "hub.agents.drain",
    "hub.capabilities.list",
    "hub.calls.list",
    "hub.config.reload",
    "hub.events.watch",
    "hub.tasks.list",
    "hub.tasks.get",
    "hub.tasks.cancel",
    "hub.tasks.retry",
    "hub.tasks.watch",
    "hub.traces.get",
    "hub.stats",
];

/// Room that a list leaves in its message for the header, in bytes.
const HEADER_ROOM: usize = 4096;

/// What one provider takes in the dictionary beside its description, at the most, in bytes.
const PROVIDER_BYTES: usize = 4096;

/// Most items of one list, unless fewer are asked for.
const PAGE: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AgentFilter {
    agent_id: Option<String>,
    capability: Option<String>,
    status: Option<String>,
    labels: std::collections::BTreeMap<String, String>,
    /// Continue after this agent_id.
    after: Option<String>,
    limit: Option<usize>,
}

impl AgentFilter {
    fn takes(&self, agent: &Agent) -> bool {
        self.agent_id.as_deref().is_none_or(|id| id == &*agent.id)
            && self.status.as_deref().is_none_or(|status| status == status_of(agent))
            && self.labels.iter().all(|(key, value)| agent.label(key) == Some(value))
            && self.capability.as_deref().is_none_or(|name| {
                agent.offers.iter().flat_map(|offer| offer.names()).any(|own| &**own == name)
            })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NameFilter {
    name: Option<String>,
    /// Continue after this name.
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallFilter {
    caller: Option<String>,
    capability: Option<String>,
    target: Option<String>,
    limit: Option<usize>,
}

/// The CALL that an answer of the hub's own is for.
pub(crate) struct Answered<'a> {
    pub(crate) id: u64,
    pub(crate) request_id: Option<&'a str>,
    pub(crate) trace: Option<TraceId>,
}

impl<'a> Answered<'a> {
    pub(crate) fn of(hub: &Hub, asking: &Asking<'a>) -> Self {
        Self { id: asking.id, request_id: asking.request_id, trace: hub.trace_of(asking) }
    }
}

/// A list that ends where its message is full.
pub(crate) struct Page {
    items: Vec<rmpv::Value>,
    bytes: usize,
    limit: usize,
    bound: usize,
    more: bool,
    /// Items that no message could hold: they must not stand in the way of those behind them.
    left_out: usize,
}

impl Page {
    pub(crate) fn new(limit: Option<usize>, bound: usize) -> Self {
        Self { items: Vec::new(), bytes: 0, limit: limit.unwrap_or(PAGE), bound, more: false, left_out: 0 }
    }

    /// Says that there is more behind this page.
    pub(crate) const fn has_more(&mut self, more: bool) {
        self.more |= more;
    }

    /// Takes an item; `false` when it is the first that has no room.
    pub(crate) fn push<T: Serialize>(&mut self, item: &T) -> bool {
        let packed = pack(item);
        if packed.len() > self.bound {
            self.left_out += 1;
            return true;
        }
        self.bytes += packed.len();
        if self.items.len() >= self.limit || self.bytes > self.bound {
            self.more = true;
            return false;
        }
        self.items.extend(rmpv::decode::read_value(&mut &*packed));
        true
    }

    pub(crate) fn into_body(self, name: &str) -> Vec<u8> {
        let mut map = vec![(rmpv::Value::from(name), rmpv::Value::Array(self.items))];
        if self.more {
            map.push((rmpv::Value::from("more"), rmpv::Value::from(true)));
        }
        if self.left_out > 0 {
            map.push((rmpv::Value::from("left_out"), rmpv::Value::from(self.left_out)));
        }
        pack(&rmpv::Value::Map(map))
    }
}

/// Reads a filter. The body is checked first by the rules of a header (a map, its depth, nothing behind it): the
/// typed reader recurses as deep as it is told to.
pub(crate) fn read<'de, T: Deserialize<'de> + Default>(body: Option<&'de [u8]>) -> Result<T, Refusal> {
    // nil asks for everything, as no body does.
    let Some(body) = body.filter(|body| !matches!(body, [] | [0xc0])) else { return Ok(T::default()) };
    map_of(body)?;
    rmp_serde::from_slice(body)
        .map_err(|e| Refusal::invalid("body", &format!("the body cannot be used: {e}")))
}

fn map_of(body: &[u8]) -> Result<Entries<'_>, Refusal> {
    let value =
        read_one(body).map_err(|e| Refusal::invalid("body", &format!("the body cannot be used: {e}")))?;
    let message = || format!("the body must be a map, not {}", value.kind());
    value.entries().ok_or_else(|| Refusal::invalid("body", &message()))
}

/// Reads one text of a body that has to have it.
pub(crate) fn read_text<'a>(body: Option<&'a [u8]>, key: &str) -> Result<&'a str, Refusal> {
    let entries = match body {
        None | Some([] | [0xc0]) => Entries::new(),
        Some(body) => map_of(body)?,
    };
    match entries.iter().find(|(own, ..)| *own == key) {
        Some((_, Value::Str(text), _)) => Ok(text),
        Some((_, other, _)) => {
            Err(Refusal::invalid(key, &format!("{key} must be a string, not {}", other.kind())))
        }
        None => Err(Refusal::invalid(key, &format!("{key} is missing in the body"))),
    }
}

impl Hub {
    /// The hub-wide id of a call.
    pub(crate) fn call_id(&self, number: u64) -> CallId {
        CallId::new(self.epoch(), number)
    }

    fn number_of(&self, call_id: &str) -> Option<u64> {
        let (epoch, number) = call_id.split_once('-')?;
        let own = u32::from_str_radix(epoch, 16) == Ok(self.epoch());
        own.then(|| u64::from_str_radix(number, 16).ok()).flatten()
    }

    /// Most bytes of the body of an answer.
    pub(crate) fn answer_bound(&self) -> usize {
        let most = self.settings.max_message;
        most - HEADER_ROOM.min(most / 2)
    }

    /// Answers a call to the hub itself.
    pub(crate) fn ask_hub(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        name: &str,
        body: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let bound = self.answer_bound();
        let answer = match name {
            "hub.agents.list" => self.list_agents(turn, &read(body)?, bound),
            "hub.agents.get" => self.get_agent(turn, read_text(body, "agent_id")?)?,
            "hub.agents.disconnect" => self.disconnect_agent(turn, key, body)?,
            "hub.agents.drain" => self.drain_agent(turn, key, body)?,
            "hub.capabilities.list" => self.list_capabilities(&read(body)?, bound),
            "hub.calls.list" => self.list_calls(turn, &read(body)?, bound),
            "hub.traces.get" => self.get_trace(read_text(body, "call_id")?)?,
            "hub.stats" => self.stats(turn.now),
            "hub.config.reload" => return self.ask_reload(turn, key, asking),
            "hub.events.watch" => return self.watch_events(turn, key, asking, body),
            "hub.tasks.list" | "hub.tasks.get" | "hub.tasks.cancel" | "hub.tasks.retry"
            | "hub.tasks.watch" => {
                return self.ask_tasks(turn, key, asking, name, body);
            }
            unknown => {
                return Err(Refusal::new(
                    ErrorCode::NoCapability,
                    format!("the hub itself does not offer {unknown}"),
                ));
            }
        };
        if answer.len() > bound {
            let message = format!("the answer of {name} is over the message limit");
            return Err(Refusal::new(ErrorCode::PayloadTooLarge, message));
        }
        self.answer_for_hub(turn, key, &Answered::of(self, asking), name, &answer);
        Ok(())
    }

    pub(crate) fn answer_for_hub(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asked: &Answered<'_>,
        name: &str,
        body: &[u8],
    ) {
        let number = self.number();
        let call_id = self.call_id(number);
        let made = self.made_request_id(number);
        let result = CallResult {
            id: Some(asked.id),
            request_id: Some(asked.request_id.unwrap_or(&made)),
            call_id: Some(&call_id),
            target: Some("hub"),
            execution_ms: Some(0),
            route: Some("the hub itself"),
            ..CallResult::of(ResultStatus::Completed)
        };
        let message = encode(&result, Some(body));
        self.send_to_agent(turn, key, Kind::Result, Lane::Data, message);
        self.counters.calls_completed += 1;
        let capability: Arc<str> = name.into();
        let request_id = asked.request_id.unwrap_or(&made);
        let record =
            self.record_by_hub(turn.now, key, (call_id, request_id), &capability, turn.now, asked.trace);
        turn.fx.facts.push(Fact::CallEnded {
            capability: Some(capability),
            mode: CallMode::Call,
            outcome: Outcome::Completed,
            accept_us: None,
            process_us: None,
            total_us: 0,
            record,
        });
    }

    /// What is written down of a call that the hub itself answered.
    pub(crate) fn record_by_hub(
        &self,
        now: Now,
        key: usize,
        (call_id, request_id): (CallId, &str),
        capability: &Arc<str>,
        started: Now,
        trace: Option<TraceId>,
    ) -> Option<CallRecord> {
        let agent = self.registry.agents.get(key).filter(|_| self.settings.records)?;
        Some(CallRecord {
            call_id,
            task: None,
            request_id: request_id.into(),
            caller: Arc::clone(&agent.id),
            target: Some("hub".into()),
            capability: Arc::clone(capability),
            started_ms: self.unix(started),
            ended_ms: self.unix(now),
            attempts: 1,
            targets: Box::default(),
            trace,
            by_hub: true,
        })
    }

    fn list_agents(&self, turn: &Turn<'_>, filter: &AgentFilter, bound: usize) -> Vec<u8> {
        let mut page = Page::new(filter.limit, bound);
        let after = filter.after.as_deref().unwrap_or_default();
        for (_, agent) in self.registry.by_id_after(after).filter(|(_, agent)| filter.takes(agent)) {
            if !page.push(&AgentView::brief(turn.now, agent)) {
                break;
            }
        }
        page.into_body("agents")
    }

    fn get_agent(&self, turn: &Turn<'_>, agent_id: &str) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Answer<'a> {
            agent: AgentView<'a>,
        }
        let found = self.registry.find(agent_id).and_then(|key| Some((key, self.registry.agents.get(key)?)));
        let (key, agent) = found.ok_or_else(|| unknown_agent(agent_id))?;
        Ok(pack(&Answer { agent: AgentView::full(self, turn.now, key, agent) }))
    }

    fn list_capabilities(&self, filter: &NameFilter, bound: usize) -> Vec<u8> {
        let mut page = Page::new(filter.limit, bound);
        let wanted = self
            .registry
            .names
            .iter()
            .filter(|(name, _)| filter.after.as_deref().is_none_or(|after| &***name > after))
            .filter(|(name, _)| filter.name.as_deref().is_none_or(|own| own == &***name));
        for (name, offered) in wanted {
            let mut described = 0;
            let providers =
                offered.by.iter().filter_map(|key| self.registry.agents.get(*key)).filter_map(|agent| {
                    let offer = agent.offers.iter().find(|offer| offer.names().any(|own| own == name))?;
                    Some((
                        offer.described(),
                        ProviderView {
                            agent_id: &agent.id,
                            status: status_of(agent),
                            offer: OfferView::of(offer),
                        },
                    ))
                });
            // One name is one item of the list, which has to fit into a message whoever offers it.
            let agents = providers.take_while(|(bytes, _)| {
                described += bytes + PROVIDER_BYTES;
                described < bound / 2
            });
            let aliases = self.policy.aliases.iter().filter(|(_, target)| target.as_str() == &**name);
            let view = CapabilityView {
                name,
                offered_by: offered.by.len(),
                agents: agents.map(|(_, provider)| provider).collect(),
                policy_aliases: aliases.map(|(alias, _)| alias.as_str()).collect(),
            };
            if !page.push(&view) {
                break;
            }
        }
        page.into_body("capabilities")
    }

    fn list_calls(&self, turn: &Turn<'_>, filter: &CallFilter, bound: usize) -> Vec<u8> {
        let mut page = Page::new(filter.limit, bound);
        for (_, call) in &self.calls {
            let targets = |target: &str| {
                call.legs.iter().filter_map(|index| self.legs.get(index)).any(|leg| &*leg.target == target)
            };
            let takes = filter.caller.as_deref().is_none_or(|caller| caller == &*call.caller)
                && filter.capability.as_deref().is_none_or(|name| name == &*call.capability)
                && filter.target.as_deref().is_none_or(targets);
            if takes && !page.push(&CallView::of(self, turn.now, call)) {
                break;
            }
        }
        page.into_body("calls")
    }

    fn get_trace(&self, call_id: &str) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Answer<'a> {
            trace: TraceView<'a>,
        }
        let unknown = || Refusal::invalid("call_id", "no trace of this call is kept");
        let number = self.number_of(call_id).ok_or_else(unknown)?;
        let open = self.calls.iter().find(|(_, call)| call.number == number);
        let trace = match open {
            Some((_, call)) => TraceView::of_open(self, call),
            None => TraceView::of_ended(self, self.traces.find(number).ok_or_else(unknown)?),
        };
        Ok(pack(&Answer { trace }))
    }

    fn watch_events(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        body: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let filter: WatchFilter = read(body)?;
        let watch = self.new_watch(key, asking, filter)?;
        self.start_watch(turn, watch, None);
        Ok(())
    }

    /// Whether an agent may open one more watch.
    pub(crate) fn may_watch(&self, key: usize) -> Result<(), Refusal> {
        self.make_room(key, 0)?;
        if self.watches.iter().filter(|(_, watch)| watch.agent == key).count() >= WATCHES_MAX {
            return Err(Failure::overloaded(&format!("the agent has {WATCHES_MAX} watches open")).into());
        }
        Ok(())
    }

    /// A watch for who may open one more.
    pub(crate) fn new_watch(
        &mut self,
        key: usize,
        asking: &Asking<'_>,
        filter: WatchFilter,
    ) -> Result<Watch, Refusal> {
        if !asking.stream {
            return Err(Refusal::invalid("stream", "a watch is a stream: say stream: true"));
        }
        self.may_watch(key)?;
        let number = self.number();
        let request_id = asking.request_id.map_or_else(|| self.made_request_id(number), str::to_owned);
        let credit = asking.credit.unwrap_or(limits::CREDIT_DEFAULT);
        let mut watch = Watch::new(key, asking.id, credit, filter, (self.call_id(number), request_id));
        watch.capability = names::fold(asking.capability).into();
        watch.trace = self.trace_of(asking);
        Ok(watch)
    }
}
