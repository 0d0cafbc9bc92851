//! The stream against rustls' buffered client, over pipes.

use std::future::poll_fn;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

use super::handshake::PLACE_HELD;
use super::*;
use crate::certs;
use crate::transport::tls::{TlsFiles, client_config, server_config};
use crate::transport::wire::{read_more, send_all};

struct World {
    home: tempfile::TempDir,
    server: Arc<Trust>,
    places: Semaphore,
}

impl World {
    fn new(tls12: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        certs::init(home.path(), &[]).unwrap();
        certs::issue(home.path(), "a", &[], 1).unwrap();
        let at = |name| home.path().join(name);
        let crl = Some(at("crl.pem"));
        let (cert, key, client_ca) = (at("hub.pem"), at("hub-key.pem"), at("ca.pem"));
        let server = Trust::new(server_config(&TlsFiles { cert, key, client_ca, crl, tls12 }).unwrap());
        Self { home, server, places: Semaphore::new(1) }
    }

    fn client(&self) -> Arc<ClientConfig> {
        let (cert, key) = certs::paths(self.home.path(), "a");
        let mut config = client_config(&self.home.path().join("ca.pem"), &cert, &key).unwrap();
        Arc::get_mut(&mut config).unwrap().enable_secret_extraction = true;
        config
    }

    async fn meet(&self, pipe: usize) -> (ClientStream<DuplexStream>, TlsStream<DuplexStream>) {
        let (near, far) = duplex(pipe);
        let connector = TlsConnector::from(self.client());
        let places = [&self.places];
        let (client, server) = tokio::join!(
            connector.connect(ServerName::try_from("localhost").unwrap(), near),
            TlsStream::accept(far, &self.server, &places),
        );
        (client.unwrap(), server.unwrap())
    }
}

/// Makes TLS 1.3 records with the keys of a client.
struct Sealer {
    key: aws_lc_rs::aead::LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Sealer {
    fn new((sequence, secrets): (u64, rustls::ConnectionTrafficSecrets)) -> Self {
        let rustls::ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            panic!("the first suite of the hub is AES-128-GCM");
        };
        let key = aws_lc_rs::aead::UnboundKey::new(&aws_lc_rs::aead::AES_128_GCM, key.as_ref()).unwrap();
        let iv = iv.as_ref().try_into().unwrap();
        Self { key: aws_lc_rs::aead::LessSafeKey::new(key), iv, sequence }
    }

    fn seal(&mut self, content_type: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        for (byte, counter) in nonce.iter_mut().skip(4).zip(self.sequence.to_be_bytes()) {
            *byte ^= counter;
        }
        self.sequence += 1;
        let length = u16::try_from(content.len() + 1 + 16).unwrap().to_be_bytes();
        let head = [23, 3, 3, length[0], length[1]];
        let mut body = [content, &[content_type]].concat();
        let nonce = aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce);
        let aad = aws_lc_rs::aead::Aad::from(head);
        self.key.seal_in_place_append_tag(nonce, aad, &mut body).unwrap();
        [&head[..], &body].concat()
    }
}

/// Polls once.
async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
}

#[tokio::test]
async fn bytes_go_both_ways_whatever_their_number_and_however_narrow_the_pipe() {
    for tls12 in [false, true] {
        let world = World::new(tls12);
        for (pipe, count) in [(7, 20_000), (1000, 200_000), (1 << 20, 200_000)] {
            let (client, mut server) = world.meet(pipe).await;
            assert!(server.peer_certificates().is_some_and(|chain| !chain.is_empty()));
            let sent: Vec<u8> = (0..count).map(|i: u32| i.to_le_bytes()[1]).collect();
            let (mut from_server, mut to_server) = split(client);
            let client = async {
                let mut back = vec![0; sent.len()];
                let write = async {
                    to_server.write_all(&sent).await.unwrap();
                    to_server.flush().await.unwrap();
                };
                let read = from_server.read_exact(&mut back);
                tokio::join!(write, async { read.await.unwrap() });
                back
            };
            let echo = async {
                let mut echoed = 0;
                while echoed < sent.len() {
                    let mut plain = Vec::new();
                    read_more(&mut server, &mut plain).await.unwrap();
                    echoed += plain.len();
                    send_all(&mut server, &plain).await.unwrap();
                }
            };
            let (back, ()) = tokio::join!(client, echo);
            assert!(back == sent, "pipe of {pipe}");
            assert_eq!(server.partial.capacity(), 0, "an idle stream holds nothing");
        }
    }
}

