//! Who may ask for anything under `/v1`: a token or a session, and no page of another origin.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

use super::Problem;
use super::host::{Origin, origin_of};
use super::serve::PeerAddress;
use crate::access::{Access, Refused, Visitor};
use crate::telemetry::metrics::Metrics;

const NEEDED: &str = "this needs a token (Authorization: Bearer TOKEN) or a session";

/// The cookie of a session.
pub(super) const COOKIE: &str = "agent_reach_session";

/// Lets in who has a token or a session.
#[derive(Clone)]
pub struct Gate {
    /// What tokens prove.
    pub access: Arc<Access>,
    /// Who counts wrong tokens.
    pub metrics: Arc<Metrics>,
    /// Whose pages may ask beside this listener's own.
    pub origins: Arc<[String]>,
    /// Whether this listener speaks TLS.
    pub tls: bool,
    /// How long the body of a log-in may take.
    pub body_time: Duration,
}

impl Gate {
    /// Puts the gate before routes. What they get has a [`Visitor`] among its extensions, and the [`SessionEnd`](crate::access::SessionEnd) of
    /// who came with a session.
    pub(super) fn before(&self, routes: Router) -> Router {
        let gate = self.clone();
        routes.layer(from_fn(move |request: Request, next: Next| {
            let gate = gate.clone();
            async move { gate.let_in(request, next).await.unwrap_or_else(IntoResponse::into_response) }
        }))
    }

    async fn let_in(&self, mut request: Request, next: Next) -> Result<Response, Problem> {
        let origin = self.refuse_foreign(request.headers())?;
        let visitor = match bearer(request.headers()) {
            Some("") => return Err(unknown(NEEDED)),
            Some(token) => self.bearer(from(&request), token).await?,
            None => {
                let session = cookie(request.headers()).and_then(|cookie| self.access.session(cookie));
                let Some((visitor, end)) = session else {
                    return Err(unknown(NEEDED));
                };
                // The browser adds a cookie to what any page has it send, and only it knows which page that is.
                let changes = !request.method().is_safe() || request.headers().contains_key(header::UPGRADE);
                if changes && origin != Origin::Own {
                    let detail = "with a session this needs an Origin, or Sec-Fetch-Site: same-origin";
                    return Err(forbidden(detail));
                }
                request.extensions_mut().insert(end);
                visitor
            }
        };
        request.extensions_mut().insert(visitor);
        Ok(next.run(request).await)
    }

    /// Where a request comes from, unless that is a page that may not ask.
    pub(super) fn refuse_foreign(&self, headers: &HeaderMap) -> Result<Origin, Problem> {
        match origin_of(headers, &self.origins) {
            Origin::Foreign => Err(forbidden(
                "pages of that origin may not ask; add it to http.allowed_origins if they should",
            )),
            origin @ (Origin::Own | Origin::Unsaid) => Ok(origin),
        }
    }

    async fn bearer(&self, from: Option<IpAddr>, token: &str) -> Result<Visitor, Problem> {
        self.access.bearer(from, token).await.map_err(|refused| self.refused(refused))
    }

    /// The answer to who is not let in.
    pub(super) fn refused(&self, refused: Refused) -> Problem {
        match refused {
            Refused::Wrong => {
                self.metrics.auth_failure("token");
                unknown("the token is not one of this hub's")
            }
            Refused::TooMany(left) => {
                self.metrics.auth_failure("token");
                let detail = "too many wrong tokens were shown; try again later".to_owned();
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::RateLimited, detail);
                problem.retry_after(left)
            }
            Refused::Unable => {
                let detail = "the token cannot be checked now".to_owned();
                let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, detail);
                problem.retry_after(Duration::from_secs(1))
            }
        }
    }
}

/// Who sent a request, as far as that is known.
pub(super) fn from(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<PeerAddress>().and_then(|peer| peer.0)
}

/// Nobody who is known here.
pub(super) fn unknown(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, detail.to_owned())
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized, detail.to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?;
    // Several, or one of another kind, is somebody who means to show something: that it cannot be read is no reason to
    // look for a cookie.
    let one = values.next().is_none().then(|| value.to_str().ok()).flatten();
    let token = one
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Some(token.map_or("", |(_, token)| token.trim()))
}

/// The cookie of a session, if there is exactly one.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    // A page of another port of this host can set one that stands before ours; with both there is no telling which.
    own.next().filter(|_| own.next().is_none())
}
