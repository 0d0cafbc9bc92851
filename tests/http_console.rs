//! The console as the hub serves it, with what was built into it or without.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::http::{Answer, ask, get};
use raw::hub::{self, Hub};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

fn is_guarded(answer: &Answer) {
    assert_eq!(answer.field("content-security-policy"), Some(POLICY), "{answer:?}");
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{answer:?}");
    assert_eq!(answer.field("referrer-policy"), Some("no-referrer"), "{answer:?}");
}

#[tokio::test]
async fn the_page_and_all_it_names_are_served_to_everybody_and_guarded() {
    let hub = Hub::serve(hub::OPEN, "");
    let page = get(hub.http(), "/").await;
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    is_guarded(&page);
    assert!(page.body.contains("<title>Agent-Reach</title>"), "{page:?}");
    assert!(
        !page.body.contains("style=") && !page.body.contains("<style"),
        "the policy allows none: {page:?}"
    );
    for path in page.body.split('"').filter(|part| part.starts_with("/assets/")) {
        let file = ask(hub.http(), "HEAD", path, "", "").await;
        assert_eq!(file.status, 200, "{path}");
        is_guarded(&file);
        assert_eq!(file.field("cache-control"), Some("public, max-age=31536000, immutable"));
    }
}

#[tokio::test]
async fn a_page_that_has_not_changed_is_not_sent_again() {
    let hub = Hub::serve(hub::OPEN, "");
    let page = get(hub.http(), "/").await;
    // The page in the place of a console that was not built is not worth a tag.
    let Some(tag) = page.field("etag") else {
        return assert!(page.body.contains("npm run build"), "{page:?}");
    };
    assert_eq!(page.field("cache-control"), Some("no-cache"), "it is asked for each time");
    let again = ask(hub.http(), "GET", "/", &format!("If-None-Match: {tag}\r\n"), "").await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    is_guarded(&again);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_and_nothing_is_changed_there() {
    let hub = Hub::serve(hub::OPEN, "");
    for path in ["/assets/nothing.js", "/index.html", "/assets/", "/agents", "/assets/../Cargo.toml", "/.env"]
    {
        let answer = get(hub.http(), path).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "invalid_request"), "{path}");
    }
    let answer = ask(hub.http(), "POST", "/", "", "").await;
    assert_eq!((answer.status, answer.field("allow")), (405, Some("GET,HEAD")));
    let foreign = ask(hub.http(), "GET", "/", "Host: evil.example\r\n", "").await;
    assert_eq!(foreign.status, 421, "{foreign:?}");
}
