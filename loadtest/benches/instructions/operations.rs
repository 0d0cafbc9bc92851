//! What is counted. What an operation needs is made before, as often for few runs as for many.

use std::hint::black_box;
use std::time::{Duration, Instant};

use agent_reach_core::Settings;
use agent_reach_protocol::{decode_to_hub, encode};
use bytes::Bytes;

use crate::envelopes::{
    Asked, BODY, NOTICE, Offer, SLOTS, accept, call, call_with, chunk, dispatch, failed, fitting, heard,
    result, schema, told_result, update,
};
use crate::world::{CALLER, World};

/// One thing that is counted.
pub(crate) struct Operation {
    /// What it is.
    pub(crate) name: &'static str,
    /// How often it is run, and then twice as often.
    pub(crate) few: u64,
    /// Runs it so many times: not more than twice `few`. Says how long that took, without what was made before.
    pub(crate) run: fn(u64) -> Duration,
}

/// Runs of what is quick.
const FEW: u64 = 400;
/// Runs of what goes to a hundred agents.
const FEW_NOTICES: u64 = 8;
/// Agents of a notice.
const AGENTS: u32 = 100;
/// The only provider, where there is one.
const PROVIDER: u32 = 1;
/// Providers, where the hub chooses.
const PROVIDERS: u32 = 30;

/// Slots of an agent that has too few, and how many calls wait for them.
const SLOTS_FEW: u64 = 10;
const WAITING: usize = 100;

/// All of them.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "decode CALL, 1 KB body",
        few: FEW,
        run: |times| decode(&call(4711, Asked::Plain), times),
    },
    Operation { name: "decode RESULT, 1 KB body", few: FEW, run: |times| decode(&result(4711), times) },
    Operation { name: "decode CHUNK, 1 KB body", few: FEW, run: |times| decode(&chunk(4711, 7), times) },
    Operation { name: "decode UPDATE with load", few: FEW, run: |times| decode(&update(), times) },
    Operation { name: "encode CALL to a provider, 1 KB body", few: FEW, run: encode_call },
    Operation { name: "encode RESULT to a caller, 1 KB body", few: FEW, run: encode_result },
    Operation { name: "hub: CALL, one provider", few: FEW, run: |times| hub_call(1, times) },
    Operation {
        name: "hub: CALL, 30 providers to choose from",
        few: FEW,
        run: |times| hub_call(PROVIDERS, times),
    },
    Operation {
        name: "hub: CALL, 100 providers to choose from",
        few: FEW,
        run: |times| hub_call(100, times),
    },
    Operation {
        name: "hub: CALL, 256 providers to choose from",
        few: FEW,
        run: |times| hub_call(256, times),
    },
    Operation {
        name: "hub: CALL, 10,000 providers to choose from",
        few: FEW,
        run: |times| hub_call(10_000, times),
    },
    Operation {
        name: "hub: CALL, one provider, body of ten properties",
        few: FEW,
        run: |times| hub_checked(None, times),
    },
    Operation {
        name: "hub: CALL, the same held against a schema of them",
        few: FEW,
        run: |times| hub_checked(Some(&schema()), times),
    },
    Operation { name: "hub: CALL that waits, and the RESULT that lets one go", few: FEW, run: hub_wait },
    Operation { name: "hub: RESULT that fails, and the next try", few: FEW, run: hub_retry },
    Operation { name: "hub: ACCEPT", few: FEW, run: hub_accept },
    Operation { name: "hub: RESULT that stands for ACCEPT", few: FEW, run: hub_result },
    Operation { name: "hub: CHUNK", few: FEW, run: hub_chunk },
    Operation { name: "hub: UPDATE with load", few: FEW, run: hub_update },
    Operation { name: "hub: notice of 256 B to 100 agents, the CALL", few: FEW_NOTICES, run: hub_notice },
    Operation { name: "hub: notice of 256 B to 100 agents, their RESULTs", few: FEW_NOTICES, run: hub_heard },
];

fn decode(message: &Bytes, times: u64) -> Duration {
    let begun = Instant::now();
    for _ in 0..times {
        let _decoded = black_box(decode_to_hub(black_box(message), None));
    }
    begun.elapsed()
}

fn encode_call(times: u64) -> Duration {
    let header = dispatch();
    let begun = Instant::now();
    for _ in 0..times {
        black_box(encode(black_box(&header), Some(&BODY)));
    }
    begun.elapsed()
}

fn encode_result(times: u64) -> Duration {
    let header = told_result();
    let begun = Instant::now();
    for _ in 0..times {
        black_box(encode(black_box(&header), Some(&BODY)));
    }
    begun.elapsed()
}

/// The CALL comes and goes out to a provider.
fn hub_call(providers: u32, times: u64) -> Duration {
    let mut world = World::new(providers);
    let calls: Vec<Bytes> = (1..=FEW * 2).map(|id| call(id, Asked::Plain)).collect();
    let begun = Instant::now();
    for message in calls.into_iter().take(at_most(times)) {
        assert_eq!(world.say(CALLER, message), 1, "each call goes to one provider");
    }
    begun.elapsed()
}

