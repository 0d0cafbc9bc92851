//! Messages of either direction, read and written.

use agent_reach_protocol::{DecodeError, ToAgent, ToHub, decode_to_agent, decode_to_hub, encode};
use bytes::Bytes;

/// A message of either direction.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    ToHub(ToHub<'a>, Option<Bytes>),
    ToAgent(ToAgent<'a>, Option<Bytes>),
}

impl<'a> Message<'a> {
    pub(crate) fn read(bytes: &'a Bytes, to_hub: bool) -> Result<Self, DecodeError> {
        if to_hub {
            decode_to_hub(bytes, None).map(|(envelope, body)| Self::ToHub(envelope, body))
        } else {
            decode_to_agent(bytes).map(|(envelope, body)| Self::ToAgent(envelope, body))
        }
    }

    pub(crate) fn encoded(&self) -> Bytes {
        match self {
            Self::ToHub(envelope, body) => encode_to_hub(envelope, body.as_deref()),
            Self::ToAgent(envelope, body) => encode_to_agent(envelope, body.as_deref()),
        }
    }
}

fn encode_to_hub(envelope: &ToHub<'_>, body: Option<&[u8]>) -> Bytes {
    match envelope {
        ToHub::Hello(header) => encode(header, body),
        ToHub::Update(header) => encode(header, body),
        ToHub::Goodbye(header) => encode(header, body),
        ToHub::Call(header) => encode(header, body),
        ToHub::Accept(header) => encode(header, body),
        ToHub::Chunk(header) => encode(header, body),
        ToHub::Credit(header) => encode(header, body),
        ToHub::Result(header) => encode(header, body),
        ToHub::Cancel(header) => encode(header, body),
        ToHub::Receipt(header) => encode(header, body),
    }
}

fn encode_to_agent(envelope: &ToAgent<'_>, body: Option<&[u8]>) -> Bytes {
    match envelope {
        ToAgent::Welcome(header) => encode(header, body),
        ToAgent::Goodbye(header) => encode(header, body),
        ToAgent::Error(header) => encode(header, body),
        ToAgent::Call(header) => encode(header, body),
        ToAgent::Accept(header) => encode(header, body),
        ToAgent::Chunk(header) => encode(header, body),
        ToAgent::Credit(header) => encode(header, body),
        ToAgent::Result(header) => encode(header, body),
        ToAgent::Cancel(header) => encode(header, body),
    }
}
