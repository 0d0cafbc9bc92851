//! Who a client certificate proves.
//!
//! Three kinds of name can carry an identity, looked at in this order: URI SAN, DNS SAN, common name.
//! Only the first kind that is present counts. It must be present once and have exactly the form below;
//! if not, the certificate proves nobody. There is no falling through to the next kind: a certificate
//! with a URI that we do not understand must not become whoever its common name says.
//!
//! | kind | form | identity | name |
//! | --- | --- | --- | --- |
//! | URI SAN | `spiffe://DOMAIN/agent/NAME` | the whole URI | NAME |
//! | DNS SAN | letters, digits, `-`, `_`, `.` | the name | the name |
//! | common name | NAME without `:` | the name | the name |
//!
//! NAME has the grammar of an `agent_id`: 1 to 128 bytes of ASCII letters, digits and `. _ - : @ + ~`. As a
//! path segment it is not `.` or `..`. A common name has no `/` and no `:`, so that it cannot pass for the
//! identity of a URI (`spiffe://…`) or of a token (`token:…`).

use agent_reach_protocol::names::is_agent_id;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Longest trust domain of a URI in bytes, as SPIFFE has it.
pub const MAX_DOMAIN_BYTES: usize = 255;

/// Who a client certificate proves. Policy compares `identity`; `name` is the `agent_id` that the
/// identity may use when policy says nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The whole URI, or the DNS or common name.
    pub identity: String,
    /// The last segment of the URI, or the DNS or common name.
    pub name: String,
    /// The certificate's notAfter, in seconds since 1970 (UTC): no session outlives it.
    pub not_after: i64,
    /// Serial number, lower-case hexadecimal without separators, as a revocation list names it.
    pub serial: String,
}

/// Why a certificate proves nobody: the reason in a refusal with `unauthorized`. The peer's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The bytes are no X.509 certificate.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// The subject alternative names are broken or come twice.
    #[error("the certificate's subject alternative names cannot be read")]
    UnreadableNames,
    /// There is no URI, no DNS name and no common name.
    #[error("the certificate has no URI, no DNS name and no common name")]
    NoName,
    /// The kind that counts is there more than once.
    #[error("the certificate has {count} names of the kind {kind}: exactly one is allowed")]
    Several {
        /// `URI`, `DNS` or `common name`.
        kind: &'static str,
        /// How many there are.
        count: usize,
    },
    /// The name that counts is not of the form that this module describes.
    #[error("the certificate's {kind} is not of the form {form}")]
    Form {
        /// `URI`, `DNS` or `common name`.
        kind: &'static str,
        /// The form that is expected.
        form: &'static str,
    },
}

impl IdentityError {
    /// A short word for metrics and the audit: one of a closed set.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable | Self::UnreadableNames => "certificate_unreadable",
            Self::NoName => "certificate_without_name",
            Self::Several { .. } => "certificate_several_names",
            Self::Form { .. } => "certificate_name_form",
        }
    }
}

/// Reads the principal from a leaf certificate in DER form. The chain must have been verified before.
///
/// # Errors
/// [`IdentityError`] when the certificate proves nobody.
pub fn principal(leaf: &[u8]) -> Result<Principal, IdentityError> {
    let (rest, cert) = X509Certificate::from_der(leaf).map_err(|_| IdentityError::Unreadable)?;
    if !rest.is_empty() {
        return Err(IdentityError::Unreadable);
    }
    let (identity, name) = names(&cert)?;
    Ok(Principal {
        identity,
        name,
        not_after: cert.validity().not_after.timestamp(),
        serial: hex(cert.raw_serial()),
    })
}

/// Lower-case hexadecimal of a serial number, without the leading zero byte that DER may put before it.
#[must_use]
pub fn hex(serial: &[u8]) -> String {
    let significant = match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        _ => serial,
    };
    significant.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn names(cert: &X509Certificate<'_>) -> Result<(String, String), IdentityError> {
    let (mut uris, mut hosts) = (Vec::new(), Vec::new());
    let sans = cert.subject_alternative_name().map_err(|_| IdentityError::UnreadableNames)?;
    for san in sans.iter().flat_map(|extension| &extension.value.general_names) {
        match san {
            GeneralName::URI(uri) => uris.push(*uri),
            GeneralName::DNSName(host) => hosts.push(*host),
            // It may be a URI that is no text, and then nothing after it may count.
            GeneralName::Invalid(..) => return Err(IdentityError::UnreadableNames),
            GeneralName::OtherName(..)
            | GeneralName::RFC822Name(_)
            | GeneralName::X400Address(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::EDIPartyName(_)
            | GeneralName::IPAddress(_)
            | GeneralName::RegisteredID(_) => {}
        }
    }
    if !uris.is_empty() {
        let uri = single(&uris, "URI")?;
        let form = IdentityError::Form { kind: "URI", form: "spiffe://DOMAIN/agent/NAME" };
        let name = name_of_uri(uri).ok_or(form)?;
        return Ok((uri.to_owned(), name.to_owned()));
    }
    if !hosts.is_empty() {
        let host = single(&hosts, "DNS")?;
        return same(host, is_host(host), "DNS", "NAME (letters, digits, '-', '_', '.', at most 128)");
    }
    let subject = cert.subject();
    let common: Vec<_> = subject.iter_common_name().collect();
    let common = match common.as_slice() {
        [] => return Err(IdentityError::NoName),
        [one] => one.as_str().unwrap_or_default(),
        several => return Err(IdentityError::Several { kind: "common name", count: several.len() }),
    };
    let form = "NAME (letters, digits, '.', '_', '-', '@', '+', '~', at most 128)";
    same(common, is_agent_id(common) && !common.contains(':'), "common name", form)
}

fn single<'a>(found: &[&'a str], kind: &'static str) -> Result<&'a str, IdentityError> {
    match found {
        [one] => Ok(one),
        several => Err(IdentityError::Several { kind, count: several.len() }),
    }
}

fn same(
    name: &str,
    good: bool,
    kind: &'static str,
    form: &'static str,
) -> Result<(String, String), IdentityError> {
    if good { Ok((name.to_owned(), name.to_owned())) } else { Err(IdentityError::Form { kind, form }) }
}

/// The name in an identity that a certificate can prove: NAME of a URI, or the identity itself.
#[must_use]
pub fn name_of(identity: &str) -> Option<&str> {
    if identity.contains("://") { name_of_uri(identity) } else { Some(identity) }
}

/// NAME of `spiffe://DOMAIN/agent/NAME`, if the URI has exactly that form. The scheme and the domain are
/// compared as bytes: SPIFFE writes both in lower case, and two spellings of one identity must not exist.
fn name_of_uri(uri: &str) -> Option<&str> {
    let (domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
    let name = path.strip_prefix("agent/")?;
    let domain_good = !domain.is_empty()
        && domain.len() <= MAX_DOMAIN_BYTES
        && domain.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_'));
    // The grammar has no slash, question mark, hash or percent sign: it leaves one plain segment.
    let name_good = is_agent_id(name) && name != "." && name != "..";
    (domain_good && name_good).then_some(name)
}

fn is_host(name: &str) -> bool {
    is_agent_id(name) && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
