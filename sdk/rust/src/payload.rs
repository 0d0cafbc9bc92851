//! Bodies: opaque bytes with a content type, or a type of the program's own as MessagePack.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A body as it is on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The bytes; the hub never reads them unless a schema asks for it.
    pub body: Bytes,
    /// What the bytes are. Default `None`: MessagePack.
    pub content_type: Option<String>,
}

impl Payload {
    /// Bytes of MessagePack.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), content_type: None }
    }

    /// Bytes of another kind, like `application/json`. At most 256 bytes.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Reads the body as MessagePack. An absent body reads as nil.
    ///
    /// # Errors
    /// When the body is no MessagePack, or not of this type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        if let Some(other) = self.content_type.as_deref().filter(|t| !t.contains("msgpack")) {
            return Err(PayloadError(format!("the body is {other}, not MessagePack: take it as Payload")));
        }
        let bytes: &[u8] = if self.body.is_empty() { &[0xc0] } else { &self.body };
        rmp_serde::from_slice(bytes).map_err(|e| PayloadError(e.to_string()))
    }
}

/// A body that could not be written or read as the type wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(String);

/// What can be sent as a body: [`Payload`] as it is, everything else that serde can write as MessagePack
/// with named fields. Bytes need `serde_bytes`: serde writes a plain `Vec<u8>` as a list of numbers.
pub trait IntoPayload {
    /// The body on the wire.
    ///
    /// # Errors
    /// When the value cannot be written as MessagePack.
    fn into_payload(self) -> Result<Payload, PayloadError>;
}

impl IntoPayload for Payload {
    fn into_payload(self) -> Result<Payload, PayloadError> {
        Ok(self)
    }
}

impl<T: Serialize> IntoPayload for T {
    fn into_payload(self) -> Result<Payload, PayloadError> {
        let body = rmp_serde::to_vec_named(&self).map_err(|e| PayloadError(e.to_string()))?;
        Ok(Payload::new(body))
    }
}

/// What can be received: [`Payload`] as it is, everything else that serde can read from MessagePack.
pub trait FromPayload: Sized {
    /// Reads the body.
    ///
    /// # Errors
    /// When the body is not of this type.
    fn from_payload(payload: Payload) -> Result<Self, PayloadError>;
}

impl FromPayload for Payload {
    fn from_payload(payload: Payload) -> Result<Self, PayloadError> {
        Ok(payload)
    }
}

impl<T: DeserializeOwned> FromPayload for T {
    fn from_payload(payload: Payload) -> Result<Self, PayloadError> {
        payload.decode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_body_reads_as_nil() {
        assert_eq!(<Option<u8>>::from_payload(Payload::default()), Ok(None));
        assert_eq!(<()>::from_payload(Payload::default()), Ok(()));
    }

    #[test]
    fn a_payload_passes_byte_for_byte_with_its_content_type() {
        let payload = Payload::new(&b"\x00\xff\x80"[..]).content_type("application/octet-stream");
        assert_eq!(payload.clone().into_payload(), Ok(payload.clone()));
        assert_eq!(Payload::from_payload(payload.clone()), Ok(payload.clone()));
        assert!(payload.decode::<Vec<u8>>().is_err());
    }
}
