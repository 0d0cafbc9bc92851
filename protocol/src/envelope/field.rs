//! How the types of header fields are read and written, and the macro that makes a header of them.

use crate::codec::{Entries, Raw, Value, Writer};
use crate::limits::{
    ID_BYTES_MAX, LABELS_MAX, LIST_MAX, PRIVATE_BYTES_MAX, PRIVATE_KEYS_MAX, WORD_BYTES_MAX,
};

/// What is wrong with one key of a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct FieldError {
    /// Path of the key, dots between levels: `load.cpu`, `capabilities.name`.
    pub field: String,
    /// What was expected and what came.
    pub message: String,
}

impl FieldError {
    /// An error at `field`.
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }

    fn missing(field: &str) -> Self {
        Self::new(field, "is missing")
    }

    /// Puts the key of the level above in front.
    fn under(mut self, key: &str) -> Self {
        self.field = if self.field.is_empty() { key.to_owned() } else { format!("{key}.{}", self.field) };
        self
    }
}

/// Such a string would pass through the hub and fail the decoder of whoever gets it.
const NOT_UTF8_INSIDE: &str = "holds a string that is not UTF-8";

fn expected(what: &str, value: &Value<'_>) -> FieldError {
    FieldError::new("", format!("must be {what}, not {}", value.kind()))
}

/// A type that a header field can have.
pub trait FieldValue<'a>: Sized {
    /// Reads the value of a key that is there. The error's field is relative to the key.
    ///
    /// # Errors
    /// When the value has another type or passes a bound.
    fn read(value: Value<'a>, raw: Raw<'a>) -> Result<Self, FieldError>;

    /// What the field is when the key is absent; `None` where it must be there.
    fn absent() -> Option<Self> {
        None
    }

    /// Whether the key is written at all.
    fn present(&self) -> bool {
        true
    }

    /// Writes the value.
    fn write(&self, out: &mut Writer);

    /// Length in the field's own unit: bytes of text, items of a list, bytes of a raw value.
    fn length(&self) -> usize {
        0
    }

    /// Of a list with items: the lengths of its shortest and of its longest item.
    fn item_lengths(&self) -> Option<(usize, usize)> {
        None
    }
}

impl FieldValue<'_> for u64 {
    fn read(value: Value<'_>, _: Raw<'_>) -> Result<Self, FieldError> {
        if let Value::UInt(n) = value { Ok(n) } else { Err(expected("an unsigned integer", &value)) }
    }

    fn write(&self, out: &mut Writer) {
        out.uint(*self);
    }
}

impl FieldValue<'_> for f64 {
    fn read(value: Value<'_>, _: Raw<'_>) -> Result<Self, FieldError> {
        if let Value::Float(x) = value
            && x.is_finite()
        {
            return Ok(x);
        }
        // An exact small integer is a number too: a whole `cpu: 1` is how many encoders write 1.0.
        if let Value::UInt(n) = value {
            return u32::try_from(n).map(Self::from).map_err(|_| expected("a small number", &value));
        }
        Err(expected("a finite number", &value))
    }

    fn write(&self, out: &mut Writer) {
        out.float(*self);
    }
}

impl FieldValue<'_> for bool {
    fn read(value: Value<'_>, _: Raw<'_>) -> Result<Self, FieldError> {
        if let Value::Bool(b) = value { Ok(b) } else { Err(expected("a boolean", &value)) }
    }

    fn absent() -> Option<Self> {
        Some(false)
    }

    fn present(&self) -> bool {
        *self
    }

    fn write(&self, out: &mut Writer) {
        out.bool(*self);
    }
}

impl<'a> FieldValue<'a> for &'a str {
    fn read(value: Value<'a>, _: Raw<'a>) -> Result<Self, FieldError> {
        if let Value::Str(text) = value { Ok(text) } else { Err(expected("a string", &value)) }
    }

    fn write(&self, out: &mut Writer) {
        out.str(self);
    }

    fn length(&self) -> usize {
        self.len()
    }
}

/// Any value, kept as its bytes: a schema, `details`.
impl<'a> FieldValue<'a> for Raw<'a> {
    fn read(_: Value<'a>, raw: Self) -> Result<Self, FieldError> {
        if raw.is_text_valid() { Ok(raw) } else { Err(FieldError::new("", NOT_UTF8_INSIDE)) }
    }

    fn write(&self, out: &mut Writer) {
        out.raw(self.0);
    }

    fn length(&self) -> usize {
        self.0.len()
    }
}

