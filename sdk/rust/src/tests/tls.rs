//! Mutual TLS over loopback, with the certificate renewed on disk in between.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        let (der, pem) = (cert.der().clone(), cert.pem());
        Self { issuer: Issuer::new(params, key), der, pem }
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn write(&self, dir: &Path, name: &str) -> CertificateDer<'static> {
        let (cert, key) = self.issue(name);
        std::fs::write(dir.join("ca.pem"), &self.pem).unwrap();
        std::fs::write(dir.join("cert.pem"), cert.pem()).unwrap();
        std::fs::write(dir.join("key.pem"), key.serialize_pem()).unwrap();
        cert.der().clone()
    }

    fn acceptor(&self) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let (cert, key) = self.issue("hub");
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Accepts one agent; returns its certificate.
async fn session(listener: &TcpListener, acceptor: &TlsAcceptor) -> (Hub, CertificateDer<'static>) {
    let (tcp, _) = listener.accept().await.unwrap();
    let stream = acceptor.accept(tcp).await.unwrap();
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
    let mut hub = Hub::upgrade(Box::new(stream)).await;
    hub.welcome().await;
    (hub, shown)
}

#[tokio::test]
async fn a_reconnect_shows_the_certificate_that_is_on_disk_by_then() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let first = authority.write(dir.path(), "a");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let acceptor = authority.acceptor();
    let url = format!("wss://localhost:{}", listener.local_addr().unwrap().port());
    let file = |name: &str| dir.path().join(name);
    let tls = Tls::from_pem_files(file("ca.pem"), file("cert.pem"), file("key.pem")).unwrap();
    let builder = Agent::builder(url, "a").tls(tls);
    let (agent, (hub, shown)) = tokio::join!(builder.connect(), session(&listener, &acceptor));
    let agent = agent.unwrap();
    assert_eq!(shown, first);
    let second = authority.write(dir.path(), "a");
    assert_ne!(first, second);
    drop(hub);
    let (_hub, shown) = session(&listener, &acceptor).await;
    assert_eq!(shown, second);
    drop(agent);
}

#[test]
fn files_that_do_not_fit_are_refused_at_once() {
    let authority = Authority::new();
    let (cert, key) = authority.issue("a");
    let (_, other) = authority.issue("b");
    let (ca, cert, key) = (authority.pem.as_bytes(), cert.pem(), key.serialize_pem());
    let of = |ca: &[u8], cert: &str, key: &str| Tls::from_pem(ca, cert.as_bytes(), key.as_bytes()).is_ok();
    assert!(of(ca, &cert, &key));
    assert!(!of(b"", &cert, &key));
    assert!(!of(ca, &cert, &other.serialize_pem()));
    assert!(!of(ca, &cert, "nothing"));
    assert!(Tls::from_pem_files("/nowhere/ca.pem", "/nowhere/cert.pem", "/nowhere/key.pem").is_err());
}
