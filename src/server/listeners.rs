//! The listeners for HTTP: what is served there, and where.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::StartError;
use crate::access::Access;
use crate::config::Config;
use crate::driver::Driver;
use crate::http::{self, AllowedHosts, Api, Bounds, Connects, Gate, ServeOptions};
use crate::supervisor::Sockets;
use crate::telemetry::metrics::Metrics;
use crate::watcher::Watcher;

/// Most connections of the `[http]` listener: more than requests may be under way, so that health is answered meanwhile.
const HTTP_CONNECTIONS: usize = 1024;

/// What the `[http]` listener stands on.
pub(super) struct Http {
    pub(super) access: Arc<Access>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) connects: Connects,
}

impl Http {
    /// Serves health, API and console, if there is such a listener. Gives its address.
    pub(super) async fn serve(
        self,
        config: &Config,
        tls: Option<&watch::Sender<Arc<ServerConfig>>>,
        sockets: &mut Sockets,
        tasks: &mut JoinSet<()>,
    ) -> Result<Option<String>, StartError> {
        let Some(section) = &config.http else { return Ok(None) };
        // What holds for an address in the configuration holds for the socket in its place.
        if section.cert.is_none() {
            sockets.require_loopback("http")?;
        }
        let socket = bind(sockets, "http.listen", section.listen).await?;
        let scheme = if section.cert.is_some() { "https" } else { "http" };
        let address = url(scheme, &socket, section.listen);
        let hub = Arc::clone(&self.connects.driver);
        let gate = Gate {
            access: self.access,
            metrics: self.metrics,
            origins: section.allowed_origins.as_slice().into(),
            tls: section.cert.is_some(),
            body_time: Duration::from_millis(section.body_timeout_ms),
        };
        let routes = http::health_router(move || hub.unready());
        let bounds = Bounds {
            max_message: config.limits.max_message,
            outbound_bytes: config.limits.outbound_bytes,
            queue_bytes: config.limits.queue_bytes,
            body_time: Duration::from_millis(section.body_timeout_ms),
            resume: Duration::from_millis(config.liveness.resume_ms),
        };
        let api = Api::new(&self.connects.driver, bounds);
        let routes = routes.merge(http::api_router(&gate, self.connects, &api));
        let router = http::listener_router(routes, AllowedHosts::new(&section.allowed_origins));
        let tls = tls.map(watch::Sender::subscribe);
        let options = ServeOptions {
            tls,
            max_connections: HTTP_CONNECTIONS,
            header_timeout: Duration::from_millis(section.header_timeout_ms),
            ..ServeOptions::default()
        };
        tasks.spawn(http::serve(socket, router, options, std::future::pending()));
        Ok(Some(address))
    }
}

/// Serves metrics, if there is such a listener. Gives their address.
pub(super) async fn prometheus(
    config: &Config,
    sockets: &mut Sockets,
    driver: &Arc<Driver>,
    watcher: &Arc<Watcher>,
    tasks: &mut JoinSet<()>,
) -> Result<Option<String>, StartError> {
    let Some(section) = &config.metrics else { return Ok(None) };
    let socket = bind(sockets, "metrics.listen", section.listen).await?;
    let address = url("http", &socket, section.listen);
    let (scraped, figures) = (Arc::clone(watcher), Arc::clone(driver));
    let router = http::metrics_router(move || {
        let (counters, gauges) = figures.figures();
        let stored = scraped.keeping.figures();
        scraped.metrics.audit_dropped(scraped.audit.as_ref().map_or(0, |audit| audit.dropped()));
        scraped.metrics.scrape(&counters, &gauges, &figures.queued(), Some(&stored))
    });
    tasks.spawn(http::serve(socket, router, ServeOptions::default(), std::future::pending()));
    Ok(Some(address))
}

/// The socket of a listener.
pub(super) async fn bind(
    sockets: &mut Sockets,
    key: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, StartError> {
    sockets.listen(key, address).await.map_err(|source| StartError::Listen { key, address, source })
}

/// The address that was really taken, where port 0 was asked for.
pub(super) fn url(scheme: &str, socket: &TcpListener, asked: SocketAddr) -> String {
    format!("{scheme}://{}", socket.local_addr().unwrap_or(asked))
}
