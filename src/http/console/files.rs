//! The files of the console, as they were built into the hub.

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::guarded;

/// What `console/dist` had when the hub was built, by path; nothing where there was none.
pub(super) const BUILT: &[File] = include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// The page itself.
pub(super) const PAGE: &str = "/index.html";
/// Below this a file's name changes with its content, so that whoever has it need never ask again.
const HASHED: &str = "/assets/";

/// One file.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    /// Its address.
    pub(super) path: &'static str,
    /// Its content.
    pub(super) bytes: &'static [u8],
    /// The same compressed.
    pub(super) gzip: Option<&'static [u8]>,
}

/// A file with the tags of both of its forms.
#[derive(Clone, Debug)]
pub(super) struct Served {
    file: File,
    tag: HeaderValue,
    gzip_tag: HeaderValue,
}

impl Served {
    pub(super) fn new(file: File) -> Self {
        let tag = |bytes: &[u8]| {
            let hash = digest(&SHA256, bytes);
            let hex: String = hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            // Hexadecimal digits are good in a header.
            HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
        };
        Self { file, tag: tag(file.bytes), gzip_tag: tag(file.gzip.unwrap_or_default()) }
    }

    /// The answer to who asks for it.
    pub(super) fn answer(&self, asked: &HeaderMap) -> Response {
        let (bytes, tag, encoding) = match self.file.gzip {
            Some(gzip) if takes_gzip(asked) => (gzip, &self.gzip_tag, Some("gzip")),
            Some(_) | None => (self.file.bytes, &self.tag, None),
        };
        let known = asked.get_all(header::IF_NONE_MATCH).iter().any(|tags| names(tags.as_bytes(), tag));
        let mut response =
            if known { StatusCode::NOT_MODIFIED.into_response() } else { bytes.into_response() };
        let headers = response.headers_mut();
        guarded(headers);
        let mut put = |name: HeaderName, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        put(header::VARY, "accept-encoding");
        let hashed = self.file.path.starts_with(HASHED);
        put(header::CACHE_CONTROL, if hashed { "public, max-age=31536000, immutable" } else { "no-cache" });
        put(header::CONTENT_TYPE, media(self.file.path));
        if let Some(encoding) = encoding {
            put(header::CONTENT_ENCODING, encoding);
        }
        headers.insert(header::ETAG, tag.clone());
        response
    }
}

/// A route for each file but the page.
pub(super) fn router(files: &[File]) -> Router {
    files.iter().filter(|file| file.path != PAGE).fold(Router::new(), |router, file| {
        let served = Served::new(*file);
        router.route(file.path, get(async move |headers: HeaderMap| served.answer(&headers)))
    })
}

/// Whether a list of tags has this one. The comparison is weak, as RFC 9110 has it for `If-None-Match`.
fn names(tags: &[u8], own: &HeaderValue) -> bool {
    tags.split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == own.as_bytes())
}

/// Whether gzip is among what is accepted, with a weight that is not zero.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let (mut gzip, mut any) = (None, None);
    let all = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for coding in all.flat_map(|value| value.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let taken = weight.is_none_or(|weight| weight.parse::<f64>().is_ok_and(|weight| weight > 0.0));
        if name.eq_ignore_ascii_case("gzip") {
            gzip = Some(taken);
        } else if name == "*" {
            any = Some(taken);
        }
    }
    gzip.or(any).unwrap_or(false)
}

fn media(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("json" | "webmanifest") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        Some(_) | None => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    const FILES: &[File] = &[
        File { path: "/assets/a-1.js", bytes: b"let a = 1;", gzip: Some(b"compressed") },
        File { path: "/icon.svg", bytes: b"<svg/>", gzip: None },
        File { path: PAGE, bytes: b"<!doctype html>", gzip: None },
    ];

    async fn ask(method: &str, path: &str, lines: &[(&str, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let answer = TowerToHyperService::new(router(FILES));
        let answer = answer.call(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        (parts.status, parts.headers, to_bytes(body, 1024).await.unwrap().to_vec())
    }

    #[tokio::test]
    async fn a_file_is_served_compressed_to_who_takes_that() {
        for (accepted, gzip) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("*", true),
            ("*, gzip;q=0", false),
            ("gzip;q=0.000", false),
            ("identity", false),
            ("xgzip", false),
        ] {
            let (status, headers, body) =
                ask("GET", "/assets/a-1.js", &[("accept-encoding", accepted)]).await;
            let (encoding, expected): (_, &[u8]) =
                if gzip { (Some("gzip"), b"compressed") } else { (None, b"let a = 1;") };
            assert_eq!((status, body.as_slice()), (StatusCode::OK, expected), "{accepted}");
            assert_eq!(headers.get("content-encoding").map(|value| value.to_str().unwrap()), encoding);
            assert_eq!(headers["vary"], "accept-encoding");
            assert_eq!(headers["content-type"], "text/javascript; charset=utf-8");
        }
    }

    #[tokio::test]
    async fn what_has_its_hash_in_its_name_is_kept_for_good_and_the_rest_is_asked_for_again() {
        let kept = |headers: &HeaderMap| headers["cache-control"].to_str().unwrap().to_owned();
        let (_, headers, _) = ask("GET", "/assets/a-1.js", &[]).await;
        assert_eq!(kept(&headers), "public, max-age=31536000, immutable");
        let (_, headers, _) = ask("GET", "/icon.svg", &[("accept-encoding", "gzip")]).await;
        assert_eq!((kept(&headers).as_str(), headers.get("content-encoding")), ("no-cache", None));
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert!(headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    }

    #[tokio::test]
    async fn who_has_a_file_is_told_that_it_has_not_changed() {
        let (_, plain, _) = ask("GET", "/assets/a-1.js", &[]).await;
        let (_, packed, _) = ask("GET", "/assets/a-1.js", &[("accept-encoding", "gzip")]).await;
        assert_ne!(plain["etag"], packed["etag"], "the forms are told apart");
        let own = plain["etag"].to_str().unwrap();
        for (tags, status) in [
            (own.to_owned(), StatusCode::NOT_MODIFIED),
            (format!("\"other\", W/{own}"), StatusCode::NOT_MODIFIED),
            ("*".to_owned(), StatusCode::NOT_MODIFIED),
            ("\"other\"".to_owned(), StatusCode::OK),
            (packed["etag"].to_str().unwrap().to_owned(), StatusCode::OK),
        ] {
            let (got, headers, body) = ask("GET", "/assets/a-1.js", &[("if-none-match", &tags)]).await;
            assert_eq!((got, body.is_empty()), (status, status == StatusCode::NOT_MODIFIED), "{tags}");
            assert_eq!(headers["etag"], plain["etag"]);
        }
    }

    #[tokio::test]
    async fn head_has_the_length_and_no_body_and_the_page_has_one_address() {
        let (status, headers, body) = ask("HEAD", "/icon.svg", &[]).await;
        assert_eq!(
            (status, headers["content-length"].to_str().unwrap(), body.len()),
            (StatusCode::OK, "6", 0)
        );
        assert_eq!(ask("GET", PAGE, &[]).await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask("POST", "/icon.svg", &[]).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
}