/// A nil reads as absent.
impl<'a, T: FieldValue<'a>> FieldValue<'a> for Option<T> {
    fn read(value: Value<'a>, raw: Raw<'a>) -> Result<Self, FieldError> {
        if value == Value::Nil { Ok(None) } else { T::read(value, raw).map(Some) }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn present(&self) -> bool {
        self.is_some()
    }

    fn write(&self, out: &mut Writer) {
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn length(&self) -> usize {
        self.as_ref().map_or(0, T::length)
    }

    fn item_lengths(&self) -> Option<(usize, usize)> {
        self.as_ref().and_then(T::item_lengths)
    }
}

/// A list; the bytes of each item are read by the item's own type. An empty list is not written.
impl<'a, T: FieldValue<'a>> FieldValue<'a> for Vec<T> {
    fn read(value: Value<'a>, _: Raw<'a>) -> Result<Self, FieldError> {
        let Some(items) = value.items() else { return Err(expected("an array", &value)) };
        let mut list = Self::new();
        for item in items {
            if list.len() >= LIST_MAX {
                return Err(FieldError::new("", format!("has more than {LIST_MAX} items")));
            }
            // Only maps and scalars stand in lists of headers; both carry their own bytes.
            let raw =
                if let Value::Map(raw) | Value::Array(raw) | Value::Ext(raw) = item { raw } else { Raw(&[]) };
            list.push(T::read(item, raw)?);
        }
        Ok(list)
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }

    fn present(&self) -> bool {
        !self.is_empty()
    }

    fn write(&self, out: &mut Writer) {
        out.array(self.len());
        for item in self {
            item.write(out);
        }
    }

    fn length(&self) -> usize {
        self.len()
    }

    fn item_lengths(&self) -> Option<(usize, usize)> {
        let lengths = || self.iter().map(T::length);
        lengths().min().zip(lengths().max())
    }
}

/// Labels: short texts by short keys, in the order of the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels<'a>(pub Vec<(&'a str, &'a str)>);

impl<'a> FieldValue<'a> for Labels<'a> {
    fn read(value: Value<'a>, _: Raw<'a>) -> Result<Self, FieldError> {
        let Some(entries) = value.entries() else { return Err(expected("a map of strings", &value)) };
        if entries.len() > LABELS_MAX {
            return Err(FieldError::new("", format!("has more than {LABELS_MAX} labels")));
        }
        let mut labels = Vec::with_capacity(entries.len());
        for (key, value, _) in entries {
            let Value::Str(text) = value else { return Err(expected("a string", &value).under(key)) };
            if key.is_empty() || key.len() > WORD_BYTES_MAX || text.len() > WORD_BYTES_MAX {
                return Err(FieldError::new(
                    "",
                    format!("has a key or value over {WORD_BYTES_MAX} bytes or empty"),
                ));
            }
            labels.push((key, text));
        }
        Ok(Self(labels))
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn present(&self) -> bool {
        !self.0.is_empty()
    }

    fn write(&self, out: &mut Writer) {
        out.map(self.0.len());
        for (key, value) in &self.0 {
            out.str(key);
            out.str(value);
        }
    }
}

/// Numbers between 0 and 1 by capability name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levels<'a>(pub Vec<(&'a str, f64)>);

impl<'a> FieldValue<'a> for Levels<'a> {
    fn read(value: Value<'a>, _: Raw<'a>) -> Result<Self, FieldError> {
        let Some(entries) = value.entries() else { return Err(expected("a map of numbers", &value)) };
        let mut levels = Vec::with_capacity(entries.len());
        for (key, value, raw) in entries {
            if key.len() > ID_BYTES_MAX {
                return Err(FieldError::new("", format!("has a key over {ID_BYTES_MAX} bytes")));
            }
            let level = f64::read(value, raw).map_err(|e| e.under(key))?;
            if !(0.0..=1.0).contains(&level) {
                return Err(FieldError::new(key, "must be between 0 and 1"));
            }
            levels.push((key, level));
        }
        Ok(Self(levels))
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }

    fn present(&self) -> bool {
        !self.0.is_empty()
    }

    fn write(&self, out: &mut Writer) {
        out.map(self.0.len());
        for (key, level) in &self.0 {
            out.str(key);
            out.float(*level);
        }
    }
}

/// The private keys (`x-…`) of a header with their values, carried through unread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private<'a>(pub Vec<(&'a str, Raw<'a>)>);

impl<'a> Private<'a> {
    /// Picks the private keys out of a header.
    ///
    /// # Errors
    /// When they are more, or larger, than allowed.
    pub fn pick(entries: &Entries<'a>) -> Result<Self, FieldError> {
        let mut picked = Vec::new();
        let mut bytes = 0;
        for (key, _, raw) in entries {
            if key.starts_with("x-") {
                if !raw.is_text_valid() {
                    return Err(FieldError::new(key, NOT_UTF8_INSIDE));
                }
                bytes += key.len() + raw.0.len();
                picked.push((*key, *raw));
            }
        }
        if picked.len() > PRIVATE_KEYS_MAX || bytes > PRIVATE_BYTES_MAX {
            let message =
                format!("keys are more than {PRIVATE_KEYS_MAX} or over {PRIVATE_BYTES_MAX} bytes together");
            return Err(FieldError::new("x-", message));
        }
        Ok(Self(picked))
    }

    /// Writes the keys with their values into a map whose head counted them.
    pub fn write(&self, out: &mut Writer) {
        for (key, raw) in &self.0 {
            out.str(key);
            out.raw(raw.0);
        }
    }
}

