//! Frames of a client: the same messages however their bytes are cut, and nothing over the limit.

use agent_reach::websocket::{Fault, Message, Reader};

const LIMIT: usize = 1000;

pub(crate) fn run(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(read(bytes, 1), whole, "byte by byte");
    assert_eq!(read(bytes, usize::from(*cut).max(1)), whole, "in pieces of {cut}");
    for message in &whole.0 {
        let length = match message {
            Message::Text(text) => text.len(),
            Message::Binary(bytes) => bytes.len(),
            Message::Ping(payload) => payload.len(),
            Message::Pong | Message::Close(_) => 0,
        };
        assert!(length <= LIMIT);
    }
}

fn read(bytes: &[u8], pieces: usize) -> (Vec<Message>, Option<Fault>) {
    let mut reader = Reader::new(LIMIT);
    let mut heard = Vec::new();
    for piece in bytes.chunks(pieces) {
        if let Err(fault) = reader.read(piece, &mut |message| heard.push(message)) {
            return (heard, Some(fault));
        }
    }
    (heard, None)
}
