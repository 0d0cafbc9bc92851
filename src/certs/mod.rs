//! A small certificate authority for those who have none: `agent-reach certs`, and what `dev` makes.
//!
//! | file | is | mode |
//! | --- | --- | --- |
//! | `ca.pem`, `ca-key.pem` | the authority, ten years | 0644, 0600 |
//! | `crl.pem` | its revocation list | 0644 |
//! | `hub.pem`, `hub-key.pem` | the hub, for localhost, 127.0.0.1, ::1 and more names | 0644, 0600 |
//! | `agents/NAME.pem`, `agents/NAME-key.pem` | an agent | 0644, 0600 |
//! | `issued.txt` | serial number, notAfter, name of each certificate: what `revoke` must revoke | 0600 |
//!
//! Keys are ECDSA P-256. A certificate that is issued again keeps its key, so that one rename replaces
//! it and no reader ever sees a key and a certificate that do not fit. Only a name whose certificate was
//! revoked gets a new key, since the old one may be in other hands.

mod authority;
mod crl;
mod files;
mod san;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use time::OffsetDateTime;

use crate::transport::identity::IdentityError;
use crate::transport::pem::PemError;
use authority::Authority;
use crl::Revoked;
use files::Secrecy;
pub use san::MAX_SANS;

/// How long the authority is valid, in days.
pub const CA_DAYS: i64 = 3650;
/// How long a certificate is valid when nothing else is asked for, in days.
pub const DEFAULT_DAYS: u32 = 365;
/// The name that stands for the hub's own certificate, and that no agent can have.
pub const HUB: &str = "hub";
/// Longest name of an agent in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Certificates are valid from a little before now, so that a clock that is behind takes them.
const BACKDATE: time::Duration = time::Duration::minutes(5);
/// How long a certificate that is written nowhere is valid.
const IN_MEMORY: Duration = Duration::from_secs(3600);
/// `dev` makes a certificate anew when it has less than this left.
const DEV_REST: time::Duration = time::Duration::days(7);

/// Why the authority could not do what was asked. Every text names the file or the argument at fault.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// A file or directory could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is in the way, and is never overwritten.
    #[error("{}: exists already and is left alone; choose another directory, or remove it yourself", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A PEM file could not be read.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A file can be read, but does not hold what it should.
    #[error("{}: {reason}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// The name is not of the grammar.
    #[error(
        "{name:?} is no name for a certificate: 1 to 128 of letters, digits, '.', '-', '_', not beginning with '.' or ending in '-key'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A subject alternative name is of no known form, or there are too many.
    #[error("--san {san:?}: {reason}")]
    San {
        /// The name.
        san: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// There is no certificate of this name to revoke.
    #[error("{name:?} has no certificate that is still valid and not revoked")]
    NothingToRevoke {
        /// The name.
        name: String,
    },
    /// The certificate or its signature could not be made.
    #[error("the certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The operating system gave no random bytes.
    #[error("no random bytes for a serial number")]
    Random,
    /// The validity ends outside of what a certificate can say.
    #[error("the validity is too long for a certificate")]
    Validity,
}

/// A certificate to make.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    /// Name of the agent, or [`HUB`].
    pub name: &'a str,
    /// Subject alternative names: `URI:…`, `DNS:…`, `IP:…` or bare; at most [`MAX_SANS`]. For an agent
    /// they take the place of `spiffe://agent-reach/agent/NAME`; for the hub they are added to
    /// localhost, 127.0.0.1 and ::1.
    pub sans: &'a [String],
    /// How long it is valid from now, never longer than the authority.
    pub valid: Duration,
}

/// A certificate that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Whether the key is new too; false when a certificate of the name was issued again.
    pub new_key: bool,
    /// Why the hub would refuse an agent with this certificate, if it would.
    pub refused: Option<IdentityError>,
}

/// A certificate that was made for this process alone, as PEM.
#[derive(Clone)]
pub struct InMemory {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for InMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InMemory(..)")
    }
}

/// Makes the authority, an empty revocation list and the hub's certificate in `dir`, which is made if
/// it is absent.
///
/// # Errors
/// [`CertsError::Exists`] when one of the files is there already; nothing is changed then.
pub fn init(dir: &Path, hub_sans: &[String]) -> Result<Issued, CertsError> {
    let hub = Order { name: HUB, sans: hub_sans, valid: days(DEFAULT_DAYS) };
    names_of(&hub)?;
    files::directory(dir)?;
    let _held = files::lock(dir)?;
    init_held(dir, &hub)
}

/// Makes or renews a certificate of `name` (an agent, or [`HUB`]) for `days` days.
///
/// # Errors
/// [`CertsError`] when there is no authority in `dir`, or the name or a SAN is of no known form.
pub fn issue(dir: &Path, name: &str, sans: &[String], days: u32) -> Result<Issued, CertsError> {
    issue_order(dir, &Order { name, sans, valid: self::days(days) })
}

