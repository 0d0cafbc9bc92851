//! What waits to be written, as data: control first, bodies in order.

use std::collections::VecDeque;

use bytes::Bytes;

/// Past this many queued bytes the session takes no further work from callers and handlers.
const ROOM_BYTES: usize = 256 * 1024;
/// Past this many queued bytes the socket is not read either: what is read can ask for answers.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// The queue of one connection. Emptied when the connection ends: what must survive is sent anew.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    control: VecDeque<Bytes>,
    /// With the id of the CALL that an entry is, so that a cancelled one can be taken back.
    bodies: VecDeque<(Option<u64>, Bytes)>,
    bytes: usize,
}

impl Outbound {
    /// ACCEPT, CREDIT, CANCEL, UPDATE: never waits behind bodies.
    pub(crate) fn control(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.control.push_back(message);
    }

    /// RESULT, CHUNK, GOODBYE: in the order sent.
    pub(crate) fn body(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.bodies.push_back((None, message));
    }

    /// CALL with this id.
    pub(crate) fn call(&mut self, id: u64, message: Bytes) {
        self.bytes += message.len();
        self.bodies.push_back((Some(id), message));
    }

    /// Takes back a CALL that was not written yet. A CANCEL would overtake it otherwise.
    pub(crate) fn withdraw(&mut self, id: u64) -> bool {
        let Some(place) = self.bodies.iter().position(|(call, _)| *call == Some(id)) else { return false };
        if let Some((_, message)) = self.bodies.remove(place) {
            self.bytes -= message.len();
        }
        true
    }

    /// The next message to write.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let message = self.control.pop_front().or_else(|| self.bodies.pop_front().map(|(_, m)| m))?;
        self.bytes -= message.len();
        Some(message)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.bodies.is_empty()
    }

    /// Whether callers and handlers may hand in more.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < ROOM_BYTES
    }

    /// Whether the socket may be read.
    pub(crate) const fn may_read(&self) -> bool {
        self.bytes < READ_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_overtakes_bodies_and_a_withdrawn_call_never_leaves() {
        let mut outbound = Outbound::default();
        outbound.body(Bytes::from_static(b"result"));
        outbound.call(7, Bytes::from_static(b"call"));
        outbound.control(Bytes::from_static(b"credit"));
        assert!(outbound.withdraw(7));
        assert!(!outbound.withdraw(7));
        assert_eq!(outbound.pop().unwrap(), "credit");
        assert_eq!(outbound.pop().unwrap(), "result");
        assert_eq!(outbound.pop(), None);
        assert_eq!(outbound.bytes, 0);
    }

    #[test]
    fn room_ends_at_the_bound() {
        let mut outbound = Outbound::default();
        outbound.body(Bytes::from(vec![0; ROOM_BYTES - 1]));
        assert!(outbound.has_room());
        outbound.body(Bytes::from_static(b"x"));
        assert!(!outbound.has_room() && outbound.may_read());
    }
}
