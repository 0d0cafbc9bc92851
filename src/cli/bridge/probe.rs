//! Whether a service is well, as the hub is told.

use std::time::Duration;

use agent_reach_sdk::{Agent, Load};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderMap;
use hyper::{Request, Uri};

use super::http::Poster;

/// How long a service may take to say that it is well.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked, and how often.
pub(super) struct Probe {
    uri: Uri,
    every: Duration,
}

impl Probe {
    pub(super) const fn new(uri: Uri, every: Duration) -> Self {
        Self { uri, every }
    }

    /// Why the service is not well; `None` when it is.
    async fn ill(&self, client: &Poster, headers: &HeaderMap) -> Option<String> {
        let mut request = Request::new(Full::<Bytes>::default());
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().clone_from(headers);
        match tokio::time::timeout(PATIENCE, client.request(request)).await {
            Ok(Ok(answer)) if answer.status().is_success() => None,
            Ok(Ok(answer)) => Some(format!("HTTP {}", answer.status().as_u16())),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer in time".to_owned()),
        }
    }
}

/// Tells the hub how the service is, each time that it changes. Ends never.
pub(super) async fn probe_or_never(
    probe: Option<&Probe>,
    client: &Poster,
    headers: &HeaderMap,
    agent: &Agent,
) {
    let Some(probe) = probe else { return std::future::pending().await };
    // An agent that has said nothing counts as well.
    let mut well = true;
    loop {
        let ill = probe.ill(client, headers).await;
        if ill.is_none() != well {
            well = ill.is_none();
            match ill {
                None => tracing::info!("the service is well again"),
                Some(reason) => tracing::warn!(reason, "the service is not well: no calls for now"),
            }
            let load = Load { health: Some(if well { 100 } else { 0 }), ..Load::default() };
            if agent.update_load(load).await.is_err() {
                tracing::debug!("the agent is closed");
            }
        }
        tokio::time::sleep(probe.every).await;
    }
}
