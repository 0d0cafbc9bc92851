use super::*;

fn call(number: u64, target: Option<&Arc<str>>) -> CallRecord {
    CallRecord {
        call_id: CallId::new(7, number),
        task: None,
        request_id: format!("request-{number}").into(),
        caller: "caller".into(),
        target: target.cloned(),
        capability: "text.count".into(),
        started_ms: 1_700_000_000_000 + number,
        ended_ms: 1_700_000_000_010 + 3 * number,
        attempts: 2,
        targets: [].into(),
        trace: None,
        by_hub: false,
    }
}

fn read(call: &CallRecord, outcome: &str) -> StoredRecord {
    StoredRecord {
        call_id: call.call_id.to_string(),
        task: None,
        request_id: call.request_id.to_string(),
        caller: call.caller.to_string(),
        target: call.target.as_deref().map(str::to_owned),
        capability: call.capability.to_string(),
        mode: "call".into(),
        started_ms: call.started_ms,
        ended_ms: call.ended_ms,
        outcome: outcome.into(),
        attempts: call.attempts,
    }
}

#[test]
fn what_was_written_is_read_whichever_names_come_again() {
    // More names than are remembered, each twice, and times that go back.
    let names: Vec<Arc<str>> = (0..600).map(|number| format!("agent-{number}").into()).collect();
    let mut writer = BlockWriter::default();
    let mut expected = Vec::new();
    for number in (0..1200_u32).rev() {
        let target = (number % 7 != 0).then(|| &names[number as usize % names.len()]);
        let call = call(u64::from(number), target);
        let outcome = if number % 5 == 0 { "timeout" } else { "completed" };
        assert!(writer.add(Record { call: &call, mode: "call", outcome }));
        expected.push(read(&call, outcome));
    }
    let block = writer.take(Vec::new());
    assert_eq!(block.records().unwrap(), expected);
    assert_eq!((block.first_ms, block.last_ms), (1_700_000_000_010, 1_700_000_003_607));
    // Nothing of it counts in the next.
    let one = call(1, Some(&names[1]));
    assert!(writer.add(Record { call: &one, mode: "call", outcome: "completed" }));
    let next = writer.take(Vec::new());
    assert_eq!((next.count, next.records().unwrap()), (1, vec![read(&one, "completed")]));
}

#[test]
fn a_name_that_stands_in_a_block_is_a_byte_or_two() {
    let (target, mut writer) = (Arc::from("worker-of-a-long-name"), BlockWriter::default());
    let first = call(1, Some(&target));
    let again = CallRecord { call_id: CallId::new(7, 2), ended_ms: first.ended_ms + 1, ..first.clone() };
    for call in [&first, &again] {
        assert!(writer.add(Record { call, mode: "call", outcome: "completed" }));
    }
    let block = writer.take(Vec::new());
    assert_eq!(block.records().unwrap(), [read(&first, "completed"), read(&again, "completed")]);
    let names = "caller".len() + target.len() + "text.count".len() + "call".len() + "completed".len();
    assert!(block.bytes.len() < 2 * (names + 40) - names, "{}", block.bytes.len());
}

#[test]
fn call_ids_of_several_lives_of_a_hub_stand_in_one_block() {
    let mut writer = BlockWriter::default();
    let ids = [(7, 5), (7, 3), (8, u64::MAX), (8, 0), (8, 1 << 63), (7, 4)];
    let calls =
        ids.map(|(epoch, number)| CallRecord { call_id: CallId::new(epoch, number), ..call(1, None) });
    for call in &calls {
        assert!(writer.add(Record { call, mode: "call", outcome: "completed" }));
    }
    let read: Vec<String> =
        writer.take(Vec::new()).records().unwrap().into_iter().map(|record| record.call_id).collect();
    assert_eq!(read, calls.map(|call| call.call_id.to_string()));
}

#[test]
fn blocks_of_earlier_versions_are_read() {
    let record = read(&call(3, Some(&"worker".into())), "completed");
    let bytes = rmp_serde::to_vec(&[&record, &record]).unwrap();
    let mut old = vec![ARRAY_32, 0, 0, 0, 2];
    old.extend_from_slice(&bytes[1..]);
    let block = RecordBlock { first_ms: 1, last_ms: 1, count: 2, bytes: old };
    assert_eq!(block.records().unwrap(), [record.clone(), record]);
}

#[test]
fn a_block_that_is_spoiled_is_told_as_such() {
    let mut writer = BlockWriter::default();
    assert!(writer.add(Record { call: &call(1, None), mode: "call", outcome: "completed" }));
    let block = writer.take(Vec::new());
    let cut = |bytes: &[u8], count| RecordBlock { bytes: bytes.to_vec(), count, ..block.clone() };
    for bad in [cut(&block.bytes[..20], 1), cut(&block.bytes, 2), cut(&[0x90], 1), cut(&[], u32::MAX)] {
        assert_eq!(bad.records().unwrap_err().kind, StoreErrorKind::Corrupt);
    }
    // It speaks of a text that it does not have.
    let place = block.bytes.windows(7).position(|part| part == b"\xa6caller").unwrap();
    let mut bytes = block.bytes.clone();
    bytes.splice(place..place + 7, [9]);
    assert_eq!(cut(&bytes, 1).records().unwrap_err().kind, StoreErrorKind::Corrupt);
}
