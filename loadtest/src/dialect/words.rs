//! The relay's dialect: `[to: u32][from: u32][what: u8][id: 56 bits]` and the body. A first message of four bytes
//! says who comes.

use anyhow::{Result, anyhow, bail};
use bytes::{Buf, Bytes};

use super::{Ask, CallKey, Heard, Outcome, Told, Want};

/// A message to all agents.
pub(crate) const EVERYBODY: u32 = u32::MAX;
/// A message that only says that its sender lives.
const NOBODY: u32 = u32::MAX - 1;

const HEAD_BYTES: usize = 16;
/// A call, or its result.
const CALL: u8 = 0;
const STREAM: u8 = 1;
const CHUNK: u8 = 2;
const CREDIT: u8 = 3;
const NOTICE: u8 = 4;

/// Where a message goes.
pub(crate) fn destination(message: &[u8]) -> Option<u32> {
    message.first_chunk().map(|to| u32::from_be_bytes(*to))
}

/// What the relay itself says to the sender of a message to all, when it has left for each.
pub(crate) fn notice_answer(notice: &[u8]) -> Option<Bytes> {
    let Parts { from, id, .. } = parts(&Bytes::copy_from_slice(notice)).ok()?;
    Some(message(from, NOBODY, CALL, id, &[]))
}

pub(super) fn hello(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

pub(super) fn keepalive() -> Bytes {
    // About as long as an UPDATE with load.
    message(NOBODY, 0, CALL, 0, &[&[0; 40]])
}

pub(super) fn call(caller: u32, id: u64, ask: Ask, body: &[u8]) -> Bytes {
    match ask.want {
        Want::Result { .. } => message(ask.agent, caller, CALL, id, &[body]),
        Want::Notice => message(EVERYBODY, caller, NOTICE, id, &[body]),
        Want::Chunks { credit } => message(ask.agent, caller, STREAM, id, &[&credit.to_be_bytes(), body]),
    }
}

pub(super) fn credit(caller: u32, id: u64, agent: u32, n: u64) -> Bytes {
    message(agent, caller, CREDIT, id, &[&n.to_be_bytes()])
}

pub(super) fn result(number: u32, (caller, id): CallKey, body: &[u8]) -> Bytes {
    message(caller, number, CALL, id, &[body])
}

pub(super) fn chunk(number: u32, (caller, id): CallKey, seq: u64, body: &[u8]) -> Bytes {
    message(caller, number, CHUNK, id, &[&seq.to_be_bytes(), body])
}

pub(super) fn heard(message: &Bytes) -> Result<Heard> {
    let Parts { from, what, id, mut body } = parts(message)?;
    let call = (from, id);
    match what {
        CALL => Ok(Heard::Call(call, body)),
        STREAM => {
            let credit = body.try_get_u64()?;
            Ok(Heard::Stream(call, body, credit))
        }
        CREDIT => Ok(Heard::Credit(call, body.try_get_u64()?)),
        NOTICE => Ok(Heard::Notice),
        other => bail!("a word {other} to an agent"),
    }
}

pub(super) fn told(message: &Bytes) -> Result<Told> {
    let Parts { what, id, mut body, .. } = parts(message)?;
    match what {
        CALL => Ok(Told::Ended(id, Outcome::Completed(body))),
        CHUNK => {
            let seq = body.try_get_u64()?;
            Ok(Told::Chunk(id, seq, body))
        }
        other => bail!("a word {other} to a caller"),
    }
}

fn message(to: u32, from: u32, what: u8, id: u64, body: &[&[u8]]) -> Bytes {
    let length = body.iter().map(|part| part.len()).sum::<usize>();
    let mut message = Vec::with_capacity(HEAD_BYTES + length);
    message.extend_from_slice(&to.to_be_bytes());
    message.extend_from_slice(&from.to_be_bytes());
    message.extend_from_slice(&(u64::from(what) << 56 | id).to_be_bytes());
    body.iter().for_each(|part| message.extend_from_slice(part));
    message.into()
}

struct Parts {
    from: u32,
    what: u8,
    id: u64,
    body: Bytes,
}

fn parts(message: &Bytes) -> Result<Parts> {
    let mut body = message.clone();
    if body.len() < HEAD_BYTES {
        return Err(anyhow!("a relayed message without its head"));
    }
    body.advance(4);
    let from = body.get_u32();
    let [what, ..] = body.chunk() else { bail!("a relayed message without its head") };
    let what = *what;
    let id = body.get_u64() & (u64::MAX >> 8);
    Ok(Parts { from, what, id, body })
}

#[cfg(test)]
mod tests {
    use super::super::FIRST_CALLER;
    use super::*;

    fn asked(want: Want) -> Bytes {
        call(FIRST_CALLER, 7, Ask { capability: 9, agent: 3, want }, b"body")
    }

    #[test]
    fn an_agent_gives_a_relayed_body_back_to_who_sent_it() {
        let call = asked(Want::Result { directed: false });
        assert_eq!(destination(&call), Some(3));
        let Ok(Heard::Call(key, body)) = heard(&call) else { panic!("no call") };
        let answer = result(3, key, &body);
        assert_eq!(destination(&answer), Some(FIRST_CALLER));
        assert_eq!(told(&answer).unwrap(), Told::Ended(7, Outcome::Completed("body".into())));
    }

    #[test]
    fn the_relay_answers_a_notice_that_no_agent_does() {
        let notice = asked(Want::Notice);
        assert_eq!(destination(&notice), Some(EVERYBODY));
        assert_eq!(heard(&notice).unwrap(), Heard::Notice);
        let answer = notice_answer(&notice).unwrap();
        assert_eq!(destination(&answer), Some(FIRST_CALLER));
        assert_eq!(told(&answer).unwrap(), Told::Ended(7, Outcome::Completed(Bytes::new())));
    }

    #[test]
    fn a_stream_goes_by_chunks_and_credit() {
        let key = (FIRST_CALLER, 7);
        let stream = asked(Want::Chunks { credit: 5 });
        assert_eq!(heard(&stream).unwrap(), Heard::Stream(key, "body".into(), 5));
        assert_eq!(heard(&credit(FIRST_CALLER, 7, 3, 8)).unwrap(), Heard::Credit(key, 8));
        assert_eq!(told(&chunk(3, key, 9, b"piece")).unwrap(), Told::Chunk(7, 9, "piece".into()));
    }

    #[test]
    fn a_message_without_its_head_is_an_error() {
        assert!(heard(&Bytes::from_static(&[0; 15])).is_err());
        assert!(told(&Bytes::new()).is_err());
    }
}
