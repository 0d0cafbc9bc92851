//! Envelopes as an agent writes and reads them.

use rmpv::Value;

pub(crate) const HELLO: u64 = 1;
pub(crate) const WELCOME: u64 = 2;
pub(crate) const GOODBYE: u64 = 4;
pub(crate) const ERROR: u64 = 5;
pub(crate) const CALL: u64 = 10;
pub(crate) const ACCEPT: u64 = 11;
pub(crate) const CHUNK: u64 = 12;
pub(crate) const RESULT: u64 = 14;

/// One envelope.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) kind: u64,
    pub(crate) header: Value,
}

impl Envelope {
    pub(crate) fn new<const N: usize>(kind: u64, keys: [(&str, Value); N]) -> Self {
        Self { kind, header: map(keys) }
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        let value = rmpv::decode::read_value(&mut &*bytes).expect("MessagePack of the hub's");
        let parts = value.as_array().expect("an array");
        Self { kind: parts[0].as_u64().expect("a kind"), header: parts[1].clone() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let array = Value::Array(vec![self.kind.into(), self.header.clone(), Value::Nil]);
        rmpv::encode::write_value(&mut bytes, &array).expect("memory");
        bytes
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        get(&self.header, key)
    }

    pub(crate) fn text(&self, key: &str) -> String {
        self.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(Value::as_u64)
    }

    /// The code of the error that a RESULT carries.
    pub(crate) fn error(&self) -> Option<String> {
        let code = self.get("error").and_then(|error| get(error, "code"));
        code.and_then(Value::as_str).map(str::to_owned)
    }
}

pub(crate) fn map<const N: usize>(keys: [(&str, Value); N]) -> Value {
    Value::Map(keys.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn get<'a>(map: &'a Value, wanted: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(key, _)| key.as_str() == Some(wanted)).map(|(_, value)| value)
}
