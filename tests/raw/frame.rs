//! WebSocket frames as bytes (RFC 6455, section 5.2), so that a test may also send what no library would.

use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// The subprotocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    MsgPack,
    Json,
}

impl Format {
    /// Both, for tests that hold on either.
    pub(crate) const BOTH: [Self; 2] = [Self::MsgPack, Self::Json];

    /// The subprotocol's name in the handshake.
    pub(crate) fn subprotocol(self) -> &'static str {
        match self {
            Self::MsgPack => "agent-reach.v1.msgpack",
            Self::Json => "agent-reach.v1.json",
        }
    }

    /// The opcode that carries its envelopes.
    pub(crate) fn opcode(self) -> u8 {
        match self {
            Self::MsgPack => BINARY,
            Self::Json => TEXT,
        }
    }
}

/// A masked frame, as a client sends it: the last of its message when `fin`.
pub(crate) fn frame(opcode: u8, fin: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(opcode | if fin { 0x80 } else { 0 }, payload.len() as u64);
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The first bytes of a masked frame up to its length; `first` is the whole first byte.
pub(crate) fn header(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..=125 => bytes.push(0x80 | u8::try_from(length).expect("small")),
        126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&u16::try_from(length).expect("two bytes").to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
    bytes
}

/// One frame from the hub.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) fin: bool,
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

/// Reads one frame and checks what every frame of the hub must be: unmasked and without extension bits.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Frame> {
    let first = stream.read_u8().await?;
    assert_eq!(first & 0x70, 0, "the hub set an extension bit, though nothing was negotiated");
    let second = stream.read_u8().await?;
    assert_eq!(second & 0x80, 0, "a server never masks");
    let length = match second {
        126 => u64::from(stream.read_u16().await?),
        127 => stream.read_u64().await?,
        short => u64::from(short),
    };
    assert!(length <= 64 << 20, "the hub announces a frame of {length} bytes");
    let mut payload = vec![0; usize::try_from(length).expect("checked")];
    stream.read_exact(&mut payload).await?;
    Ok(Frame { fin: first & 0x80 != 0, opcode: first & 0x0f, payload })
}