/// As [`issue`], with a validity that is not of whole days.
///
/// # Errors
/// As [`issue`].
pub fn issue_order(dir: &Path, order: &Order<'_>) -> Result<Issued, CertsError> {
    names_of(order)?;
    let authority = Authority::load(dir)?;
    let _held = files::lock(dir)?;
    authority.issue(order)
}

/// A certificate of `name` that is written nowhere, for a program that connects and is gone again. Since
/// `revoke` cannot find it, it is valid for an hour.
///
/// # Errors
/// [`CertsError`] when there is no authority in `dir`, or the name is of no known form.
pub fn issue_in_memory(dir: &Path, name: &str) -> Result<InMemory, CertsError> {
    Authority::load(dir)?.issue_in_memory(&Order { name, sans: &[], valid: IN_MEMORY })
}

/// Revokes every certificate of `name` that is still valid, and writes the next revocation list.
/// Gives the serial numbers, in hexadecimal.
///
/// # Errors
/// [`CertsError::NothingToRevoke`] when none is left to revoke.
pub fn revoke(dir: &Path, name: &str) -> Result<Vec<String>, CertsError> {
    check_name(name)?;
    let authority = Authority::load(dir)?;
    let _held = files::lock(dir)?;
    authority.revoke(name)
}

/// Makes what is absent in `dir` for `agent-reach dev`: the authority, the hub's certificate and those
/// of `names`. A certificate that is revoked, or ends within seven days, counts as absent.
///
/// # Errors
/// [`CertsError`] when a file cannot be written, or is there but broken.
pub fn ensure_dev(dir: &Path, names: &[&str]) -> Result<(), CertsError> {
    for name in names {
        check_name(name)?;
    }
    files::directory(dir)?;
    let _held = files::lock(dir)?;
    if !dir.join("ca.pem").exists() {
        init_held(dir, &Order { name: HUB, sans: &[], valid: days(DEFAULT_DAYS) })?;
    }
    let authority = Authority::load(dir)?;
    let revoked = Revoked::load(&dir.join("crl.pem"))?;
    for name in std::iter::once(&HUB).chain(names) {
        if !authority.is_good(name, &revoked)? {
            authority.issue(&Order { name, sans: &[], valid: days(DEFAULT_DAYS) })?;
        }
    }
    Ok(())
}

/// Where the certificate and the key of a name are in `dir`.
#[must_use]
pub fn paths(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let dir = if name == HUB { dir.to_owned() } else { dir.join("agents") };
    (dir.join(format!("{name}.pem")), dir.join(format!("{name}-key.pem")))
}

fn init_held(dir: &Path, hub: &Order<'_>) -> Result<Issued, CertsError> {
    for file in ["ca.pem", "ca-key.pem", "crl.pem", "hub.pem", "hub-key.pem"] {
        let path = dir.join(file);
        if path.exists() {
            return Err(CertsError::Exists { path });
        }
    }
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.not_before = now - BACKDATE;
    params.not_after = now + time::Duration::days(CA_DAYS);
    params.serial_number = Some(serial()?);
    params.distinguished_name = common_name("Agent-Reach CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let cert = params.self_signed(&key)?;
    files::directory(&dir.join("agents"))?;
    files::create(&dir.join("ca-key.pem"), &key.serialize_pem(), Secrecy::Owner)?;
    Revoked::nothing().write(&dir.join("crl.pem"), &Issuer::new(params, key), now)?;
    files::create(&dir.join("ca.pem"), &cert.pem(), Secrecy::Everybody)?;
    Authority::load(dir)?.issue(hub)
}

fn check_name(name: &str) -> Result<(), CertsError> {
    let good = (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        // `a-key` would have its certificate where the key of `a` is.
        && !name.ends_with("-key")
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if good { Ok(()) } else { Err(CertsError::Name { name: name.to_owned() }) }
}

/// Every name that the certificate of this order gets.
fn names_of(order: &Order<'_>) -> Result<Vec<SanType>, CertsError> {
    check_name(order.name)?;
    if let Some(over) = order.sans.get(MAX_SANS) {
        return Err(CertsError::San { san: over.clone(), reason: "is one more than the 100 allowed" });
    }
    let mut names = Vec::new();
    if order.name == HUB {
        for name in ["DNS:localhost", "IP:127.0.0.1", "IP:::1"] {
            names.push(san::parse(name)?);
        }
    } else if order.sans.is_empty() {
        names.push(san::parse(&format!("URI:spiffe://agent-reach/agent/{}", order.name))?);
    }
    for text in order.sans {
        let name = san::parse(text)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86_400)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    // X.520 ends a common name at 64; a longer name stands in the SAN alone.
    if name.len() <= 64 {
        subject.push(DnType::CommonName, name);
    }
    subject
}

/// A random serial number: 16 bytes, positive, always of the same length.
fn serial() -> Result<SerialNumber, CertsError> {
    let mut bytes = [0_u8; 16];
    crate::transport::tls::provider().secure_random.fill(&mut bytes).map_err(|_| CertsError::Random)?;
    if let Some(first) = bytes.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    Ok(SerialNumber::from_slice(&bytes))
}

#[cfg(test)]
mod tests;
