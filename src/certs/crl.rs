//! The revocation list of the CA. It is its own memory: each new list is made from the one before.

use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevocationReason, RevokedCertParams,
    SerialNumber,
};
use std::path::Path;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::{CertsError, files};
use crate::transport::pem;

/// What a list says, as far as the next one needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Revoked {
    /// CRL number: grows by one with each list.
    pub(super) number: u64,
    /// Serial number and time (seconds since 1970) of each revocation, oldest first.
    pub(super) entries: Vec<(Vec<u8>, i64)>,
}

impl Revoked {
    /// What the very first list says: nothing.
    pub(super) fn nothing() -> Self {
        Self { number: 0, entries: Vec::new() }
    }

    /// Reads the list in a file.
    pub(super) fn load(path: &Path) -> Result<Self, CertsError> {
        let broken = |reason| CertsError::Broken { path: path.to_owned(), reason };
        let crls = pem::crls(path)?;
        let [crl] = crls.as_slice() else {
            return Err(broken("holds more than one revocation list"));
        };
        let (_, list) = CertificateRevocationList::from_der(crl.as_ref())
            .map_err(|_| broken("is no revocation list that can be read"))?;
        let number = list.crl_number().ok_or_else(|| broken("has no CRL number"))?;
        let number = number
            .to_bytes_be()
            .iter()
            .try_fold(0_u64, |sum, byte| sum.checked_mul(256).map(|sum| sum | u64::from(*byte)));
        let entries = list
            .iter_revoked_certificates()
            .map(|entry| (entry.raw_serial().to_vec(), entry.revocation_date.timestamp()));
        Ok(Self {
            number: number.ok_or_else(|| broken("has a CRL number beyond 64 bits"))?,
            entries: entries.collect(),
        })
    }

    /// Whether the certificate with this serial number is revoked.
    pub(super) fn contains(&self, serial: &[u8]) -> bool {
        self.entries.iter().any(|(revoked, _)| unsigned(revoked) == unsigned(serial))
    }

    /// Signs the next list with these entries, and puts it in the place of the old one.
    pub(super) fn write(
        &self,
        path: &Path,
        issuer: &Issuer<'_, KeyPair>,
        now: OffsetDateTime,
    ) -> Result<(), CertsError> {
        let mut revoked_certs = Vec::with_capacity(self.entries.len());
        for (serial, seconds) in &self.entries {
            let revocation_time = OffsetDateTime::from_unix_timestamp(*seconds).map_err(|_| {
                CertsError::Broken { path: path.to_owned(), reason: "has a revocation date out of range" }
            })?;
            revoked_certs.push(RevokedCertParams {
                serial_number: SerialNumber::from_slice(serial),
                revocation_time,
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            });
        }
        let params = CertificateRevocationListParams {
            this_update: now,
            // As long as the CA: this list comes by hand, so there is no next one to announce.
            next_update: now + Duration::days(super::CA_DAYS),
            crl_number: SerialNumber::from(self.number.saturating_add(1)),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        files::replace(path, &params.signed_by(issuer)?.pem()?, files::Secrecy::Everybody)
    }
}

/// DER puts a zero byte before a serial number whose first bit is set.
fn unsigned(serial: &[u8]) -> &[u8] {
    match serial {
        [0, rest @ ..] => rest,
        _ => serial,
    }
}
