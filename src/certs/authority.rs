//! The authority of one directory, once its files are read and fit each other.

use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData,
};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::crl::Revoked;
use super::files::{self, Secrecy};
use super::{
    BACKDATE, CertsError, DEV_REST, HUB, InMemory, Issued, Order, common_name, names_of, paths, serial,
};
use crate::transport::{identity, pem};

/// The authority of one directory. The caller holds the directory's lock.
pub(super) struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    not_after: OffsetDateTime,
}

/// A line of `issued.txt`, or what a certificate file says.
struct Record {
    serial: Vec<u8>,
    not_after: i64,
}

impl Authority {
    pub(super) fn load(dir: &Path) -> Result<Self, CertsError> {
        let (cert_path, key_path) = (dir.join("ca.pem"), dir.join("ca-key.pem"));
        let key = KeyPair::from_pem(&files::read(&key_path)?)?;
        let certs = pem::certs(&cert_path)?;
        let broken = |reason| CertsError::Broken { path: cert_path.clone(), reason };
        let der = certs.first().ok_or_else(|| broken("holds no certificate"))?;
        let (_, cert) = X509Certificate::from_der(der).map_err(|_| broken("is no certificate"))?;
        if cert.public_key().raw != key.subject_public_key_info() {
            return Err(broken("is not the certificate of ca-key.pem"));
        }
        let not_after = cert.validity().not_after.to_datetime();
        Ok(Self { dir: dir.to_owned(), issuer: Issuer::from_ca_cert_der(der, key)?, not_after })
    }

    pub(super) fn issue(&self, order: &Order<'_>) -> Result<Issued, CertsError> {
        let name = order.name;
        let (cert_path, key_path) = paths(&self.dir, name);
        let params = self.params(order)?;
        let (key, new_key) = match self.kept_key(name, &key_path)? {
            Some(key) => (key, false),
            None => (KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?, true),
        };
        let cert = params.signed_by(&key, &self.issuer)?;
        // Written down first: there must never be a certificate that `revoke` does not know of.
        self.record(&params, name)?;
        files::directory(&self.dir.join("agents"))?;
        if new_key {
            files::replace(&key_path, &key.serialize_pem(), Secrecy::Owner)?;
        }
        files::replace(&cert_path, &cert.pem(), Secrecy::Everybody)?;
        let refused = if name == HUB { None } else { identity::principal(cert.der()).err() };
        Ok(Issued { cert: cert_path, key: key_path, new_key, refused })
    }

    /// A certificate that is in no file, nor in `issued.txt`: nothing of it is left behind.
    pub(super) fn issue_in_memory(&self, order: &Order<'_>) -> Result<InMemory, CertsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let cert = self.params(order)?.signed_by(&key, &self.issuer)?;
        Ok(InMemory { cert: cert.pem(), key: key.serialize_pem() })
    }

    fn params(&self, order: &Order<'_>) -> Result<CertificateParams, CertsError> {
        let now = OffsetDateTime::now_utc();
        let valid = time::Duration::try_from(order.valid).map_err(|_| CertsError::Validity)?;
        let mut params = CertificateParams::default();
        params.not_before = now - BACKDATE;
        params.not_after = now.checked_add(valid).ok_or(CertsError::Validity)?.min(self.not_after);
        params.serial_number = Some(serial()?);
        params.subject_alt_names = names_of(order)?;
        params.distinguished_name = common_name(order.name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![if order.name == HUB {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        Ok(params)
    }

    pub(super) fn revoke(&self, name: &str) -> Result<Vec<String>, CertsError> {
        let path = self.dir.join("crl.pem");
        let mut revoked = Revoked::load(&path)?;
        let now = OffsetDateTime::now_utc();
        let mut serials = Vec::new();
        for record in self.records(name)? {
            if record.not_after >= now.unix_timestamp() && !revoked.contains(&record.serial) {
                serials.push(identity::hex(&record.serial));
                revoked.entries.push((record.serial, now.unix_timestamp()));
            }
        }
        if serials.is_empty() {
            return Err(CertsError::NothingToRevoke { name: name.to_owned() });
        }
        revoked.write(&path, &self.issuer, now)?;
        Ok(serials)
    }

    /// Whether `dev` can use the certificate of this name as it is.
    pub(super) fn is_good(&self, name: &str, revoked: &Revoked) -> Result<bool, CertsError> {
        let (cert, key) = paths(&self.dir, name);
        if !cert.exists() || !key.exists() {
            return Ok(false);
        }
        let record = record_of(&cert)?;
        let rest = (OffsetDateTime::now_utc() + DEV_REST).unix_timestamp();
        Ok(record.not_after > rest && !revoked.contains(&record.serial))
    }

    /// The key that a certificate of this name is to keep: none when there is none, or when the newest
    /// certificate was revoked.
    fn kept_key(&self, name: &str, path: &Path) -> Result<Option<KeyPair>, CertsError> {
        if !path.exists() {
            return Ok(None);
        }
        let revoked = Revoked::load(&self.dir.join("crl.pem"))?;
        if self.records(name)?.last().is_some_and(|newest| revoked.contains(&newest.serial)) {
            return Ok(None);
        }
        Ok(Some(KeyPair::from_pem(&files::read(path)?)?))
    }

    fn record(&self, params: &CertificateParams, name: &str) -> Result<(), CertsError> {
        let serial = params.serial_number.as_ref().map(|serial| serial.to_bytes()).unwrap_or_default();
        let line = format!("{} {} {name}", identity::hex(&serial), params.not_after.unix_timestamp());
        files::append(&self.dir.join("issued.txt"), &line)
    }

    /// Every certificate of this name that is known of, the newest last.
    fn records(&self, name: &str) -> Result<Vec<Record>, CertsError> {
        let path = self.dir.join("issued.txt");
        let text = if path.exists() { files::read(&path)? } else { String::new() };
        let mut records = Vec::new();
        for line in text.lines() {
            let record = line
                .rsplit_once(' ')
                .and_then(|(record, of)| Some((record.split_once(' ')?, of)))
                .and_then(|((serial, end), of)| Some((unhex(serial)?, end.parse().ok()?, of)));
            match record {
                Some((serial, not_after, of)) if of == name => records.push(Record { serial, not_after }),
                Some(_) => {}
                None => return Err(CertsError::Broken { path, reason: "has a line that cannot be read" }),
            }
        }
        let (cert, _) = paths(&self.dir, name);
        if cert.exists() {
            let current = record_of(&cert)?;
            if !records.iter().any(|record| record.serial == current.serial) {
                records.push(current);
            }
        }
        Ok(records)
    }
}

fn record_of(path: &Path) -> Result<Record, CertsError> {
    let certs = pem::certs(path)?;
    let broken = || CertsError::Broken { path: path.to_owned(), reason: "is no certificate" };
    let (_, cert) = X509Certificate::from_der(certs.first().ok_or_else(broken)?).map_err(|_| broken())?;
    Ok(Record { serial: cert.raw_serial().to_vec(), not_after: cert.validity().not_after.timestamp() })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || text.is_empty() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}
