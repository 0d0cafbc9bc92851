use std::io::{Read, Write};

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConnection, Error, HandshakeKind, ProtocolVersion, ServerConnection};

use super::*;
use crate::certs;

struct World {
    home: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        certs::init(home.path(), &[]).unwrap();
        certs::issue(home.path(), "a", &[], 1).unwrap();
        certs::issue(home.path(), "b", &[], 1).unwrap();
        Self { home }
    }

    fn files(&self) -> TlsFiles {
        let at = |name| self.home.path().join(name);
        let crl = Some(at("crl.pem"));
        TlsFiles { cert: at("hub.pem"), key: at("hub-key.pem"), client_ca: at("ca.pem"), crl, tls12: false }
    }

    fn client(&self, name: &str) -> Arc<ClientConfig> {
        let (cert, key) = certs::paths(self.home.path(), name);
        client_config(&self.home.path().join("ca.pem"), &cert, &key).unwrap()
    }
}

/// Carries bytes between both until nobody has more to say.
fn talk(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), Error> {
    loop {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let to_server = wire.len();
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let to_client = wire.len();
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
        if to_server + to_client == 0 {
            return Ok(());
        }
    }
}

fn meet(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    host: &'static str,
) -> Result<(ClientConnection, ServerConnection), Error> {
    let name = ServerName::try_from(host).unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    talk(&mut client, &mut server)?;
    Ok((client, server))
}

#[test]
fn an_agent_and_the_hub_meet_on_tls_13_under_each_name_of_the_hub() {
    let world = World::new();
    let server = server_config(&world.files()).unwrap().config;
    for host in ["localhost", "127.0.0.1", "::1"] {
        let (mut client, mut server) = meet(&world.client("a"), &server, host).unwrap();
        assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert_eq!(server.alpn_protocol(), Some(b"http/1.1".as_slice()));
        let leaf = &server.peer_certificates().unwrap()[0];
        let principal = crate::transport::identity::principal(leaf).unwrap();
        assert_eq!(principal.name, "a");
        client.writer().write_all(b"hello").unwrap();
        talk(&mut client, &mut server).unwrap();
        let mut heard = [0; 5];
        server.reader().read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let world = World::new();
    let server = server_config(&world.files()).unwrap().config;
    let client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions(true))
        .unwrap()
        .with_root_certificates(roots(&world.home.path().join("ca.pem")).unwrap())
        .with_no_client_auth();
    let refused = meet(&Arc::new(client), &server, "localhost").unwrap_err();
    assert_eq!(refused, Error::NoCertificatesPresented);
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let (world, other) = (World::new(), World::new());
    let (cert, key) = certs::paths(other.home.path(), "a");
    let client = client_config(&world.home.path().join("ca.pem"), &cert, &key).unwrap();
    let server = server_config(&world.files()).unwrap().config;
    assert!(matches!(meet(&client, &server, "localhost"), Err(Error::InvalidCertificate(_))));
}

#[test]
fn the_certificate_of_the_hub_is_none_for_an_agent_and_the_other_way_round() {
    let world = World::new();
    let server = server_config(&world.files()).unwrap().config;
    assert!(matches!(meet(&world.client("hub"), &server, "localhost"), Err(Error::InvalidCertificate(_))));
    let (cert, key) = certs::paths(world.home.path(), "b");
    let server = server_config(&TlsFiles { cert, key, ..world.files() }).unwrap().config;
    assert!(matches!(meet(&world.client("a"), &server, "localhost"), Err(Error::InvalidCertificate(_))));
}

#[test]
fn a_revoked_agent_is_refused_and_the_others_are_not() {
    let world = World::new();
    certs::revoke(world.home.path(), "a").unwrap();
    let server = server_config(&world.files()).unwrap().config;
    let refused = meet(&world.client("a"), &server, "localhost").unwrap_err();
    assert_eq!(refused, Error::InvalidCertificate(rustls::CertificateError::Revoked));
    meet(&world.client("b"), &server, "localhost").unwrap();
}

#[test]
fn tls_12_is_spoken_only_when_it_is_asked_for() {
    let world = World::new();
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots(&world.home.path().join("ca.pem")).unwrap())
        .with_client_auth_cert(
            pem::certs(&world.home.path().join("agents/a.pem")).unwrap(),
            pem::key(&world.home.path().join("agents/a-key.pem")).unwrap(),
        )
        .unwrap();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let client = Arc::new(client);
    let strict = server_config(&world.files()).unwrap().config;
    assert!(matches!(meet(&client, &strict, "localhost"), Err(Error::PeerIncompatible(_))));
    let lenient = server_config(&TlsFiles { tls12: true, ..world.files() }).unwrap().config;
    let (_, server) = meet(&client, &lenient, "localhost").unwrap();
    assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_2));
}

#[test]
fn a_second_connection_resumes_nothing_even_if_the_client_would() {
    let world = World::new();
    for tls12 in [false, true] {
        let server = server_config(&TlsFiles { tls12, ..world.files() }).unwrap().config;
        let mut client = ClientConfig::clone(&world.client("a"));
        client.resumption = Resumption::default();
        let client = Arc::new(client);
        for _ in 0..2 {
            let (_, server) = meet(&client, &server, "localhost").unwrap();
            assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
        }
    }
}

#[test]
fn a_client_that_speaks_only_http_2_is_told_so() {
    let world = World::new();
    let server = server_config(&world.files()).unwrap().config;
    let mut client = ClientConfig::clone(&world.client("a"));
    client.alpn_protocols = vec![b"h2".to_vec()];
    let refused = meet(&Arc::new(client), &server, "localhost").unwrap_err();
    assert!(
        matches!(refused, Error::NoApplicationProtocol),
        "{refused:?} {:?}",
        AlertDescription::NoApplicationProtocol
    );
}

#[test]
fn the_http_listener_asks_for_no_certificate() {
    let world = World::new();
    let files = world.files();
    let server = http_server_config(&files.cert, &files.key).unwrap();
    let (_, server) = meet(&world.client("a"), &server, "localhost").unwrap();
    assert!(server.peer_certificates().is_none());
}

#[test]
fn a_key_that_does_not_fit_is_named() {
    let world = World::new();
    let key = world.home.path().join("agents/a-key.pem");
    let error = server_config(&TlsFiles { key: key.clone(), ..world.files() }).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: does not work as the key of ", key.display())), "{error}");
}

#[test]
fn an_absent_revocation_list_is_an_error_and_not_an_empty_one() {
    let world = World::new();
    let crl = Some(world.home.path().join("nowhere.pem"));
    let error = server_config(&TlsFiles { crl, ..world.files() }).unwrap_err().to_string();
    assert!(error.contains("nowhere.pem: cannot be read"), "{error}");
}
