//! In which order calls that wait are let go, whatever they ask and however many come.
#![cfg(test)]

mod world;

use std::collections::VecDeque;

use agent_reach_protocol::{Call, Hello, Labels, Priority, ToAgent, decode_to_agent};
use proptest::prelude::*;
use world::{World, call, caller, completed, provider};

/// Every one of so many turns at the latest is for each urgency.
const TURNS: u64 = 8;

/// A call that waits, and before which of the turns it has to be let go.
struct Waits {
    id: u64,
    due: u64,
}

fn lane(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

/// The caller's id of the one call that was given, which is its body.
fn given(w: &mut World) -> Option<u64> {
    let batch = w.take("p");
    assert!(batch.len() <= 1, "one slot, one call");
    let message = batch.first()?.message()?;
    let Ok((ToAgent::Call(_), Some(body))) = decode_to_agent(&message) else { panic!("a CALL with a body") };
    Some(String::from_utf8_lossy(&body).parse().unwrap())
}

/// If a call was let go: it is the first of its urgency, and in time.
fn let_go(w: &mut World, lanes: &mut [VecDeque<Waits>; 3], turn: &mut u64) {
    let Some(id) = given(w) else { return };
    *turn += 1;
    let of = lanes.iter_mut().find(|lane| lane.front().is_some_and(|first| first.id == id));
    let first = of.and_then(VecDeque::pop_front);
    let first = first.unwrap_or_else(|| panic!("{id} was not the first of its urgency"));
    assert!(*turn <= first.due, "{id} has turn {turn}, and {} was its last", first.due);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Calls of one urgency go in the order in which they came, whichever line they stand in, and each waits for a
    /// bounded number of turns: so many for each of its own urgency before it, and for itself.
    #[test]
    fn nobody_is_overtaken_by_more_than_a_bounded_number(
        steps in proptest::collection::vec((0_u8..3, 0_u8..3, 0_u8..4), 1..250),
    ) {
        let mut w = World::new();
        let zone = || Labels(vec![("zone", "east"), ("gpu", "yes")]);
        w.join("p", Hello { max_concurrency: Some(1), labels: zone(), ..provider("p", "a") });
        w.join("c", caller("c"));
        let mut lanes: [VecDeque<Waits>; 3] = Default::default();
        let (mut turn, mut run) = (0, 0);
        for (id, (priority, demand, what)) in (1..).zip(&steps) {
            let priority = [Priority::High, Priority::Normal, Priority::Low][usize::from(*priority)];
            let require = Labels(zone().0.into_iter().take(usize::from(*demand)).collect());
            let ask = Call { priority: Some(priority), require, queue: None, ..call(id, "a") };
            w.say_with("c", &ask, &id.to_string());
            let before = lanes[lane(priority)].len() as u64;
            lanes[lane(priority)].push_back(Waits { id, due: turn + TURNS * (before + 1) });
            let_go(&mut w, &mut lanes, &mut turn);
            // At times more come than end, at times fewer.
            for _ in 0..what.saturating_sub(1) {
                if run == turn {
                    break;
                }
                run += 1;
                w.say("p", &completed(run));
                w.heard("c");
                let_go(&mut w, &mut lanes, &mut turn);
            }
        }
        while run < turn {
            run += 1;
            w.say("p", &completed(run));
            let_go(&mut w, &mut lanes, &mut turn);
        }
        prop_assert!(lanes.iter().all(VecDeque::is_empty) && w.hub.gauges().calls == 0);
    }
}
