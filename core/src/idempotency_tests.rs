use super::*;

fn ends(text: &'static str) -> Ends {
    smallvec::smallvec![Bytes::from_static(text.as_bytes())]
}

fn memory(bound: usize) -> (Memory, Arc<str>) {
    (Memory::new(bound, 7), "identity".into())
}

const NOW: Now = Now::from_micros(0);

/// An end that only memory keeps.
fn kept(text: &'static str, until_ms: u64) -> Kept {
    Kept { ends: ends(text), until: NOW.plus_ms(until_ms), good_at: None, stored: None }
}

#[test]
fn a_request_id_is_open_then_ended_then_forgotten() {
    let (mut memory, identity) = memory(1 << 20);
    let print = Fingerprint::of("a", Some(b"x"));
    assert!(matches!(memory.look_up(NOW, "identity", "r", print), Known::No));
    let entry = memory.open(Arc::clone(&identity), "r", print, 3);
    assert!(matches!(memory.look_up(NOW, "identity", "r", print), Known::Open(3)));
    memory.end(entry, kept("done", 10));
    assert!(matches!(memory.look_up(NOW, "identity", "r", print), Known::Ended(e) if e == ends("done")));
    let later = NOW.plus_ms(10);
    assert!(matches!(memory.look_up(later, "identity", "r", print), Known::No));
    memory.expire(later);
    assert_eq!((memory.len(), memory.bytes()), (0, 0));
}

#[test]
fn another_body_or_capability_conflicts_and_another_identity_does_not() {
    let (mut memory, identity) = memory(1 << 20);
    memory.open(Arc::clone(&identity), "r", Fingerprint::of("a", Some(b"x")), 3);
    for other in
        [Fingerprint::of("a", Some(b"y")), Fingerprint::of("b", Some(b"x")), Fingerprint::of("a", None)]
    {
        assert!(matches!(memory.look_up(NOW, "identity", "r", other), Known::Conflict));
    }
    assert!(matches!(memory.look_up(NOW, "other", "r", Fingerprint::of("a", Some(b"x"))), Known::No));
}

#[test]
fn an_id_that_is_used_again_after_its_end_expired_is_not_forgotten_with_the_old_end() {
    let (mut memory, identity) = memory(1 << 20);
    let print = Fingerprint::of("a", None);
    let entry = memory.open(Arc::clone(&identity), "r", print, 0);
    memory.end(entry, kept("old", 10));
    // No sweep has come by: the old end gives way, and the new entry takes its place.
    let again = memory.open(Arc::clone(&identity), "r", print, 1);
    assert_eq!(again, entry);
    memory.expire(NOW.plus_ms(20));
    assert!(matches!(memory.look_up(NOW.plus_ms(20), "identity", "r", print), Known::Open(1)));
    memory.end(again, kept("new", 40));
    memory.expire(NOW.plus_ms(30));
    assert_eq!(memory.len(), 1);
    memory.expire(NOW.plus_ms(40));
    assert_eq!((memory.len(), memory.bytes(), memory.is_empty()), (0, 0, true));
}

#[test]
fn among_many_each_is_found_until_it_is_removed_and_not_after() {
    let (mut memory, identity) = memory(1 << 20);
    let print = Fingerprint::of("a", None);
    let mut rng = crate::rng::Rng::new(3);
    let mut open: Vec<(u32, String)> = Vec::new();
    for n in 0..3000 {
        if n % 3 == 2 {
            let (index, name) = open.swap_remove(rng.below(open.len()));
            memory.remove(index);
            assert!(!memory.has("identity", &name));
        } else {
            let name = format!("id-{n}");
            let index = memory.open(Arc::clone(&identity), &name, print, n);
            open.push((index, name));
        }
    }
    assert!(open.iter().all(|(_, name)| memory.has("identity", name)));
    assert!(open.len() == memory.len() && memory.index.len() == memory.len());
}

