//! The envelope around a header: reading and writing whole messages.

use bytes::Bytes;

use super::call::{Accept, Call, CallResult, Cancel, Chunk, Credit, Dispatch, Receipt};
use super::field::{FieldError, FieldValue};
use super::session::{ErrorReply, Goodbye, Hello, Update, Welcome};
use crate::codec::{Cursor, Entries, Head, ReadError, Value, Writer};
use crate::limits::HEADER_DEPTH_MAX;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// Kinds of envelopes, with their numbers on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $variant = $number),* }

        impl Kind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The kind of a number, if this version has it.
            pub const fn from_number(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// The number on the wire.
            pub const fn number(self) -> u64 {
                self as u64
            }

            /// The name in prose, metrics and logs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

kinds! {
    /// agent -> hub: first envelope; registers.
    Hello = 1, "HELLO";
    /// hub -> agent: session opened.
    Welcome = 2, "WELCOME";
    /// agent -> hub: heartbeat with load; changes status or capabilities.
    Update = 3, "UPDATE";
    /// both: orderly end.
    Goodbye = 4, "GOODBYE";
    /// hub -> agent: an envelope could not be used.
    Error = 5, "ERROR";
    /// both: ask for work.
    Call = 10, "CALL";
    /// both: phase one.
    Accept = 11, "ACCEPT";
    /// both: one piece of a streamed result.
    Chunk = 12, "CHUNK";
    /// both: flow control of chunks.
    Credit = 13, "CREDIT";
    /// both: phase two.
    Result = 14, "RESULT";
    /// both: the asker no longer wants it.
    Cancel = 15, "CANCEL";
    /// agent -> hub: a task's result arrived.
    Receipt = 16, "RECEIPT";
}

/// A header that knows its kind.
pub trait Header<'a>: FieldValue<'a> {
    /// Kind of the envelope it heads.
    const KIND: Kind;
}

macro_rules! headers {
    ($($type:ident = $kind:ident),* $(,)?) => {
        $(impl<'a> Header<'a> for $type<'a> { const KIND: Kind = Kind::$kind; })*
    };
}

headers! {
    Hello = Hello, Welcome = Welcome, Update = Update, Goodbye = Goodbye, ErrorReply = Error, Call = Call,
    Dispatch = Call, Accept = Accept, Chunk = Chunk, Credit = Credit, CallResult = Result, Cancel = Cancel,
    Receipt = Receipt,
}

/// Room for a header of the usual size, in bytes.
const HEADER_ROOM: usize = 512;

/// Writes a whole envelope. The body is copied once, into the message that leaves.
pub fn encode<'a, H: Header<'a>>(header: &H, body: Option<&[u8]>) -> Bytes {
    // The header alone first: what is sent, and perhaps kept for a day, is then exactly as large as it says.
    let mut head = Writer::with_capacity(HEADER_ROOM);
    head.array(3);
    head.uint(H::KIND.number());
    header.write(&mut head);
    let head = head.into_bytes();
    let mut out = Writer::with_capacity(head.len() + body.map_or(1, |body| Writer::bin_len(body.len())));
    out.raw(&head);
    match body {
        Some(body) => out.bin(body),
        None => out.nil(),
    }
    out.into_bytes().into()
}

/// What an agent sends.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is the header of its kind")]
pub enum ToHub<'a> {
    Hello(Hello<'a>),
    Update(Update<'a>),
    Goodbye(Goodbye<'a>),
    Call(Call<'a>),
    Accept(Accept<'a>),
    Chunk(Chunk<'a>),
    Credit(Credit<'a>),
    Result(CallResult<'a>),
    Cancel(Cancel<'a>),
    Receipt(Receipt<'a>),
}

impl ToHub<'_> {
    /// Kind of the envelope.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Update(_) => Kind::Update,
            Self::Goodbye(_) => Kind::Goodbye,
            Self::Call(_) => Kind::Call,
            Self::Accept(_) => Kind::Accept,
            Self::Chunk(_) => Kind::Chunk,
            Self::Credit(_) => Kind::Credit,
            Self::Result(_) => Kind::Result,
            Self::Cancel(_) => Kind::Cancel,
            Self::Receipt(_) => Kind::Receipt,
        }
    }
}

/// What the hub sends.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is the header of its kind")]
pub enum ToAgent<'a> {
    Welcome(Welcome<'a>),
    Goodbye(Goodbye<'a>),
    Error(ErrorReply<'a>),
    Call(Dispatch<'a>),
    Accept(Accept<'a>),
    Chunk(Chunk<'a>),
    Credit(Credit<'a>),
    Result(CallResult<'a>),
    Cancel(Cancel<'a>),
}

impl ToAgent<'_> {
    /// Kind of the envelope.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Welcome(_) => Kind::Welcome,
            Self::Goodbye(_) => Kind::Goodbye,
            Self::Error(_) => Kind::Error,
            Self::Call(_) => Kind::Call,
            Self::Accept(_) => Kind::Accept,
            Self::Chunk(_) => Kind::Chunk,
            Self::Credit(_) => Kind::Credit,
            Self::Result(_) => Kind::Result,
            Self::Cancel(_) => Kind::Cancel,
        }
    }
}

/// Why a message could not be read, sorted by what it costs the sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Cannot be trusted as an envelope: the connection ends with GOODBYE `protocol_error`.
    #[error("{0}")]
    Untrusted(String),
    /// An envelope with a wrong header: answered with ERROR (or RESULT for a CALL); the connection stays.
    #[error("{kind:?}: {error}")]
    Malformed {
        /// Kind of the envelope.
        kind: Kind,
        /// Its id, if usable.
        id: Option<u64>,
        /// Which key, and why.
        error: FieldError,
    },
    /// A kind this version does not have: answered with ERROR `unknown_kind`; the connection stays.
    #[error("kind {kind} is not known")]
    UnknownKind {
        /// The number.
        kind: u64,
        /// Its id, if usable.
        id: Option<u64>,
    },
    /// A kind that only the other side sends: answered with ERROR `invalid_request`.
    #[error("{0:?} is not sent in this direction")]
    WrongDirection(Kind),
}

impl From<ReadError> for DecodeError {
    fn from(error: ReadError) -> Self {
        Self::Untrusted(error.to_string())
    }
}

/// What stands around a header.
struct Parts<'a> {
    kind: u64,
    body: Option<&'a [u8]>,
    /// What is wrong with the type of the body.
    body_fault: Option<FieldError>,
}

fn id_of(header: &Entries<'_>) -> Option<u64> {
    header.iter().find_map(|(key, value, _)| match (*key, *value) {
        ("id", Value::UInt(id)) => Some(id),
        _ => None,
    })
}

fn untrusted(reason: impl Into<String>) -> DecodeError {
    DecodeError::Untrusted(reason.into())
}

/// Splits a message into its three parts: the header's entries, checked for trust and not yet read, go into
/// `header`, which is too large to be handed on from function to function.
fn split<'a>(message: &'a [u8], header: &mut Entries<'a>) -> Result<Parts<'a>, DecodeError> {
    let mut cursor = Cursor::new(message);
    let Head::Array(parts @ (2 | 3)) = cursor.head()? else {
        return Err(untrusted("an envelope is an array of two or three: [kind, header, body]"));
    };
    let Head::UInt(kind) = cursor.head()? else {
        return Err(untrusted("the kind of an envelope is an unsigned integer"));
    };
    if !matches!({ cursor }.head()?, Head::Map(_)) {
        return Err(untrusted("the header of an envelope is a map"));
    }
    cursor.map_entries_into(HEADER_DEPTH_MAX, header)?;
    let (body, body_fault) = if parts == 2 { (None, None) } else { read_body(&mut cursor)? };
    if !cursor.rest().is_empty() {
        return Err(untrusted("bytes follow the envelope"));
    }
    Ok(Parts { kind, body, body_fault })
}

/// Reads the third element. A body of another type than bin or nil is well-formed MessagePack, so it fails
/// its envelope and not the connection; it still has to be skipped whole to know where the message ends.
/// The rules of a header (depth, keys) do not hold inside it.
fn read_body<'a>(cursor: &mut Cursor<'a>) -> Result<(Option<&'a [u8]>, Option<FieldError>), ReadError> {
    let start = *cursor;
    let head = cursor.head()?;
    if let Head::Bin(length) = head {
        return Ok((Some(cursor.take(length)?), None));
    }
    *cursor = start;
    cursor.skip()?;
    let fault = (!matches!(head, Head::Nil))
        .then(|| FieldError::new("body", format!("must be bytes or nil, not {}", head.kind())));
    Ok((None, fault))
}

/// Reads a message that an agent sent. `fault` is what the JSON edge found wrong with it, if anything.
///
/// # Errors
/// See [`DecodeError`] for what each costs.
pub fn decode_to_hub<'a>(
    message: &'a Bytes,
    fault: Option<FieldError>,
) -> Result<(ToHub<'a>, Option<Bytes>), DecodeError> {
    let (envelope, body) = read_to_hub(message, fault)?;
    Ok((envelope, body.map(|body| message.slice_ref(body))))
}

/// As [`decode_to_hub`], with the body as a part of the message.
///
/// # Errors
/// See [`DecodeError`] for what each costs.
pub fn read_to_hub(
    message: &[u8],
    fault: Option<FieldError>,
) -> Result<(ToHub<'_>, Option<&[u8]>), DecodeError> {
    let mut entries = Entries::new();
    let Parts { kind, body, body_fault } = split(message, &mut entries)?;
    let header = &entries;
    let Some(kind) = Kind::from_number(kind) else {
        return Err(DecodeError::UnknownKind { kind, id: id_of(header) });
    };
    let malformed = |error| DecodeError::Malformed { kind, id: id_of(header), error };
    if let Some(fault) = fault.or(body_fault) {
        return Err(malformed(fault));
    }
    let envelope = match kind {
        Kind::Hello => Hello::from_entries(header).map(ToHub::Hello),
        Kind::Update => Update::from_entries(header).map(ToHub::Update),
        Kind::Goodbye => Goodbye::from_entries(header).map(ToHub::Goodbye),
        Kind::Call => Call::from_entries(header).map(ToHub::Call),
        Kind::Accept => Accept::from_entries(header).map(ToHub::Accept),
        Kind::Chunk => Chunk::from_entries(header).map(ToHub::Chunk),
        Kind::Credit => Credit::from_entries(header).map(ToHub::Credit),
        Kind::Result => CallResult::from_entries(header).map(ToHub::Result),
        Kind::Cancel => Cancel::from_entries(header).map(ToHub::Cancel),
        Kind::Receipt => Receipt::from_entries(header).map(ToHub::Receipt),
        Kind::Welcome | Kind::Error => return Err(DecodeError::WrongDirection(kind)),
    };
    envelope.map(|envelope| (envelope, body)).map_err(malformed)
}

/// Reads a message that the hub sent.
///
/// # Errors
/// See [`DecodeError`] for what each costs.
pub fn decode_to_agent(message: &Bytes) -> Result<(ToAgent<'_>, Option<Bytes>), DecodeError> {
    let mut entries = Entries::new();
    let Parts { kind, body, body_fault } = split(message, &mut entries)?;
    let header = &entries;
    let Some(kind) = Kind::from_number(kind) else {
        return Err(DecodeError::UnknownKind { kind, id: id_of(header) });
    };
    let malformed = |error| DecodeError::Malformed { kind, id: id_of(header), error };
    if let Some(fault) = body_fault {
        return Err(malformed(fault));
    }
    let envelope = match kind {
        Kind::Welcome => Welcome::from_entries(header).map(ToAgent::Welcome),
        Kind::Goodbye => Goodbye::from_entries(header).map(ToAgent::Goodbye),
        Kind::Error => ErrorReply::from_entries(header).map(ToAgent::Error),
        Kind::Call => Dispatch::from_entries(header).map(ToAgent::Call),
        Kind::Accept => Accept::from_entries(header).map(ToAgent::Accept),
        Kind::Chunk => Chunk::from_entries(header).map(ToAgent::Chunk),
        Kind::Credit => Credit::from_entries(header).map(ToAgent::Credit),
        Kind::Result => CallResult::from_entries(header).map(ToAgent::Result),
        Kind::Cancel => Cancel::from_entries(header).map(ToAgent::Cancel),
        Kind::Hello | Kind::Update | Kind::Receipt => return Err(DecodeError::WrongDirection(kind)),
    };
    let body = body.map(|body| message.slice_ref(body));
    envelope.map(|envelope| (envelope, body)).map_err(malformed)
}
