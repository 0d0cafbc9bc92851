use std::sync::Arc;

use agent_reach_protocol::{AgentStatus, Labels, Policy as Choosing, ToAgent, decode_to_agent};
use proptest::prelude::*;
use rmpv::Value;

use super::{NoRoute, Routed, Wanted, route};
use crate::registry::Agent;
use crate::rng::Rng;
use crate::schema::Body;
use crate::{ConnectionId, Effects, Hub, Input, Now, Outgoing, Peer, Policy, Settings};

const CONNECTION: ConnectionId = ConnectionId { index: 0, generation: 1 };

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn say(hub: &mut Hub, kind: u64, header: Value) -> Vec<Outgoing> {
    let mut message = Vec::new();
    rmpv::encode::write_value(&mut message, &Value::Array(vec![kind.into(), header])).unwrap();
    let input = Input::Message { connection: CONNECTION, message: message.into(), fault: None };
    hub.handle(Now::from_millis(1), input, &mut Effects::default());
    let mut batch = Vec::new();
    hub.take_outbound(CONNECTION, 100, usize::MAX, &mut batch);
    batch
}

/// Both offers come with a copy of the alias of their own; the index has one of them.
#[test]
fn an_alias_that_two_new_offers_share_leads_to_either() {
    let mut hub = Hub::new(Settings::default(), Policy::open());
    let peer = Peer { identity: "a".into(), name: "a".into() };
    hub.handle(Now::default(), Input::Connected { connection: CONNECTION, peer }, &mut Effects::default());
    let offer = |name: &str, version: &str| {
        let aliases = Value::Array(vec!["both".into()]);
        map([("name", name.into()), ("version", version.into()), ("aliases", aliases)])
    };
    let capabilities = Value::Array(vec![offer("one", "1.0.0"), offer("two", "2.0.0")]);
    let (v, agent_id, instance) = (1.into(), "a".into(), "i".into());
    let hello = [("v", v), ("agent_id", agent_id), ("instance", instance), ("capabilities", capabilities)];
    say(&mut hub, 1, map(hello));
    for (id, version, name) in [(1, "^1", "one"), (2, "^2", "two")] {
        let call = map([("id", id.into()), ("capability", "both".into()), ("version", version.into())]);
        let batch = say(&mut hub, 10, call);
        let [Outgoing::Message(given)] = &*batch else { panic!("{batch:?}") };
        let Ok((ToAgent::Call(given), _)) = decode_to_agent(given) else { panic!("{given:?}") };
        assert_eq!(given.capability, name);
    }
}

/// One agent of a random registry.
#[derive(Clone, Debug)]
struct Spec {
    slots: u32,
    taken: u32,
    foreign: u16,
    level: u8,
    zone: u8,
    version: u8,
    /// Mostly ready; else something that takes it out, or a disadvantage.
    state: u8,
}

const ZONES: [&str; 3] = ["east", "west", "south"];
const DEGRADED: u8 = 10;
const OFFERS_ANOTHER: u8 = 15;

impl Spec {
    fn any() -> impl Strategy<Value = Self> {
        (1_u32..6, 0_u32..7, 0_u16..3, 0_u8..5, 0_u8..3, 0_u8..3, 0_u8..16).prop_map(
            |(slots, taken, foreign, level, zone, version, state)| {
                let taken = taken.min(slots);
                Self { slots, taken, foreign, level, zone, version, state }
            },
        )
    }

    /// One that takes everything.
    fn idle() -> Self {
        Self { slots: 1, taken: 0, foreign: 0, level: 0, zone: 0, version: 0, state: 0 }
    }

    fn put_into(&self, agent: &mut Agent) {
        agent.in_flight = self.taken;
        agent.foreign = self.foreign;
        agent.levels = [("a".into(), f64::from(self.level) / 4.0)].into();
        match self.state {
            DEGRADED => agent.status = AgentStatus::Degraded,
            11 => agent.status = AgentStatus::Draining,
            12 => agent.suspect = true,
            13 => agent.health = Some(59),
            14 => agent.session = None,
            _ => {}
        }
    }

    /// Everything but its slots lets it take what is asked for.
    fn would(&self, terms: &Terms, place: usize) -> bool {
        self.state <= DEGRADED
            && terms.zone.is_none_or(|zone| zone == self.zone)
            && terms.version.is_none_or(|version| version == self.version)
            && !terms.is_tried(place)
    }

    fn can(&self, terms: &Terms, place: usize) -> bool {
        self.would(terms, place) && self.taken < self.slots
    }

    fn weight(&self) -> f64 {
        let degraded = if self.state == DEGRADED { 4.0 } else { 0.0 };
        let taken = self.taken + u32::from(self.foreign);
        f64::from(taken) / f64::from(self.slots) + f64::from(self.level) / 4.0 + degraded
    }
}

