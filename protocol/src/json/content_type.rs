//! What the header's `content_type` says about the bytes of a body.

/// What the bytes of a body are, and with it how the body is shown in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// One MessagePack value: converted. What a body is when nothing is said.
    MessagePack,
    /// JSON text: put in as it is.
    Json,
    /// Anything else: bytes, as `{"$bin": base64}`.
    Opaque,
}

impl BodyFormat {
    /// The format that a media type names. Its parameters do not matter, nor does the case.
    pub fn of(content_type: Option<&str>) -> Self {
        let Some(content_type) = content_type else { return Self::MessagePack };
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/msgpack" | "application/x-msgpack" | "application/vnd.msgpack" => Self::MessagePack,
            "application/json" => Self::Json,
            other if other.contains('/') && other.ends_with("+json") => Self::Json,
            _ => Self::Opaque,
        }
    }
}
