//! `/`: the console, and the one address in which a token counts.

mod files;

use std::net::IpAddr;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use self::files::{BUILT, PAGE, Served};
use super::gate::{Gate, from};
use super::routes::{Routes, Verb};
use super::session::session_cookie;
use crate::access::Refused;

/// What a page may do: nothing but show what comes from here. No script, style or request of anybody else's is run even
/// where a text of an agent should become markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The routes.
pub(super) fn routes(gate: &Gate) -> Routes {
    let gate = gate.clone();
    let built = BUILT.iter().find(|file| file.path == PAGE).map(|file| Served::new(*file));
    let start = async move |request: Request| {
        let (from, (parts, _)) = (from(&request), request.into_parts());
        let token = parts.uri.query().and_then(|query| {
            url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "token")
        });
        match token {
            Some((_, token)) if parts.method == Method::GET => {
                exchange(&gate, from, &parts.headers, &token).await
            }
            // Without a session as well: what can be seen on it needs one, and it asks for a token.
            Some(_) | None => match &built {
                Some(built) => built.answer(&parts.headers),
                None => page(StatusCode::OK, ABSENT),
            },
        }
    };
    Routes::new().on(Verb::Get, "/", start)
}

/// The files that the page asks for.
pub(super) fn files_router() -> Router {
    files::router(BUILT)
}

/// A token in the address becomes a session, and leaves the address.
async fn exchange(gate: &Gate, from: Option<IpAddr>, headers: &HeaderMap, token: &str) -> Response {
    if !is_opened(headers) {
        return page(StatusCode::FORBIDDEN, NO_PAGE);
    }
    match gate.access.log_in(from, token).await {
        Ok(cookie) => {
            let to = [
                (header::LOCATION, "/"),
                (header::CACHE_CONTROL, "no-store"),
                (header::REFERRER_POLICY, "no-referrer"),
            ];
            let mut response = (StatusCode::SEE_OTHER, to).into_response();
            response.headers_mut().insert(header::SET_COOKIE, session_cookie(gate, headers, &cookie));
            response
        }
        Err(Refused::Wrong) => {
            gate.metrics.auth_failure("token");
            page(StatusCode::UNAUTHORIZED, USED)
        }
        Err(refused @ (Refused::TooMany(_) | Refused::Unable)) => gate.refused(refused).into_response(),
    }
}

/// Whether somebody opens the address, as far as the browser says: a picture of another page, or a look ahead, must not use
/// up a link or put a session into a browser.
fn is_opened(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &[u8]| {
        headers.get(name).map(HeaderValue::as_bytes).is_none_or(|own| own == value)
    };
    is("sec-fetch-dest", b"document")
        && !headers.contains_key("sec-purpose")
        && !headers.contains_key("purpose")
}

const ABSENT: &str = "<p>This hub was built without its console. Build it with <code>npm ci &amp;&amp; npm run build</code> \
                      in the folder <code>console</code>, then build the hub again.</p>";
const USED: &str = "<p>This link was used before, or is not one of this hub's. It is good for one session.</p>\
                    <p><a href=\"/\">Go on</a>, with your session or a token.</p>";
const NO_PAGE: &str = "<p>This link has to be opened as a page.</p>";

fn page(status: StatusCode, text: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Agent-Reach</title></head>\
         <body><h1>Agent-Reach</h1>{text}</body></html>\n"
    );
    let media = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    let mut response = (status, media, html).into_response();
    guarded(response.headers_mut());
    response
}

/// What every page and file is sent with.
pub(super) fn guarded(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
