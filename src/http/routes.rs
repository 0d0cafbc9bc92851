//! Routes that are known: what is served is listed, so that the API's description can be held against it.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{delete, get, post};

/// A method of HTTP that something is served under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    /// And HEAD with it.
    Get,
    Post,
    Delete,
}

impl Verb {
    /// As OpenAPI writes it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Delete => "delete",
        }
    }
}

/// Routes, and the list of them.
#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) router: Router,
    pub(super) listed: Vec<(Verb, &'static str)>,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// One more.
    pub(super) fn on<H, T>(mut self, verb: Verb, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        let method = match verb {
            Verb::Get => get(handler),
            Verb::Post => post(handler),
            Verb::Delete => delete(handler),
        };
        self.router = self.router.route(path, method);
        self.listed.push((verb, path));
        self
    }

    /// Those of another as well.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.listed.extend(other.listed);
        self
    }

    /// The same behind something.
    pub(super) fn behind(self, put: impl FnOnce(Router) -> Router) -> Self {
        Self { router: put(self.router), listed: self.listed }
    }
}
