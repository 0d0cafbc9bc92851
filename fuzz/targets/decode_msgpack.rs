//! Bytes as a MessagePack message, in both directions.

use agent_reach_protocol::codec::{read_one, read_value};
use agent_reach_protocol::{DecodeError, FieldError, decode_to_agent, decode_to_hub};
use bytes::Bytes;

pub(crate) fn run(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    let read = decode_to_hub(&message, None).map(|(_, body)| body);
    check(&message, &read);
    check(&message, &decode_to_agent(&message).map(|(_, body)| body));

    // What the JSON edge found wrong fails the envelope, whatever else there is.
    let fault = FieldError { field: "body".to_owned(), message: "planted".to_owned() };
    assert!(decode_to_hub(&message, Some(fault)).is_err());

    if let Ok(value) = read_one(data) {
        let (same, rest) = read_value(data).expect("what is one value is a value");
        assert!(rest.is_empty());
        // By their texts: NaN is not equal to itself.
        assert_eq!(format!("{value:?}"), format!("{same:?}"));
    }
}

/// A body is a part of its message and no copy; an error says which it is.
fn check(message: &Bytes, read: &Result<Option<Bytes>, DecodeError>) {
    match read {
        Ok(Some(body)) => {
            let (outer, inner) = (message.as_ptr_range(), body.as_ptr_range());
            assert!(body.is_empty() || outer.start <= inner.start && inner.end <= outer.end);
        }
        Ok(None) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
