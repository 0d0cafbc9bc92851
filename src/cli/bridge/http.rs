//! `agent-reach bridge http`: each call is a POST to a web service.

use std::error::Error as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_reach_protocol::limits::MAX_CONCURRENCY_DEFAULT;
use agent_reach_sdk::{Agent, HandlerError, Payload};
use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use url::{Position, Url};

use super::body::Input;
use super::headers;
use super::job::{Job, excerpt};
use super::probe::{Probe, probe_or_never};
use super::serve::{self, Work};
use super::{Offer, answer};
use crate::cli::call_options::duration;
use crate::transport::roots::{client_config, system_roots};

/// How long the service may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection is kept without use: less than services commonly keep it, so that they do not close it under
/// a request.
const IDLE: Duration = Duration::from_secs(4);
/// Most headers of an answer.
const HEADERS_MAX: usize = 100;
/// Most bytes that a connection reads ahead, the head of an answer included.
const READ_BYTES_MAX: usize = 64 * 1024;
/// What the bridge calls itself.
const AGENT: &str = concat!("agent-reach/", env!("CARGO_PKG_VERSION"));
/// Kinds of answers, best first, for a caller that waits for all of it, and for one that streams.
const WHOLE: &str = "application/json, */*;q=0.5";
const STREAM: &str = "text/event-stream, application/x-ndjson, application/json;q=0.9, */*;q=0.5";

/// Arguments of `agent-reach bridge http`.
#[derive(Debug, Args)]
#[command(after_help = "\
The request carries Agent-Reach-Caller, -Capability and -Request-Id, Idempotency-Key, Request-Timeout (seconds that are
left) and traceparent. It ends when the call is cancelled or out of time.

A JSON answer is the result, text/event-stream and application/x-ndjson are streamed, others are passed as bytes.

Example:
  agent-reach bridge http --capability price.get --url http://127.0.0.1:8000/price --health http://127.0.0.1:8000/healthz

Exit code: 0 after SIGTERM, 1 failed, 2 usage, 3 no hub or thrown out by it, 130 after a second signal")]
pub struct HttpArgs {
    /// Where each call is posted to, http:// or https://
    #[arg(long, value_name = "URL", value_parser = address)]
    url: Url,
    /// A header of each request; may be repeated
    #[arg(long = "header", value_name = "K: V", value_parser = headers::given)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The same with the value of a variable, for secrets
    #[arg(long = "header-env", value_name = "K=VAR", value_parser = headers::from_variable)]
    header_env: Vec<(HeaderName, HeaderValue)>,
    /// Authorities that certify the service, besides those of the system
    #[arg(long, value_name = "FILE")]
    url_ca: Option<PathBuf>,
    /// Asked now and then; while it does not answer with 2xx, the agent gets no calls
    #[arg(long, value_name = "URL", value_parser = address)]
    health: Option<Url>,
    /// How often it is asked
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s", requires = "health")]
    health_every: Duration,
    /// What is offered.
    #[command(flatten)]
    offer: Offer,
}

/// What posts to services, on connections that are kept.
pub(super) type Poster = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

struct Http {
    client: Poster,
    uri: Uri,
    title: String,
    headers: HeaderMap,
    probe: Option<Probe>,
}

/// Runs the command.
pub(super) fn run(args: &HttpArgs) -> ExitCode {
    serve::run("http", &args.offer, Http::of(args))
}

/// An address that can be asked.
fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("no user or password in it: give --header-env Authorization=VAR".to_owned());
    }
    if url.fragment().is_some() {
        return Err("a fragment is never sent".to_owned());
    }
    Ok(url)
}

fn uri(url: &Url) -> Result<Uri, String> {
    url.as_str().parse().map_err(|error| format!("{url}: {error}"))
}

impl Http {
    fn of(args: &HttpArgs) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let given: Vec<_> = args.headers.iter().chain(&args.header_env).cloned().collect();
        for (name, _) in &given {
            headers.remove(name);
        }
        for (name, value) in given {
            headers.append(name, value);
        }
        let probe = args.health.as_ref().map(|url| Ok::<_, String>(Probe::new(uri(url)?, args.health_every)));
        Ok(Self {
            client: client(args)?,
            uri: uri(&args.url)?,
            // A query may hold a key.
            title: args.url[..Position::AfterPath].to_owned(),
            headers,
            probe: probe.transpose()?,
        })
    }

    fn request(&self, job: &Job, input: Input) -> Result<Request<Full<Bytes>>, HandlerError> {
        let content_type = HeaderValue::from_str(&input.content_type)
            .map_err(|_| HandlerError::invalid_request("the content_type is no value of a header"))?;
        let mut request = Request::new(Full::new(input.bytes));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        let accept = if job.context.wants_stream() { STREAM } else { WHOLE };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        // Names that come again, as those of two cookies, stand together in the map.
        for name in self.headers.keys() {
            headers.remove(name);
            for value in self.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        headers.insert(CONTENT_TYPE, content_type);
        headers::of_call(&job.context, headers);
        Ok(request)
    }

    async fn exchange(&self, job: &Job, payload: Payload) -> Result<Payload, HandlerError> {
        let request = self.request(job, Input::of(payload)?)?;
        let answer = self.client.request(request).await.map_err(|error| no_answer(job, &error))?;
        answer::read(job, answer).await
    }
}

impl Work for Http {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    fn concurrency(&self) -> u64 {
        MAX_CONCURRENCY_DEFAULT
    }

    async fn serve(&self, job: Job, payload: Payload) -> Result<Payload, HandlerError> {
        // Dropping the exchange closes its connection, which is how a service hears that nobody waits.
        tokio::select! {
            done = self.exchange(&job, payload) => done,
            over = job.over() => Err(over),
        }
    }

    async fn beside(&self, agent: &Agent) {
        probe_or_never(self.probe.as_ref(), &self.client, &self.headers, agent).await;
    }
}

/// A failure to get an answer. Where there was no connection nothing was done.
fn no_answer(job: &Job, error: &Error) -> HandlerError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    let text = excerpt(text.as_bytes());
    if error.is_connect() {
        return HandlerError::new("connect", text).retryable();
    }
    job.unknown("no_answer", text)
}

fn client(args: &HttpArgs) -> Result<Poster, String> {
    let roots = system_roots();
    let tls = client_config(roots, args.url_ca.as_deref()).map_err(|error| format!("--url-ca: {error}"))?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    let idle = args.offer.concurrency.unwrap_or(MAX_CONCURRENCY_DEFAULT);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(usize::try_from(idle).unwrap_or(usize::MAX))
        .http1_max_buf_size(READ_BYTES_MAX)
        .http1_max_headers(HEADERS_MAX)
        .build(connector))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_without_a_password_or_a_fragment() {
        assert!(address("http://127.0.0.1:8000/a?b=c").is_ok() && address("HTTPS://x.example").is_ok());
        for text in ["", "x", "ftp://x", "http://u@x", "http://:p@x", "http://x/#f", "file:///etc/passwd"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
