//! Certificates that are refused, told with the name that is in them.
//!
//! rustls keeps nothing of a certificate that it does not take, so the one place where its name can be had is the check
//! itself.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::identity::principal;
use crate::telemetry::metrics::certificate_reason;

/// Hears of a certificate that names somebody and is refused: the name, which is proven by nothing, and why. Called in the
/// handshake: it must not wait.
#[derive(Clone)]
pub struct Refusals(Arc<Hear>);

type Hear = dyn Fn(&str, &'static str) + Send + Sync;

impl Refusals {
    /// Told to this.
    pub fn new(hear: impl Fn(&str, &'static str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusals")
    }
}

/// The same check, with somebody who is told of what it refuses.
pub(super) fn telling(
    verifier: Arc<dyn ClientCertVerifier>,
    refusals: Option<Refusals>,
) -> Arc<dyn ClientCertVerifier> {
    match refusals {
        Some(refusals) => Arc::new(Telling { verifier, refusals }),
        None => verifier,
    }
}

#[derive(Debug)]
struct Telling {
    verifier: Arc<dyn ClientCertVerifier>,
    refusals: Refusals,
}

impl ClientCertVerifier for Telling {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now);
        if let Err(error) = &verified
            && let Some(reason) = certificate_reason(error)
            && let Ok(named) = principal(end_entity)
        {
            (self.refusals.0)(&named.identity, reason);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.verifier.requires_raw_public_keys()
    }
}