#[tokio::test]
async fn what_was_not_used_of_a_read_is_lent_again_and_before_what_comes_later() {
    let world = World::new(false);
    let (mut client, mut server) = world.meet(1 << 20).await;
    let sent: Vec<u8> = (0..100_000).map(|i: u32| i.to_le_bytes()[1]).collect();
    client.write_all(&sent).await.unwrap();
    client.flush().await.unwrap();
    let mut plain = Vec::new();
    let mut longest = 0;
    while plain.len() < sent.len() {
        let mut use_some = |lent: &[u8]| {
            longest = longest.max(lent.len());
            let used = lent.len().min(777);
            plain.extend_from_slice(&lent[..used]);
            used
        };
        poll_fn(|cx| server.poll_read(cx, 40_000, &mut use_some)).await.unwrap();
    }
    assert!(plain == sent);
    assert!(longest <= 40_000, "{longest}");
    assert!(server.ahead.lend_kept(1, &mut |_| 1).is_none(), "nothing is kept");
}

#[tokio::test]
async fn what_comes_with_the_last_words_of_the_handshake_is_not_lost() {
    let world = World::new(false);
    // Too wide to make the client wait: its request leaves together with its certificate.
    let (near, far) = duplex(1 << 20);
    let connector = TlsConnector::from(world.client());
    let client = async {
        let mut client = connector.connect(ServerName::try_from("localhost").unwrap(), near).await.unwrap();
        client.write_all(b"at once").await.unwrap();
        client.shutdown().await.unwrap();
        client
    };
    let places = [&world.places];
    let server = TlsStream::accept(far, &world.server, &places);
    let (_client, server) = tokio::join!(client, server);
    let mut server = server.unwrap();
    let mut plain = Vec::new();
    while plain.len() < 7 {
        read_more(&mut server, &mut plain).await.unwrap();
    }
    assert_eq!(plain, b"at once");
    let ended = read_more(&mut server, &mut plain).await.unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn keys_are_changed_when_the_peer_asks_for_it() {
    let world = World::new(false);
    let (mut client, mut server) = world.meet(1 << 16).await;
    for round in 0..3_u8 {
        client.get_mut().1.refresh_traffic_keys().unwrap();
        client.write_all(&[round]).await.unwrap();
        client.flush().await.unwrap();
        let mut plain = Vec::new();
        while plain.is_empty() {
            read_more(&mut server, &mut plain).await.unwrap();
        }
        send_all(&mut server, &plain).await.unwrap();
        let mut back = [0];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!((plain.as_slice(), back), ([round].as_slice(), [round]));
    }
}

/// rustls panics when it is not shown the part of a message that it has seen before. A client of ours has no way
/// to send one, so its records are made from its secrets.
#[tokio::test]
async fn a_message_about_keys_that_comes_in_part_breaks_nothing_that_is_sent_meanwhile() {
    let world = World::new(false);
    let (client, mut server) = world.meet(1 << 16).await;
    let (mut socket, tls) = client.into_inner();
    let secrets = tls.dangerous_extract_secrets().unwrap();
    // The type and the length of a KeyUpdate, and of its body nothing; then its body.
    let mut sealer = Sealer::new(secrets.tx);
    socket.write_all(&sealer.seal(22, &[24, 0, 0, 1])).await.unwrap();
    let mut plain = Vec::new();
    read_more(&mut server, &mut plain).await.unwrap();
    assert!(plain.is_empty() && !server.partial.is_empty());
    send_all(&mut server, b"meanwhile").await.unwrap();
    assert!(socket.read(&mut [0; 100]).await.unwrap() > 9);
    socket.write_all(&sealer.seal(22, &[0])).await.unwrap();
    read_more(&mut server, &mut plain).await.unwrap();
    assert!(server.partial.is_empty(), "the keys are changed");
    // Parts without an end are not kept for ever.
    let (client, mut server) = world.meet(1 << 16).await;
    let (mut socket, tls) = client.into_inner();
    let mut sealer = Sealer::new(tls.dangerous_extract_secrets().unwrap().tx);
    socket.write_all(&sealer.seal(22, &[24, 0, 0xff, 0])).await.unwrap();
    let endless = loop {
        socket.write_all(&sealer.seal(22, &[0; 1000])).await.unwrap();
        if let Err(error) = read_more(&mut server, &mut plain).await {
            break error;
        }
        assert!(server.partial.len() < 2 * PARTIAL_MAX);
    };
    assert_eq!(endless.kind(), io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn the_end_is_said_and_heard() {
    let world = World::new(false);
    let (mut client, mut server) = world.meet(1 << 16).await;
    poll_fn(|cx| {
        server.end(cx);
        server.poll_flush(cx)
    })
    .await
    .unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "an end and no break");
}

#[tokio::test]
async fn a_client_without_a_certificate_is_told_so() {
    let world = World::new(false);
    let (near, far) = duplex(1 << 16);
    let mut roots = rustls::RootCertStore::empty();
    for root in crate::transport::pem::certs(&world.home.path().join("ca.pem")).unwrap() {
        roots.add(root).unwrap();
    }
    let client = ClientConfig::builder_with_provider(crate::transport::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = async {
        let connector = TlsConnector::from(Arc::new(client));
        let mut client = connector.connect(ServerName::try_from("localhost").unwrap(), near).await?;
        client.read(&mut [0]).await
    };
    let places = [&world.places];
    let server = TlsStream::accept(far, &world.server, &places);
    let (client, server) = tokio::join!(client, server);
    let refused = server.err().unwrap().into_inner().unwrap().downcast::<Error>().unwrap();
    assert_eq!(*refused, Error::NoCertificatesPresented);
    let told = client.unwrap_err().into_inner().unwrap().downcast::<Error>().unwrap();
    assert_eq!(*told, Error::AlertReceived(AlertDescription::CertificateRequired));
}

#[tokio::test]
async fn a_broken_record_ends_the_stream_and_the_peer_is_told() {
    let world = World::new(false);
    let (mut client, mut server) = world.meet(1 << 16).await;
    client.get_mut().0.write_all(&[23, 3, 3, 0, 32]).await.unwrap();
    client.get_mut().0.write_all(&[0; 32]).await.unwrap();
    let broken = read_more(&mut server, &mut Vec::new()).await.unwrap_err();
    assert_eq!(broken.kind(), io::ErrorKind::InvalidData);
    let told = client.read(&mut [0]).await.unwrap_err().into_inner().unwrap().downcast::<Error>().unwrap();
    assert_eq!(*told, Error::AlertReceived(AlertDescription::BadRecordMac));
}

#[tokio::test(start_paused = true)]
async fn a_greeting_that_is_not_whole_holds_no_place_and_one_that_is_holds_it_for_a_bounded_time() {
    let world = World::new(false);
    let hello = {
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = rustls::ClientConnection::new(world.client(), name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        hello
    };
    let (mut slow, far) = duplex(1 << 16);
    slow.write_all(hello.get(..hello.len() - 1).unwrap()).await.unwrap();
    let started = Instant::now();
    let places = [&world.places];
    let waiting = TlsStream::accept(far, &world.server, &places);
    tokio::pin!(waiting);
    assert!(is_pending(&mut waiting).await);
    assert_eq!(world.places.available_permits(), 1, "it has not said what it wants");
    slow.write_all(hello.get(hello.len() - 1..).unwrap()).await.unwrap();
    assert!(is_pending(&mut waiting).await);
    assert_eq!(world.places.available_permits(), 0);
    let late = waiting.await.err().unwrap();
    assert_eq!((late.kind(), started.elapsed()), (io::ErrorKind::TimedOut, PLACE_HELD));
    assert_eq!(world.places.available_permits(), 1);
}