#[test]
fn past_the_bound_the_soonest_to_expire_goes_first() {
    let (mut memory, identity) = memory(2 * (ENTRY_BYTES + 64));
    let print = Fingerprint::of("a", None);
    let mut forgotten = 0;
    for (name, until) in [("late", 30), ("soon", 10), ("middle", 20)] {
        let entry = memory.open(Arc::clone(&identity), name, print, 0);
        forgotten += memory.end(entry, kept("e", until));
    }
    assert_eq!(forgotten, 1);
    assert!(matches!(memory.look_up(NOW, "identity", "soon", print), Known::No));
    assert!(matches!(memory.look_up(NOW, "identity", "late", print), Known::Ended(_)));
}

#[test]
fn a_large_memory_lets_several_go_at_once_and_never_passes_its_bound() {
    let bound = 16 << 20;
    let (mut memory, identity) = memory(bound);
    let print = Fingerprint::of("a", None);
    let (mut forgotten, mut most_at_once, all) = (0, 0, 100_000);
    for n in 0..all {
        let entry = memory.open(Arc::clone(&identity), &format!("r{n}"), print, 0);
        let gone = memory.end(entry, kept("e", 100 + n));
        assert!(memory.bytes() <= bound, "{}", memory.bytes());
        (forgotten, most_at_once) = (forgotten + gone, most_at_once.max(gone));
    }
    assert!(most_at_once > 1, "there is room for more than one afterwards");
    let left = all - forgotten as u64;
    assert_eq!(memory.len() as u64, left);
    for n in 0..all {
        let known = memory.look_up(NOW, "identity", &format!("r{n}"), print);
        assert_eq!(matches!(known, Known::Ended(_)), n >= all - left, "{n}: {known:?}");
    }
}

#[test]
fn past_the_bound_what_the_store_keeps_is_known_to_be_there_and_not_counted_as_forgotten() {
    let (mut memory, identity) = memory(64 * (ENTRY_BYTES + 64));
    let print = Fingerprint::of("a", None);
    let mut forgotten = 0;
    for n in 0..100_u64 {
        let entry = memory.open(Arc::clone(&identity), &format!("r{n}"), print, 0);
        let stored = (n % 2 == 0).then_some(n + 1);
        forgotten += memory.end(entry, Kept { stored, ..kept("e", 100 + n) });
    }
    let gone = 100 - memory.len();
    assert!(gone > 10 && forgotten == gone / 2, "{forgotten} of {gone} that had no room");
    assert!(matches!(memory.look_up(NOW, "identity", "r0", print), Known::Coming), "it is not written yet");
    memory.is_nowhere("identity", "r0");
    memory.elsewhere.written(100);
    assert!(matches!(memory.look_up(NOW, "identity", "r0", print), Known::Elsewhere));
    assert!(matches!(memory.look_up(NOW, "identity", "r1", print), Known::No));
    assert!(matches!(memory.look_up(NOW, "identity", "r99", print), Known::Ended(_)));
    memory.is_nowhere("identity", "r0");
    assert!(matches!(memory.look_up(NOW, "identity", "r0", print), Known::No));
    memory.expire(NOW.plus_ms(1000));
    assert!(matches!(memory.look_up(NOW.plus_ms(1000), "identity", "r0", print), Known::No));
    assert!(memory.is_empty());
}

#[test]
fn a_task_that_has_ended_is_known_by_its_name() {
    let (mut memory, identity) = memory(1 << 20);
    let print = Fingerprint::of("a", None).of_task();
    let entry = memory.open(Arc::clone(&identity), "r", print, 0);
    memory.end_task(entry, TaskId::from_bits(9), NOW.plus_ms(10), 1);
    assert!(matches!(memory.look_up(NOW, "identity", "r", print), Known::Task(task) if task.bits() == 9));
    let call = Fingerprint::of("a", None);
    assert!(
        matches!(memory.look_up(NOW, "identity", "r", call), Known::Conflict),
        "a call is another intent"
    );
    memory.expire(NOW.plus_ms(10));
    assert_eq!((memory.len(), memory.bytes()), (0, 0));
}
