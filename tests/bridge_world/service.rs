//! A web service on a real socket: what it was asked, and answers that a test makes.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// An answer.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }
}

/// Serves on a free port, for as long as the test's runtime lives.
pub(crate) async fn serve<F, Fut>(answer: F) -> SocketAddr
where
    F: Fn(Asked) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    serve_with(None, answer).await
}

/// The same over TLS, with the certificate of the hub in `dir`.
pub(crate) async fn serve_tls<F, Fut>(dir: &Path, answer: F) -> SocketAddr
where
    F: Fn(Asked) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let chain = CertificateDer::pem_file_iter(dir.join("hub.pem")).expect("the certificate");
    let chain = chain.map(|cert| cert.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_file(dir.join("hub-key.pem")).expect("the key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a configuration");
    serve_with(Some(TlsAcceptor::from(Arc::new(config))), answer).await
}

async fn serve_with<F, Fut>(tls: Option<TlsAcceptor>, answer: F) -> SocketAddr
where
    F: Fn(Asked) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (tls, answer) = (tls.clone(), Arc::clone(&answer));
            tokio::spawn(async move {
                match tls {
                    None => talk(socket, answer).await,
                    Some(tls) => {
                        if let Ok(socket) = tls.accept(socket).await {
                            talk(socket, answer).await;
                        }
                    }
                }
            });
        }
    });
    address
}

async fn talk<F, Fut>(socket: impl AsyncRead + AsyncWrite + Unpin, answer: Arc<F>)
where
    F: Fn(Asked) -> Fut,
    Fut: Future<Output = Answer>,
{
    let service = service_fn(|request: Request<Incoming>| async {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let line = format!("{} {}", head.method, head.uri);
        Ok::<_, Infallible>(answer(Asked { line, headers: head.headers, body }).await)
    });
    // Who asks may be gone at any time.
    let _gone =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
}

/// An answer of this status, kind and body.
pub(crate) fn says(status: u16, kind: &str, body: impl Into<Bytes>) -> Answer {
    let answer = Response::builder().status(status).header("content-type", kind);
    answer.body(Full::new(body.into()).boxed_unsync()).expect("an answer")
}

/// An answer in JSON.
pub(crate) fn json(body: impl Into<Bytes>) -> Answer {
    says(200, "application/json", body)
}

/// An answer whose body comes as the test sends it.
pub(crate) fn streams(kind: &str, parts: mpsc::Receiver<Bytes>) -> Answer {
    let parts = futures_util::stream::unfold(parts, |mut parts| async {
        let part = parts.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(part)), parts))
    });
    let answer = Response::builder().header("content-type", kind);
    answer.body(UnsyncBoxBody::new(StreamBody::new(parts))).expect("an answer")
}

/// Tells when it is dropped, as a handler is whose client has gone.
struct Guard(mpsc::Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _nobody_listens = self.0.try_send("gone");
    }
}

/// A service that answers nothing, and tells when it is asked and when it is let go.
pub(crate) async fn silent() -> (SocketAddr, mpsc::Receiver<&'static str>) {
    let (tell, told) = mpsc::channel(100);
    let service = serve(move |_| {
        let tell = tell.clone();
        async move {
            tell.send("asked").await.expect("a test");
            let _guard = Guard(tell);
            std::future::pending::<Answer>().await
        }
    })
    .await;
    (service, told)
}
