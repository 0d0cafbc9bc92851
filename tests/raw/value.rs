//! Values of envelopes: building, reading, and turning them into MessagePack or JSON.

use rmpv::Value;

/// A MessagePack map with string keys: `map! {"id" => 1, "status" => "completed"}`.
macro_rules! map {
    () => { rmpv::Value::Map(Vec::new()) };
    ($($key:expr => $value:expr),+ $(,)?) => {
        rmpv::Value::Map(vec![$((rmpv::Value::from($key), rmpv::Value::from($value))),+])
    };
}

/// A MessagePack array of strings.
macro_rules! list {
    ($($item:expr),* $(,)?) => { rmpv::Value::Array(vec![$(rmpv::Value::from($item)),*]) };
}

/// One envelope as it came: `body` is binary or nil on MessagePack, any value on JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) kind: u64,
    pub(crate) header: Value,
    pub(crate) body: Value,
}

impl Envelope {
    /// Reads `[kind, header, body?]`.
    pub(crate) fn from_value(value: Value) -> Self {
        let Value::Array(parts) = value else { panic!("the hub sent no array: {value}") };
        assert!(parts.len() == 2 || parts.len() == 3, "the hub sent an array of {}", parts.len());
        let mut parts = parts.into_iter();
        let kind = parts.next().and_then(|kind| kind.as_u64()).expect("the hub sent a kind that is no uint");
        let header = parts.next().expect("two parts");
        assert!(header.is_map(), "the hub sent a header that is no map: {header}");
        Self { kind, header, body: parts.next().unwrap_or(Value::Nil) }
    }

    /// The header's value of `key`, nil when it is not there.
    pub(crate) fn get(&self, key: &str) -> &Value {
        &self.header[key]
    }

    /// Whether the header has `key` with a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        !self.get(key).is_nil()
    }

    /// The header's string of `key`.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).as_str().unwrap_or_else(|| panic!("no string `{key}` in {}", self.header))
    }

    /// The header's unsigned integer of `key`.
    pub(crate) fn uint(&self, key: &str) -> u64 {
        self.get(key).as_u64().unwrap_or_else(|| panic!("no uint `{key}` in {}", self.header))
    }

    /// `error.code` of a RESULT.
    pub(crate) fn code(&self) -> &str {
        self.get("error")["code"].as_str().unwrap_or_else(|| panic!("no error code in {}", self.header))
    }

    /// `error.retryable` of a RESULT.
    pub(crate) fn retryable(&self) -> bool {
        self.get("error")["retryable"].as_bool().unwrap_or_else(|| panic!("no retryable in {}", self.header))
    }

    /// `error.details` of a RESULT.
    pub(crate) fn details(&self) -> &Value {
        &self.get("error")["details"]
    }

    /// The body's bytes on the MessagePack subprotocol.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.body.as_slice().unwrap_or_else(|| panic!("the body is not binary: {}", self.body))
    }

    /// The body's value: decoded from MessagePack bytes, or as it is on JSON.
    pub(crate) fn content(&self) -> Value {
        match &self.body {
            Value::Binary(bytes) => value_of(bytes),
            other => other.clone(),
        }
    }
}

/// MessagePack of `value`.
pub(crate) fn pack(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("writing to memory");
    bytes
}

/// The value of MessagePack `bytes`, which must hold exactly one.
pub(crate) fn value_of(mut bytes: &[u8]) -> Value {
    let value = rmpv::decode::read_value(&mut bytes).expect("MessagePack from the hub");
    assert!(bytes.is_empty(), "trailing bytes after {value}");
    value
}

/// `base` with every key of `over` put in its place.
pub(crate) fn merged(base: Value, over: Value) -> Value {
    let (Value::Map(mut entries), Value::Map(over)) = (base, over) else { panic!("two maps are merged") };
    for (key, value) in over {
        entries.retain(|(known, _)| *known != key);
        entries.push((key, value));
    }
    Value::Map(entries)
}

/// JSON of `value` in the plain way, without the protocol's conversions.
pub(crate) fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Nil => serde_json::Value::Null,
        Value::Boolean(flag) => (*flag).into(),
        Value::Integer(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => panic!("an integer is one or the other"),
        },
        Value::F32(number) => (*number).into(),
        Value::F64(number) => (*number).into(),
        Value::String(text) => text.as_str().expect("UTF-8").into(),
        Value::Array(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => serde_json::Value::Object(
            entries
                .iter()
                .map(|(key, value)| (key.as_str().expect("a string key").to_owned(), json_of(value)))
                .collect(),
        ),
        Value::Binary(_) | Value::Ext(..) => panic!("JSON has no binary: write the conversion in the test"),
    }
}

/// The value that JSON shows, without the protocol's conversions.
pub(crate) fn from_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().expect("a number")),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::Array(items.iter().map(from_json).collect()),
        serde_json::Value::Object(entries) => Value::Map(
            entries.iter().map(|(key, value)| (Value::from(key.as_str()), from_json(value))).collect(),
        ),
    }
}

/// Whether `text` is a string anywhere in `value`, as a key or as a value.
pub(crate) fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found.as_str() == Some(text),
        Value::Array(items) => items.iter().any(|item| mentions(item, text)),
        Value::Map(entries) => {
            entries.iter().any(|(key, value)| mentions(key, text) || mentions(value, text))
        }
        _ => false,
    }
}