/// The same with a body that is, or is not, held against a schema.
fn hub_checked(schema: Option<&[u8]>, times: u64) -> Duration {
    let offer = schema.map_or(Offer::Slots(SLOTS), Offer::Schema);
    let mut world = World::with(Settings::default(), 1, offer);
    let body = fitting();
    assert!((1000..1050).contains(&body.len()), "it is of 1 KB: {}", body.len());
    assert_eq!(world.say(CALLER, call(1, Asked::Plain)), 1, "a body that is no map");
    assert_eq!(world.reached(CALLER), schema.is_some(), "it comes back where it is looked at");
    let calls: Vec<Bytes> = (2..FEW * 2 + 2).map(|id| call_with(id, Asked::Plain, &body)).collect();
    let begun = Instant::now();
    for message in calls.into_iter().take(at_most(times)) {
        assert_eq!(world.say(CALLER, message), 1, "each call goes to the provider");
    }
    begun.elapsed()
}

/// All slots are taken: each call waits behind others, and each result lets the first of them go.
fn hub_wait(times: u64) -> Duration {
    let mut world = World::with(Settings::default(), 1, Offer::Slots(SLOTS_FEW));
    let mut calls = (1..).map(|id| call(id, Asked::Plain));
    for message in calls.by_ref().take(at_most(SLOTS_FEW)) {
        assert_eq!(world.say(CALLER, message), 1, "a slot is free");
    }
    for message in calls.by_ref().take(WAITING) {
        assert_eq!(world.say(CALLER, message), 0, "it waits");
    }
    let calls: Vec<Bytes> = calls.take(at_most(FEW * 2)).collect();
    let results: Vec<Bytes> = (1..=FEW * 2).map(result).collect();
    let begun = Instant::now();
    for (message, result) in calls.into_iter().zip(results).take(at_most(times)) {
        assert_eq!(world.say(CALLER, message), 0, "it waits");
        assert_eq!(
            world.say(PROVIDER, result),
            2,
            "the result goes to the caller, and a call to the provider"
        );
    }
    begun.elapsed()
}

/// Each call fails once, and is given again a moment later.
fn hub_retry(times: u64) -> Duration {
    let mut settings = Settings { retry_base_ms: 1, retry_jitter_ms: 0, ..Settings::default() };
    settings.breaker.min_calls = u32::MAX;
    let mut world = open_calls_with(settings);
    let failures: Vec<Bytes> = (1..=FEW * 2).map(failed).collect();
    let begun = Instant::now();
    for message in failures.into_iter().take(at_most(times)) {
        assert_eq!(world.say(PROVIDER, message), 0, "the caller hears nothing of it");
        assert_eq!(world.wait(), 1, "the provider gets it again");
    }
    begun.elapsed()
}

/// A hub with open calls at its only provider.
fn open_calls() -> World {
    open_calls_with(Settings::default())
}

fn open_calls_with(settings: Settings) -> World {
    let mut world = World::with(settings, 1, Offer::Slots(SLOTS));
    for id in 1..=FEW * 2 {
        assert_eq!(world.say(CALLER, call(id, Asked::Plain)), 1, "each call goes to the provider");
    }
    world
}

fn hub_accept(times: u64) -> Duration {
    answers(open_calls(), (1..=FEW * 2).map(accept).collect(), times)
}

fn hub_result(times: u64) -> Duration {
    answers(open_calls(), (1..=FEW * 2).map(result).collect(), times)
}

fn hub_chunk(times: u64) -> Duration {
    let mut world = World::new(1);
    assert_eq!(world.say(CALLER, call(1, Asked::Stream)), 1, "the call goes to the provider");
    answers(world, (0..FEW * 2).map(|seq| chunk(1, seq)).collect(), times)
}

/// Each goes on to the caller.
fn answers(mut world: World, messages: Vec<Bytes>, times: u64) -> Duration {
    let begun = Instant::now();
    for message in messages.into_iter().take(at_most(times)) {
        assert_eq!(world.say(PROVIDER, message), 1, "each answer is passed on");
    }
    begun.elapsed()
}

fn hub_update(times: u64) -> Duration {
    let mut world = World::new(1);
    let messages = vec![update(); at_most(FEW * 2)];
    let begun = Instant::now();
    for message in messages.into_iter().take(at_most(times)) {
        assert_eq!(world.say(PROVIDER, message), 0, "it wants no answer");
    }
    begun.elapsed()
}

fn hub_notice(times: u64) -> Duration {
    let mut world = World::new(AGENTS);
    let notices: Vec<Bytes> = (1..=FEW_NOTICES * 2).map(|id| call(id, Asked::Notice)).collect();
    let begun = Instant::now();
    for message in notices.into_iter().take(at_most(times)) {
        told(&mut world, message);
    }
    begun.elapsed()
}

fn hub_heard(times: u64) -> Duration {
    let mut world = World::new(AGENTS);
    for id in 1..=FEW_NOTICES * 2 {
        told(&mut world, call(id, Asked::Notice));
    }
    // Every agent gets every notice, so their ids are alike.
    let answers: Vec<Bytes> = (1..=FEW_NOTICES * 2).map(heard).collect();
    let begun = Instant::now();
    for message in answers.into_iter().take(at_most(times)) {
        // A part for each, and the end.
        let parts: usize = (1..=AGENTS).map(|place| world.say(place, message.clone())).sum();
        assert_eq!(parts, AGENTS as usize + 1, "the sender hears of all");
    }
    begun.elapsed()
}

fn told(world: &mut World, message: Bytes) {
    assert!(message.len() > NOTICE.len(), "it carries its body");
    assert_eq!(world.say(CALLER, message), AGENTS as usize, "each agent gets it");
}

fn at_most(times: u64) -> usize {
    usize::try_from(times).unwrap_or(usize::MAX)
}
