//! Whom the hub trusts where it connects to others.

use rustls::RootCertStore;
use tracing::warn;

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
