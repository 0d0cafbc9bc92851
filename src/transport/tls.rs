//! TLS settings of the listeners and of our own clients.
//!
//! The crypto provider is always given by value, never taken from the process: a default set elsewhere
//! (or set twice, by a dependency) must not change what the hub speaks.
//!
//! Resumption is off everywhere on the server side (no session store, no tickets). A resumed session
//! skips the certificate, and with it the expiry and the revocation check, so a revoked agent could come
//! back with an old ticket. Agents keep one connection for long: a full handshake each time costs little.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::pem::{self, PemError};
use super::refusals::{Refusals, telling};
use super::signatures::remembering;
use super::trust::AgentTls;

/// The files of the agent listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Chain of the hub, leaf first. PEM.
    pub cert: PathBuf,
    /// Private key of the leaf. PEM, not encrypted.
    pub key: PathBuf,
    /// The roots that may sign agents. PEM, at least one.
    pub client_ca: PathBuf,
    /// Revocation lists. When given, it must hold one for each CA in an agent's chain: a certificate
    /// whose CA has no list there is refused. A list that is past its `nextUpdate` still counts, since
    /// a late list must not lock every agent out.
    pub crl: Option<PathBuf>,
    /// Also speak TLS 1.2. Default: false, TLS 1.3 only.
    pub tls12: bool,
}

/// Why TLS could not be set up. Every text names the file at fault.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read as PEM.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The chain and the key do not fit each other, or are of a kind that is not supported.
    #[error("{}: does not work as the key of {}: {source}", key.display(), cert.display())]
    KeyPair {
        /// The chain.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
    /// A certificate in a file of roots cannot be a root.
    #[error("{}: not usable as a certificate authority: {source}", path.display())]
    Root {
        /// The file of roots.
        path: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
    /// The revocation list cannot be used.
    #[error("{}: not usable as a certificate revocation list: {source}", path.display())]
    Crl {
        /// The file of lists.
        path: PathBuf,
        /// What rustls says.
        source: VerifierBuilderError,
    },
    /// The protocol versions fit no cipher suite of the provider: our own fault.
    #[error("no cipher suite for the TLS versions: {0}")]
    Versions(rustls::Error),
}

/// Settings of the agent listener: a client certificate is required, and checked against the roots
/// and the revocation lists. ALPN `http/1.1`, which is what a WebSocket upgrade needs.
///
/// # Errors
/// [`TlsError`] when a file is absent, broken, or does not fit the others.
pub fn server_config(files: &TlsFiles) -> Result<AgentTls, TlsError> {
    server_config_told(files, None)
}

/// The same, with who is told of certificates that are refused.
///
/// # Errors
/// As above.
pub fn server_config_told(files: &TlsFiles, refusals: Option<Refusals>) -> Result<AgentTls, TlsError> {
    let mut provider = provider();
    let server = Arc::make_mut(&mut provider);
    server.signature_verification_algorithms = remembering(server.signature_verification_algorithms);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(&files.client_ca)?, provider.clone());
    let verifier = match &files.crl {
        Some(crl) => verifier.with_crls(pem::crls(crl)?),
        None => verifier,
    };
    let at_fault = files.crl.clone().unwrap_or_else(|| files.client_ca.clone());
    let verifier = verifier.build().map_err(|source| TlsError::Crl { path: at_fault, source })?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(files.tls12))
        .map_err(TlsError::Versions)?
        // Who is judged again later has been let in before: that one's end is told otherwise.
        .with_client_cert_verifier(telling(Arc::clone(&verifier), refusals));
    let config = finish(builder, &files.cert, &files.key)?;
    Ok(AgentTls { config, verifier: Some(verifier) })
}

/// Settings of the HTTP listener: no client certificate, TLS 1.2 and 1.3 since browsers come here.
///
/// # Errors
/// [`TlsError`] when a file is absent, broken, or the key does not fit.
pub fn http_server_config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions(true))
        .map_err(TlsError::Versions)?
        .with_no_client_auth();
    finish(builder, cert, key)
}

/// Settings of a client that trusts the roots in `ca` and shows the chain in `cert`: for the commands
/// and for tests. TLS 1.2 and 1.3: the server chooses.
///
/// # Errors
/// [`TlsError`] when a file is absent, broken, or the key does not fit.
pub fn client_config(ca: &Path, cert: &Path, key: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions(true))
        .map_err(TlsError::Versions)?
        .with_root_certificates(roots(ca)?)
        .with_client_auth_cert(pem::certs(cert)?, pem::key(key)?)
        .map_err(|source| TlsError::KeyPair { cert: cert.to_owned(), key: key.to_owned(), source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The one crypto provider of the hub. Of the ciphers of TLS 1.3 the one with AES-128 and SHA-256 comes first:
/// as good for every purpose here, and its handshakes cost a tenth less than those with SHA-384.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // Stable: the order of the others stays.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn versions(tls12: bool) -> &'static [&'static SupportedProtocolVersion] {
    static STRICT: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    if tls12 { &BOTH } else { &STRICT }
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in pem::certs(path)? {
        roots.add(cert).map_err(|source| TlsError::Root { path: path.to_owned(), source })?;
    }
    Ok(Arc::new(roots))
}

fn finish(
    builder: rustls::ConfigBuilder<ServerConfig, rustls::server::WantsServerCert>,
    cert: &Path,
    key: &Path,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = builder
        .with_single_cert(pem::certs(cert)?, pem::key(key)?)
        .map_err(|source| TlsError::KeyPair { cert: cert.to_owned(), key: key.to_owned(), source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.ignore_client_order = true;
    Ok(Arc::new(config))
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