/// What a call asks of its agent.
#[derive(Clone, Debug)]
struct Terms {
    zone: Option<u8>,
    prefer: Option<u8>,
    version: Option<u8>,
    tried: Option<usize>,
}

impl Terms {
    fn any() -> impl Strategy<Value = Self> {
        let rarely = |most: u8| proptest::option::weighted(0.3, 0..most);
        (rarely(3), rarely(3), rarely(3), proptest::option::weighted(0.3, 2_usize..5))
            .prop_map(|(zone, prefer, version, tried)| Self { zone, prefer, version, tried })
    }

    const fn none() -> Self {
        Self { zone: None, prefer: None, version: None, tried: None }
    }

    fn is_tried(&self, place: usize) -> bool {
        self.tried.is_some_and(|every| place.is_multiple_of(every))
    }
}

fn id_of(place: usize) -> String {
    format!("agent-{place}")
}

fn join(hub: &mut Hub, place: usize, spec: &Spec) {
    let connection = ConnectionId { index: u32::try_from(place).unwrap(), generation: 1 };
    let id = id_of(place);
    let peer = Peer { identity: id.as_str().into(), name: id.as_str().into() };
    hub.handle(Now::default(), Input::Connected { connection, peer }, &mut Effects::default());
    let name = if spec.state == OFFERS_ANOTHER { "b" } else { "a" };
    let version = format!("{}.1.0", spec.version);
    let offer = map([("name", name.into()), ("version", version.into())]);
    let zone = map([("zone", ZONES[usize::from(spec.zone)].into())]);
    let hello = map([
        ("v", 1.into()),
        ("agent_id", id.as_str().into()),
        ("instance", "i".into()),
        ("capabilities", Value::Array(vec![offer])),
        ("labels", zone),
        ("max_concurrency", spec.slots.into()),
    ]);
    let mut message = Vec::new();
    rmpv::encode::write_value(&mut message, &Value::Array(vec![1.into(), hello])).unwrap();
    let input = Input::Message { connection, message: message.into(), fault: None };
    hub.handle(Now::from_millis(1), input, &mut Effects::default());
    let key = hub.registry.find(&id).unwrap();
    spec.put_into(&mut hub.registry.agents[key]);
}

fn hub_of(specs: &[Spec]) -> Hub {
    let mut hub = Hub::new(Settings::default(), Policy::open());
    for (place, spec) in specs.iter().enumerate() {
        join(&mut hub, place, spec);
    }
    hub
}

/// Who gets a call, by place, and how many could; or why nobody does.
fn choose(hub: &mut Hub, terms: &Terms, key: Option<&str>, rng: &mut Rng) -> Result<(usize, u32), NoRoute> {
    let zone = |zone: Option<u8>| Labels(zone.iter().map(|z| ("zone", ZONES[usize::from(*z)])).collect());
    let version = terms.version.map(|version| format!("={version}.1.0").parse().unwrap());
    let all = 0..hub.registry.agents.len();
    let tried: Vec<Arc<str>> =
        all.filter(|place| terms.is_tried(*place)).map(|place| id_of(place).into()).collect();
    let wanted = Wanted {
        now: Now::from_millis(2),
        caller: usize::MAX,
        name: "a",
        agents: None,
        count: 1,
        policy: Choosing::LeastLoaded,
        prefer: &zone(terms.prefer),
        require: &zone(terms.zone),
        version: version.as_ref(),
        affinity_key: key,
        except: &tried,
        body: &Body::new(None, None),
        expected: None,
        grant: None,
    };
    match route(&mut hub.registry, &wanted, rng) {
        Routed::To(chosen, note) => {
            let id = &hub.registry.agents[chosen[0].agent].id;
            Ok((id.strip_prefix("agent-").unwrap().parse().unwrap(), note.able))
        }
        Routed::Nobody(why, _) => Err(why),
    }
}

