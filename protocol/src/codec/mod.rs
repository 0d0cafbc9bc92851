//! MessagePack, as strict as the protocol asks for.
//!
//! serde cannot say what the rules of section 2 say (a repeated key anywhere in a header, a float is never
//! an id, a depth of 32, which field was wrong), so headers are read by hand in one pass over borrowed
//! bytes. Nothing is allocated before its bytes have come: declared lengths are never trusted.

mod read;
mod write;

pub(crate) use read::{Cursor, Head};
pub use read::{Entries, Entry, Raw, ReadError, Value, read_one, read_value};
pub use write::Writer;
