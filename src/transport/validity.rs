//! Until when certificates and revocation lists are good, for those who have to renew them.

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// The earliest notAfter of some certificates, in seconds since 1970 (UTC); `None` when none of them can be read.
#[must_use]
pub fn not_after(certificates: &[CertificateDer<'_>]) -> Option<i64> {
    let read = |der: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(der.as_ref()).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    certificates.iter().filter_map(read).min()
}

/// The earliest nextUpdate of some revocation lists, likewise; `None` when none of them names one.
#[must_use]
pub fn next_update(lists: &[CertificateRevocationListDer<'_>]) -> Option<i64> {
    let read = |der: &CertificateRevocationListDer<'_>| {
        let (_, list) = CertificateRevocationList::from_der(der.as_ref()).ok()?;
        list.next_update().map(|at| at.timestamp())
    };
    lists.iter().filter_map(read).min()
}
