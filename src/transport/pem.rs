//! Certificates, keys and revocation lists from PEM files.
//!
//! This is the only file that uses `rustls-pemfile`. The project names that crate as a dependency; it
//! has been archived since (RUSTSEC-2025-0134: unmaintained, no known fault) in favour of the PEM reader
//! inside `rustls-pki-types`, around which its version 2 is a thin wrapper. Keeping it behind these
//! functions makes the change to that reader a matter of one file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// Longest PEM file that is read: 16 MiB. Larger ones are refused, so that a wrong path
/// (a device, a log) cannot fill the memory.
pub const MAX_PEM_BYTES: u64 = 16 * 1024 * 1024;

/// Why a PEM file could not be used. Every text names the file; whoever wrote the file is at fault.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// The file is absent, not permitted, or could not be read to its end.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file was read, but has no block of the wanted kind.
    #[error("{}: holds no {wanted} in PEM form", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
    },
    /// The file is larger than [`MAX_PEM_BYTES`].
    #[error("{}: is larger than 16 MiB", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
}

impl PemError {
    /// The file that could not be used.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. } | Self::Absent { path, .. } | Self::TooLarge { path } => path,
        }
    }
}

/// All certificates of the file, in its order: a chain with the leaf first, or a set of roots.
///
/// # Errors
/// [`PemError`] when the file cannot be read, is broken, or holds no certificate.
pub fn certs(path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let text = text(path)?;
    let found = rustls_pemfile::certs(&mut text.as_slice()).collect::<Result<Vec<_>, _>>();
    some(path, found, "certificate")
}

/// The first private key of the file: PKCS #8, SEC 1 or PKCS #1, not encrypted.
///
/// # Errors
/// [`PemError`] when the file cannot be read, is broken, or holds no plain private key.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let text = text(path)?;
    rustls_pemfile::private_key(&mut text.as_slice())
        .map_err(|source| PemError::Read { path: path.to_owned(), source })?
        .ok_or_else(|| PemError::Absent { path: path.to_owned(), wanted: "unencrypted private key" })
}

/// All certificate revocation lists of the file.
///
/// # Errors
/// [`PemError`] when the file cannot be read, is broken, or holds no list: an empty file in the place
/// of a CRL is a fault, since it would silently let revoked agents in.
pub fn crls(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    let text = text(path)?;
    let found = rustls_pemfile::crls(&mut text.as_slice()).collect::<Result<Vec<_>, _>>();
    some(path, found, "certificate revocation list")
}

fn text(path: &Path) -> Result<Vec<u8>, PemError> {
    let failed = |source| PemError::Read { path: path.to_owned(), source };
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    BufReader::new(file).take(MAX_PEM_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_PEM_BYTES {
        return Err(PemError::TooLarge { path: path.to_owned() });
    }
    Ok(text)
}

fn some<T>(path: &Path, found: io::Result<Vec<T>>, wanted: &'static str) -> Result<Vec<T>, PemError> {
    match found {
        Ok(items) if items.is_empty() => Err(PemError::Absent { path: path.to_owned(), wanted }),
        Ok(items) => Ok(items),
        Err(source) => Err(PemError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn an_absent_file_is_named_in_the_error() {
        let error = certs(Path::new("/nowhere/hub.pem")).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/hub.pem: cannot be read: "), "{error}");
    }

    #[test]
    fn a_file_without_the_wanted_block_is_refused() {
        let empty = file("");
        let path = empty.path();
        assert!(matches!(certs(path), Err(PemError::Absent { wanted: "certificate", .. })));
        assert!(matches!(key(path), Err(PemError::Absent { wanted: "unencrypted private key", .. })));
        assert!(matches!(crls(path), Err(PemError::Absent { .. })));
    }

    #[test]
    fn a_certificate_is_not_taken_for_a_key() {
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let file = file(&signed.cert.pem());
        assert_eq!(certs(file.path()).unwrap(), vec![signed.cert.der().clone()]);
        assert!(matches!(key(file.path()), Err(PemError::Absent { .. })));
    }

    #[test]
    fn a_broken_block_is_refused_and_not_skipped() {
        let broken = file("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
        assert!(matches!(certs(broken.path()), Err(PemError::Read { .. })));
    }

    #[test]
    fn a_file_over_the_limit_is_refused() {
        let large = tempfile::NamedTempFile::new().unwrap();
        large.as_file().set_len(MAX_PEM_BYTES + 1).unwrap();
        assert!(matches!(certs(large.path()), Err(PemError::TooLarge { .. })));
    }
}