/// Makes an enum of words: how it is read, written and printed.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// The value of a word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::envelope::FieldValue<'_> for $name {
            fn read(
                value: $crate::codec::Value<'_>,
                _: $crate::codec::Raw<'_>,
            ) -> Result<Self, $crate::envelope::FieldError> {
                let words = concat!($("\"", $word, "\" "),*);
                match value {
                    $crate::codec::Value::Str(word) => Self::parse(word),
                    _ => None,
                }
                .ok_or_else(|| $crate::envelope::FieldError::new("", format!("must be one of {}", words.trim_end())))
            }

            fn write(&self, out: &mut $crate::codec::Writer) {
                out.str(self.as_str());
            }
        }
    };
}

/// Makes a struct that is a map on the wire: each field with its key, and the lengths it may have.
///
/// A key marked `always` is written even where its value is the one that an absent key reads as; an `Option`
/// has no value to write then, so the mark is not for it.
/// `private` at the end adds a field of that name for the `x-` keys; `check` names a function that looks at
/// the whole.
macro_rules! map_type {
    (@written $value:expr) => { $value.present() };
    (@written $value:expr, always) => { true };
    (
        $(#[$meta:meta])* $name:ident {
            $($(#[$doc:meta])* $field:ident : $ty:ty = $key:literal $($always:ident)?
                $(, $lo:literal ..= $hi:expr $(, each $item_lo:literal ..= $item_hi:expr)?)?);* $(;)?
        } $(private $private:ident)? $(check $check:path)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name<'a> {
            $($(#[$doc])* pub $field: $ty,)*
            $(/// Private keys (`x-…`), carried through.
            pub $private: $crate::envelope::Private<'a>,)?
        }

        impl<'a> $name<'a> {
            /// Reads the map's entries; unknown keys are ignored.
            ///
            /// # Errors
            /// Names the first key that is missing, of the wrong type or out of bounds.
            pub fn from_entries(entries: &$crate::codec::Entries<'a>) -> Result<Self, $crate::envelope::FieldError> {
                $(let mut $field: Option<$ty> = None;)*
                for (key, value, raw) in entries {
                    match *key {
                        $($key => {
                            let read: $ty = $crate::envelope::field::read_key($key, *value, *raw)?;
                            $($crate::envelope::field::within(&read, $key, $lo, $hi)?;
                            $($crate::envelope::field::items_within(&read, $key, $item_lo, $item_hi)?;)?)?
                            $field = Some(read);
                        })*
                        _ => {}
                    }
                }
                let read = Self {
                    $($field: match $field {
                        Some(read) => read,
                        None => $crate::envelope::field::or_absent($key)?,
                    },)*
                    $($private: $crate::envelope::Private::pick(entries)?,)?
                };
                $($check(&read)?;)?
                Ok(read)
            }
        }

        impl<'a> $crate::envelope::FieldValue<'a> for $name<'a> {
            fn read(
                value: $crate::codec::Value<'a>,
                _: $crate::codec::Raw<'a>,
            ) -> Result<Self, $crate::envelope::FieldError> {
                let Some(entries) = value.entries() else {
                    return Err($crate::envelope::field::not_a_map(&value));
                };
                Self::from_entries(&entries)
            }

            fn write(&self, out: &mut $crate::codec::Writer) {
                let mut keys = 0;
                $(keys += usize::from(map_type!(@written self.$field $(, $always)?));)*
                $(keys += self.$private.0.len();)?
                out.map(keys);
                $(if map_type!(@written self.$field $(, $always)?) {
                    out.key($key);
                    self.$field.write(out);
                })*
                $(self.$private.write(out);)?
            }
        }
    };
}

pub(crate) use {map_type, words};

/// Reads the value of a key. A nil reads as absent wherever the key may be absent: many encoders write one
/// for what is not set.
pub(crate) fn read_key<'a, T: FieldValue<'a>>(
    key: &str,
    value: Value<'a>,
    raw: Raw<'a>,
) -> Result<T, FieldError> {
    if value == Value::Nil
        && let Some(absent) = T::absent()
    {
        return Ok(absent);
    }
    T::read(value, raw).map_err(|error| error.under(key))
}

pub(crate) fn not_a_map(value: &Value<'_>) -> FieldError {
    expected("a map", value)
}

pub(crate) fn or_absent<'a, T: FieldValue<'a>>(key: &str) -> Result<T, FieldError> {
    T::absent().ok_or_else(|| FieldError::missing(key))
}

/// Checks a length. An absent optional value has none to check.
pub(crate) fn within<'a, T: FieldValue<'a>>(
    value: &T,
    key: &str,
    least: usize,
    most: usize,
) -> Result<(), FieldError> {
    let length = value.length();
    if !value.present() || (least..=most).contains(&length) {
        return Ok(());
    }
    Err(FieldError::new(key, format!("has length {length}; {least} to {most} are allowed")))
}

/// Checks the length of each item of a list.
pub(crate) fn items_within<'a, T: FieldValue<'a>>(
    value: &T,
    key: &str,
    least: usize,
    most: usize,
) -> Result<(), FieldError> {
    match value.item_lengths() {
        Some((shortest, longest)) if shortest < least || longest > most => Err(FieldError::new(
            key,
            format!("has an item of length {shortest} or {longest}; {least} to {most} are allowed"),
        )),
        Some(_) | None => Ok(()),
    }
}
