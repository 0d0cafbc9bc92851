//! Whom a request believes it talks to.
//!
//! A page on the web can name its own host with the hub's address (DNS rebinding) and then read the hub with
//! its visitor's browser. The browser tells the truth in `Host`, so any name that is not ours is refused,
//! before anything else is looked at.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use agent_reach_protocol::ErrorCode;
use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;

use super::Problem;

/// The hosts that the `[http]` listener answers to: loopback in any form and on any port, and those of
/// `http.allowed_origins` on the port of the origin.
#[derive(Debug, Clone)]
pub struct AllowedHosts(Arc<[HostPort]>);

/// The host of an origin, in lower case, without brackets or a final dot.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostPort {
    host: String,
    port: u16,
    /// The port of the origin's scheme, which a request to it leaves out.
    usual: u16,
}

impl AllowedHosts {
    /// From the configuration's `http.allowed_origins`. What is no origin allows nothing.
    pub fn new(origins: &[String]) -> Self {
        Self(origins.iter().filter_map(|origin| of_origin(origin)).collect())
    }

    /// Puts the check before a router: 421 for a host that is not ours, 400 for none or several.
    pub(super) fn guard(self, router: Router) -> Router {
        router.layer(from_fn(move |request: Request, next: Next| {
            let verdict = self.check(&request);
            async move {
                match verdict {
                    None => next.run(request).await,
                    Some(problem) => problem.into_response(),
                }
            }
        }))
    }

    /// What is wrong with the host of a request.
    fn check(&self, request: &Request) -> Option<Problem> {
        let problem =
            |status, detail: &str| Some(Problem::new(status, ErrorCode::InvalidRequest, detail.to_owned()));
        let Some(host) = the_only_host(request.headers()) else {
            return problem(
                StatusCode::BAD_REQUEST,
                "a request has one Host header, with a name or an address",
            );
        };
        // A request to a proxy has the host in its first line too, and that one counts before the header.
        let target = request.uri().authority();
        if self.allow(&host) && target.is_none_or(|target| self.allow(target)) {
            return None;
        }
        problem(
            StatusCode::MISDIRECTED_REQUEST,
            "this hub does not answer to that host; add its origin to http.allowed_origins if it should",
        )
    }

    fn allow(&self, authority: &Authority) -> bool {
        // Before the host may stand a user, which no HTTP request has.
        if authority.as_str().contains('@') {
            return false;
        }
        let host = plain(authority.host());
        is_loopback(&host)
            || self.0.iter().any(|allowed| {
                allowed.host == host && allowed.port == authority.port_u16().unwrap_or(allowed.usual)
            })
    }
}

/// Where a request comes from, as the browser that sent it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A page of this listener itself or of one of the allowed origins.
    Own,
    /// Another page.
    Foreign,
    /// Nothing is said: from no page, or by a browser that says it only of what changes something.
    Unsaid,
}

/// Where a request comes from. A browser names the origin in each request for a WebSocket and in each that is not `GET`
/// or `HEAD`.
pub(super) fn origin_of(headers: &HeaderMap, allowed: &[String]) -> Origin {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
            Some(b"same-origin") => Origin::Own,
            _ => Origin::Unsaid,
        };
    };
    let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return Origin::Foreign };
    if allowed.iter().any(|own| own.eq_ignore_ascii_case(origin)) {
        return Origin::Own;
    }
    let own = the_only_host(headers);
    let (Some(own), Some(from)) = (own, of_origin(origin)) else { return Origin::Foreign };
    let same = plain(own.host()) == from.host && own.port_u16().unwrap_or(from.usual) == from.port;
    if same { Origin::Own } else { Origin::Foreign }
}

fn the_only_host(headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none())?;
    host.to_str().ok()?.parse().ok()
}

fn of_origin(origin: &str) -> Option<HostPort> {
    let (scheme, rest) = origin.split_once("://")?;
    let authority: Authority = rest.parse().ok()?;
    let usual = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let port = authority.port_u16().unwrap_or(usual);
    Some(HostPort { host: plain(authority.host()), port, usual })
}

fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
}
