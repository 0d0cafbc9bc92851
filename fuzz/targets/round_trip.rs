//! What is read is written, and read again as the same.

use agent_reach_protocol::json::{from_msgpack, to_msgpack};
use bytes::Bytes;

use super::message::Message;

pub(crate) fn run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    for to_hub in [true, false] {
        msgpack(&bytes, to_hub);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        json(text);
    }
    if let Ok(text) = from_msgpack(data) {
        json(&text);
    }
}

fn msgpack(bytes: &Bytes, to_hub: bool) {
    let Ok(read) = Message::read(bytes, to_hub) else { return };
    let written = read.encoded();
    assert!(written.len() <= 9 * bytes.len(), "{} bytes became {}", bytes.len(), written.len());
    let again = Message::read(&written, to_hub).expect("what was written is read");
    // As text, since NaN may stand inside values that are carried through and is not equal to itself.
    assert_eq!(format!("{again:?}"), format!("{read:?}"));
    assert_eq!(again.encoded(), written);
}

/// A text need not come back as it was: `{"$int": "7"}` comes back as `7`. After one way through MessagePack it
/// is what the hub itself would write, and that no longer changes.
fn json(text: &str) {
    let Ok(converted) = to_msgpack(text) else { return };
    if converted.fault.is_some() {
        return;
    }
    let Ok(settled) = from_msgpack(&converted.envelope) else { return };
    let again = to_msgpack(&settled).expect("the hub's own text is an envelope");
    assert_eq!(again.fault, None, "{settled}");
    assert_eq!(from_msgpack(&again.envelope).as_ref(), Ok(&settled));
}