/// Whether a choice is what a look at every agent finds: `exact` in its load too.
fn check_choice(specs: &[Spec], terms: &Terms, chosen: Result<(usize, u32), NoRoute>, exact: bool) {
    let able: Vec<usize> = (0..specs.len()).filter(|place| specs[*place].can(terms, *place)).collect();
    let (place, counted) = match chosen {
        Ok(chosen) => chosen,
        Err(why) => {
            assert!(able.is_empty(), "{able:?} can take it, and nobody gets it: {why:?}");
            let busy = specs.iter().enumerate().any(|(place, spec)| spec.would(terms, place));
            assert_eq!(why == NoRoute::Busy, busy);
            return;
        }
    };
    assert!(able.contains(&place), "{place} cannot take it: {:?}, {terms:?}", specs[place]);
    if !exact {
        return;
    }
    assert_eq!(counted as usize, able.len());
    let preferred = |place: &usize| terms.prefer.is_some_and(|zone| specs[*place].zone == zone);
    let some_are = able.iter().any(preferred);
    let eligible = able.iter().filter(|place| !some_are || preferred(place));
    let least = eligible.map(|place| specs[*place].weight()).fold(f64::INFINITY, f64::min);
    assert!(!some_are || preferred(&place), "{place} has not the labels that others have");
    assert!(
        specs[place].weight() <= least + 1e-9,
        "{place} has {}, and {least} is there",
        specs[place].weight()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Up to as many as are all looked at: the same as a scan of all.
    #[test]
    fn least_loaded_is_what_a_scan_of_any_registry_finds(
        specs in proptest::collection::vec(Spec::any(), 1..=256),
        terms in proptest::collection::vec(Terms::any(), 1..20),
        seed in any::<u64>(),
    ) {
        let (mut hub, mut rng) = (hub_of(&specs), Rng::new(seed));
        for terms in &terms {
            let chosen = choose(&mut hub, terms, None, &mut rng);
            check_choice(&specs, terms, chosen, specs.len() <= super::EXACT_MAX);
        }
    }

    /// Beyond: whoever is chosen can take it, and somebody is chosen whenever one of all can take it.
    #[test]
    fn of_very_many_somebody_able_is_found_whenever_there_is_one(
        specs in proptest::collection::vec(Spec::any(), 257..=300),
        able in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
        terms in Terms::any(),
        rare in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut specs = specs;
        if rare {
            specs.iter_mut().for_each(|spec| spec.taken = spec.slots);
            able.iter().for_each(|place| specs[place.index(257)] = Spec::idle());
        }
        let (mut hub, mut rng) = (hub_of(&specs), Rng::new(seed));
        for _ in 0..20 {
            for terms in [&terms, &Terms::none()] {
                let chosen = choose(&mut hub, terms, None, &mut rng);
                check_choice(&specs, terms, chosen, false);
            }
        }
    }

    /// A key has an order of all agents: it goes to the first that has room, whoever else has none.
    #[test]
    fn a_key_goes_to_the_next_of_its_own_order_while_those_before_have_no_room(
        count in 2_usize..20,
        busy in proptest::collection::vec(any::<bool>(), 20),
        foreign in proptest::collection::vec(0_u16..3, 20),
        keys in proptest::collection::vec("[a-z]{1,8}", 1..8),
    ) {
        let (mut hub, mut rng) = (hub_of(&vec![Spec::idle(); count]), Rng::new(1));
        let keys_of: Vec<usize> = (0..count).map(|at| hub.registry.find(&id_of(at)).unwrap()).collect();
        for key in &keys {
            let mut order = Vec::new();
            while let Ok((place, _)) = choose(&mut hub, &Terms::none(), Some(key), &mut rng) {
                order.push(place);
                hub.registry.agents[keys_of[place]].in_flight = 1;
            }
            prop_assert_eq!(order.len(), count);
            for (at, key) in keys_of.iter().enumerate() {
                hub.registry.agents[*key].in_flight = u32::from(busy[at]);
                hub.registry.agents[*key].foreign = foreign[at];
            }
            let first = order.iter().copied().find(|place| !busy[*place]);
            let chosen = choose(&mut hub, &Terms::none(), Some(key), &mut rng).ok();
            prop_assert_eq!(chosen.map(|(place, _)| place), first);
            for key in &keys_of {
                (hub.registry.agents[*key].in_flight, hub.registry.agents[*key].foreign) = (0, 0);
            }
        }
    }

    /// One agent more takes keys from the others and moves none between them; one less gives back just its own.
    #[test]
    fn an_agent_that_comes_or_goes_moves_only_its_own_keys(count in 1_usize..30, gone in any::<prop::sample::Index>()) {
        let (mut hub, mut rng) = (hub_of(&vec![Spec::idle(); count]), Rng::new(1));
        let keys: Vec<String> = (0..200).map(|key| format!("key {key}")).collect();
        let owners = |hub: &mut Hub, rng: &mut Rng| -> Vec<usize> {
            keys.iter().map(|key| choose(hub, &Terms::none(), Some(key), rng).unwrap().0).collect()
        };
        let before = owners(&mut hub, &mut rng);
        join(&mut hub, count, &Spec::idle());
        let more = owners(&mut hub, &mut rng);
        prop_assert!(before.iter().zip(&more).all(|(before, after)| before == after || *after == count));
        prop_assert!(more.contains(&count), "it has a share");
        let gone = gone.index(count);
        let key = hub.registry.find(&id_of(gone)).unwrap();
        hub.registry.remove(key);
        let less = owners(&mut hub, &mut rng);
        prop_assert!(more.iter().zip(&less).all(|(before, after)| before == after || *before == gone));
        prop_assert!(!less.contains(&gone));
    }
}
