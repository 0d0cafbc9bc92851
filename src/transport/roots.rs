//! Whom the hub trusts where it connects to others.

use std::path::Path;

use rustls::{ClientConfig, RootCertStore};
use tracing::warn;

use super::pem::{self, PemError};
use super::tls::provider;

/// Why nobody can be trusted.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// The file of further authorities cannot be read.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A further authority, or a version of TLS, cannot be used.
    #[error("not usable to check servers: {0}")]
    Tls(#[from] rustls::Error),
}

/// TLS 1.3 or 1.2 to servers of these authorities and those in the file `ca`, without a certificate of one's own.
///
/// # Errors
/// [`RootsError`] when `ca` cannot be used.
pub(crate) fn client_config(mut roots: RootCertStore, ca: Option<&Path>) -> Result<ClientConfig, RootsError> {
    for cert in ca.map(pem::certs).transpose()?.unwrap_or_default() {
        roots.add(cert)?;
    }
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// The authorities that the operating system trusts, so that its updates and its operators' additions count. Reads
/// files: for the start.
pub(crate) fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        warn!(%error, "an authority of the system cannot be read");
    }
    let (_, unusable) = roots.add_parsable_certificates(found.certs);
    if unusable > 0 {
        warn!(unusable, "some authorities of the system cannot be used");
    }
    roots
}
