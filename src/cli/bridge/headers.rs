//! Headers of a request: those that the operator gives, and those that say which call it is.

use agent_reach_sdk::Context;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

/// What the bridge says itself, or HTTP does.
const OWN: [&str; 11] = [
    "connection",
    "content-length",
    "content-type",
    "idempotency-key",
    "keep-alive",
    "request-timeout",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
];
/// Beginning of the names of what the bridge says itself.
const OWN_PREFIX: &str = "agent-reach-";

/// Reads `K: V`.
pub(super) fn given(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written as 'K: V'")?;
    Ok((name_of(name)?, value_of(value.trim())?))
}

/// Reads `K=VAR`, the value of which is in the environment, so that no list of processes shows it.
pub(super) fn from_variable(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, variable) = text.split_once('=').ok_or("a header of the environment is written as K=VAR")?;
    let value = std::env::var(variable).map_err(|error| format!("{variable}: {error}"))?;
    let mut value = value_of(value.trim()).map_err(|_| format!("{variable}: no value for a header"))?;
    value.set_sensitive(true);
    Ok((name_of(name)?, value))
}

fn name_of(text: &str) -> Result<HeaderName, String> {
    let name: HeaderName = text.trim().parse().map_err(|_| format!("{text:?} is no name of a header"))?;
    if OWN.contains(&name.as_str()) || name.as_str().starts_with(OWN_PREFIX) {
        return Err(format!("{name} is set by the bridge"));
    }
    Ok(name)
}

fn value_of(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "a value of a header is ASCII on one line".to_owned())
}

/// What says to the service which call it is.
pub(super) fn of_call(context: &Context, headers: &mut HeaderMap) {
    let left = context.deadline().saturating_duration_since(Instant::now());
    let texts = [
        ("agent-reach-caller", Some(plain(context.caller()))),
        ("agent-reach-capability", Some(plain(context.capability()))),
        ("agent-reach-request-id", Some(plain(context.request_id()))),
        ("idempotency-key", Some(plain(context.request_id()))),
        ("traceparent", context.traceparent().map(plain)),
        ("tracestate", context.tracestate().map(str::to_owned)),
        ("request-timeout", Some(seconds(left.as_millis()))),
    ];
    for (name, text) in texts {
        // What no header can carry is left out: only a `tracestate` can come here as something else than ASCII.
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Seconds with the digits that milliseconds need: 30, 29.5.
fn seconds(ms: u128) -> String {
    let text = format!("{}.{:03}", ms / 1_000, ms % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text that callers chose, as one that no header can be broken out of, and that no two texts share: what is not
/// visible ASCII, and `%`, becomes `%XX`.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_breaks_out_of_its_header_and_no_two_are_one() {
        let table = [
            ("order-17", "order-17"),
            ("a b", "a%20b"),
            ("a%20b", "a%2520b"),
            ("x\r\nEvil: 1", "x%0D%0AEvil:%201"),
            ("ü", "%C3%BC"),
            ("", ""),
        ];
        for (text, header) in table {
            assert_eq!(plain(text), header);
            assert!(HeaderValue::from_str(header).is_ok());
        }
    }

    #[test]
    fn seconds_have_the_digits_that_they_need() {
        let of = [0, 5, 500, 1_000, 29_950, 30_000, 100_000].map(seconds);
        assert_eq!(of, ["0", "0.005", "0.5", "1", "29.95", "30", "100"]);
    }

    #[test]
    fn a_header_has_a_name_that_is_not_the_bridges_and_a_value_on_one_line() {
        assert_eq!(
            given("X-Key:  a: b ").map(|(k, v)| (k.to_string(), v)),
            Ok(("x-key".to_owned(), HeaderValue::from_static("a: b")))
        );
        for text in ["x-key", ": a", "x key: a", "x: a\nb", "Content-Length: 1", "agent-reach-caller: me"] {
            assert!(given(text).is_err(), "{text}");
        }
        assert!(from_variable("x=NO_SUCH_VARIABLE_OF_THE_BRIDGE").unwrap_err().starts_with("NO_SUCH"));
    }
}
