//! Certificates: read anew for each connection, so that renewed files are used without a restart.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::errors::ConnectError;

/// What proves this agent to the hub, and the hub to this agent.
#[derive(Clone)]
pub struct Tls(Source);

#[derive(Clone)]
enum Source {
    Files { ca: PathBuf, cert: PathBuf, key: PathBuf },
    Fixed(Arc<ClientConfig>),
}

impl Tls {
    /// PEM files: the hub's CA, this agent's certificate chain, its private key. They are read now, to find
    /// mistakes early, and again at each connect.
    ///
    /// # Errors
    /// When a file cannot be read, holds no PEM of its kind, or key and certificate do not match.
    pub fn from_pem_files(
        ca: impl Into<PathBuf>,
        cert: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, ConnectError> {
        let source = Source::Files { ca: ca.into(), cert: cert.into(), key: key.into() };
        source.load()?;
        Ok(Self(source))
    }

    /// The same three as PEM text in memory.
    ///
    /// # Errors
    /// As [`Tls::from_pem_files`].
    pub fn from_pem(ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Self, ConnectError> {
        config(ca, cert, key).map(|config| Self(Source::Fixed(config)))
    }

    /// A rustls configuration of one's own, used for every connection.
    pub fn from_config(config: Arc<ClientConfig>) -> Self {
        Self(Source::Fixed(config))
    }

    /// Reads files off the runtime's threads.
    pub(crate) async fn load(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        if let Source::Fixed(config) = &self.0 {
            return Ok(Arc::clone(config));
        }
        let source = self.0.clone();
        tokio::task::spawn_blocking(move || source.load())
            .await
            .map_err(|e| ConnectError::Tls(e.to_string()))?
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Source {
    fn load(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        match self {
            Self::Fixed(config) => Ok(Arc::clone(config)),
            Self::Files { ca, cert, key } => {
                let read = |path: &PathBuf| {
                    std::fs::read(path).map_err(|e| ConnectError::Tls(format!("{}: {e}", path.display())))
                };
                config(&read(ca)?, &read(cert)?, &read(key)?)
            }
        }
    }
}

fn config(ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Arc<ClientConfig>, ConnectError> {
    let wrong = |what: &str, e: &dyn std::fmt::Display| ConnectError::Tls(format!("{what}: {e}"));
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(ca) {
        let root = root.map_err(|e| wrong("CA", &e))?;
        roots.add(root).map_err(|e| wrong("CA", &e))?;
    }
    if roots.is_empty() {
        return Err(ConnectError::Tls("CA: no certificate in it".to_owned()));
    }
    let chain: Vec<_> = CertificateDer::pem_slice_iter(cert)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong("certificate", &e))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| wrong("key", &e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong("protocol", &e))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|e| wrong("certificate and key", &e))?;
    Ok(Arc::new(config))
}
