//! Who is trusted now: the TLS settings of the agent listener, which are replaced while connections are open.
//!
//! A connection was let in by the roots and revocation lists of its handshake. When those are replaced it is judged
//! again, by its own thread and with the very verifier that new handshakes get, so that who could not come in any more
//! does not stay either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, Error, ServerConfig};
use tokio::sync::watch;

/// TLS settings of a listener, and what judges the certificates of those who come.
#[derive(Clone, Debug)]
pub struct AgentTls {
    /// For handshakes.
    pub config: Arc<ServerConfig>,
    /// The verifier in it; `None` where no certificate is asked for.
    pub verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// Why a peer that was let in is trusted no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// Its certificate, or one above it, has run out.
    Expired,
    /// Its certificate is revoked, or its authority is none any more.
    Revoked,
}

/// The settings that count now.
#[derive(Debug)]
pub struct Trust {
    current: watch::Sender<AgentTls>,
    /// Counts up when who is let in has changed.
    generation: AtomicU32,
}

impl Trust {
    /// With these settings.
    #[must_use]
    pub fn new(tls: AgentTls) -> Arc<Self> {
        Arc::new(Self { current: watch::Sender::new(tls), generation: AtomicU32::new(0) })
    }

    /// Settings for a listener that asks for no certificate.
    #[must_use]
    pub fn of_anybody(config: Arc<ServerConfig>) -> Arc<Self> {
        Self::new(AgentTls { config, verifier: None })
    }

    /// Replaces the settings. `others`: they let in others than before, so all who are here are to be judged again.
    pub fn replace(&self, tls: AgentTls, others: bool) {
        self.current.send_replace(tls);
        if others {
            // After the settings: a handshake that reads them both sees an old number with new settings at worst, and
            // is judged once more.
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Which who-is-let-in counts now. To be read before [`Trust::config`].
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The settings for a handshake.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.borrow().config)
    }

    /// Judges a chain, leaf first, as a handshake now would.
    pub(super) fn judge(&self, chain: Option<&[CertificateDer<'static>]>) -> Result<(), Distrust> {
        let Some(verifier) = self.current.borrow().verifier.clone() else { return Ok(()) };
        let Some((leaf, others)) = chain.and_then(<[_]>::split_first) else { return Err(Distrust::Revoked) };
        match verifier.verify_client_cert(leaf, others, UnixTime::now()) {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Err(Distrust::Expired),
            Err(_) => Err(Distrust::Revoked),
        }
    }
}
