//! What is counted. What an operation needs is made before, as often for few runs as for many.

use std::hint::black_box;

use agent_reach_protocol::{decode_to_hub, encode};
use bytes::Bytes;

use crate::envelopes::{
    Asked, BODY, NOTICE, accept, call, chunk, dispatch, heard, result, told_result, update,
};
use crate::world::{CALLER, World};

/// One thing that is counted.
pub(crate) struct Operation {
    /// What it is.
    pub(crate) name: &'static str,
    /// How often it is run, and then twice as often.
    pub(crate) few: u64,
    /// Runs it so many times: not more than twice `few`.
    pub(crate) run: fn(u64),
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
    Operation { name: "hub: ACCEPT", few: FEW, run: hub_accept },
    Operation { name: "hub: RESULT that stands for ACCEPT", few: FEW, run: hub_result },
    Operation { name: "hub: CHUNK", few: FEW, run: hub_chunk },
    Operation { name: "hub: UPDATE with load", few: FEW, run: hub_update },
    Operation { name: "hub: notice of 256 B to 100 agents, the CALL", few: FEW_NOTICES, run: hub_notice },
    Operation { name: "hub: notice of 256 B to 100 agents, their RESULTs", few: FEW_NOTICES, run: hub_heard },
];

fn decode(message: &Bytes, times: u64) {
    for _ in 0..times {
        let _decoded = black_box(decode_to_hub(black_box(message), None));
    }
}

fn encode_call(times: u64) {
    let header = dispatch();
    for _ in 0..times {
        black_box(encode(black_box(&header), Some(&BODY)));
    }
}

fn encode_result(times: u64) {
    let header = told_result();
    for _ in 0..times {
        black_box(encode(black_box(&header), Some(&BODY)));
    }
}

/// The CALL comes and goes out to a provider.
fn hub_call(providers: u32, times: u64) {
    let mut world = World::new(providers);
    let calls: Vec<Bytes> = (1..=FEW * 2).map(|id| call(id, Asked::Plain)).collect();
    for message in calls.into_iter().take(at_most(times)) {
        assert_eq!(world.say(CALLER, message), 1, "each call goes to one provider");
    }
}

/// A hub with open calls at its only provider.
fn open_calls() -> World {
    let mut world = World::new(1);
    for id in 1..=FEW * 2 {
        assert_eq!(world.say(CALLER, call(id, Asked::Plain)), 1, "each call goes to the provider");
    }
    world
}

fn hub_accept(times: u64) {
    answers(open_calls(), (1..=FEW * 2).map(accept).collect(), times);
}

fn hub_result(times: u64) {
    answers(open_calls(), (1..=FEW * 2).map(result).collect(), times);
}

fn hub_chunk(times: u64) {
    let mut world = World::new(1);
    assert_eq!(world.say(CALLER, call(1, Asked::Stream)), 1, "the call goes to the provider");
    answers(world, (0..FEW * 2).map(|seq| chunk(1, seq)).collect(), times);
}

/// Each goes on to the caller.
fn answers(mut world: World, messages: Vec<Bytes>, times: u64) {
    for message in messages.into_iter().take(at_most(times)) {
        assert_eq!(world.say(PROVIDER, message), 1, "each answer is passed on");
    }
}

fn hub_update(times: u64) {
    let mut world = World::new(1);
    let messages = vec![update(); at_most(FEW * 2)];
    for message in messages.into_iter().take(at_most(times)) {
        assert_eq!(world.say(PROVIDER, message), 0, "it wants no answer");
    }
}

fn hub_notice(times: u64) {
    let mut world = World::new(AGENTS);
    let notices: Vec<Bytes> = (1..=FEW_NOTICES * 2).map(|id| call(id, Asked::Notice)).collect();
    for message in notices.into_iter().take(at_most(times)) {
        told(&mut world, message);
    }
}

fn hub_heard(times: u64) {
    let mut world = World::new(AGENTS);
    for id in 1..=FEW_NOTICES * 2 {
        told(&mut world, call(id, Asked::Notice));
    }
    // Every agent gets every notice, so their ids are alike.
    let answers: Vec<Bytes> = (1..=FEW_NOTICES * 2).map(heard).collect();
    for message in answers.into_iter().take(at_most(times)) {
        // A part for each, and the end.
        let parts: usize = (1..=AGENTS).map(|place| world.say(place, message.clone())).sum();
        assert_eq!(parts, AGENTS as usize + 1, "the sender hears of all");
    }
}

fn told(world: &mut World, message: Bytes) {
    assert!(message.len() > NOTICE.len(), "it carries its body");
    assert_eq!(world.say(CALLER, message), AGENTS as usize, "each agent gets it");
}

fn at_most(times: u64) -> usize {
    usize::try_from(times).unwrap_or(usize::MAX)
}
