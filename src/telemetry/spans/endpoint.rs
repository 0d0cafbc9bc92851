//! Where spans go.

use rustls::pki_types::ServerName;
use url::{Position, Url};

/// Longest address in bytes.
const BYTES_MAX: usize = 2048;
/// What OTLP over HTTP adds to the address of a collector.
const PATH: &str = "v1/traces";

/// A text that is no address of a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoEndpoint {
    /// It cannot be read.
    #[error("is no address")]
    Unreadable,
    /// It is none of HTTP.
    #[error("is neither http:// nor https://")]
    Scheme,
    /// It has something that no address of a collector has.
    #[error("has a user, a query or a fragment")]
    Extra,
}

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: Url,
    host: String,
    port: u16,
    server_name: Option<ServerName<'static>>,
}

impl Endpoint {
    /// Reads an address, to which `/v1/traces` is added.
    ///
    /// # Errors
    /// [`NoEndpoint`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NoEndpoint> {
        if text.len() > BYTES_MAX {
            return Err(NoEndpoint::Unreadable);
        }
        let mut url = Url::parse(text).map_err(|_| NoEndpoint::Unreadable)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(NoEndpoint::Scheme);
        }
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.query().is_some() || url.fragment().is_some() {
            return Err(NoEndpoint::Extra);
        }
        let path = format!("{}/{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let host = match url.host().ok_or(NoEndpoint::Unreadable)? {
            url::Host::Domain(name) => name.to_owned(),
            url::Host::Ipv4(address) => address.to_string(),
            url::Host::Ipv6(address) => address.to_string(),
        };
        let server_name = match url.scheme() {
            "https" => Some(ServerName::try_from(host.clone()).map_err(|_| NoEndpoint::Unreadable)?),
            _ => None,
        };
        let port = url.port_or_known_default().ok_or(NoEndpoint::Unreadable)?;
        Ok(Self { url, host, port, server_name })
    }

    /// Whom to resolve and connect to.
    pub(super) fn address(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }

    /// The name that its certificate must have; `None` without TLS.
    pub(super) const fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }

    /// What the header `Host` says.
    pub(super) fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }

    /// What the request line says.
    pub(super) fn path(&self) -> &str {
        self.url.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_to_every_form_of_an_address() {
        let table = [
            ("http://collector:4318", ("collector", 4318, "collector:4318", "/v1/traces", false)),
            ("http://127.0.0.1:4318/", ("127.0.0.1", 4318, "127.0.0.1:4318", "/v1/traces", false)),
            (
                "https://otlp.example.com/in/",
                ("otlp.example.com", 443, "otlp.example.com", "/in/v1/traces", true),
            ),
            ("https://[::1]:7/a", ("::1", 7, "[::1]:7", "/a/v1/traces", true)),
            ("http://h", ("h", 80, "h", "/v1/traces", false)),
        ];
        for (text, (host, port, authority, path, tls)) in table {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.address(), (host.to_owned(), port), "{text}");
            assert_eq!((endpoint.authority(), endpoint.path()), (authority, path), "{text}");
            assert_eq!(endpoint.server_name().is_some(), tls, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_of_a_collector_says_why() {
        let table = [
            ("collector", NoEndpoint::Unreadable),
            ("http://", NoEndpoint::Unreadable),
            ("collector:4318", NoEndpoint::Scheme),
            ("grpc://collector:4317", NoEndpoint::Scheme),
            ("http://user@collector:4318", NoEndpoint::Extra),
            ("http://collector:4318/?key=1", NoEndpoint::Extra),
            ("http://collector:4318/#a", NoEndpoint::Extra),
        ];
        for (text, why) in table {
            assert_eq!(Endpoint::parse(text), Err(why), "{text}");
        }
        assert_eq!(Endpoint::parse(&format!("http://h/{}", "a".repeat(2048))), Err(NoEndpoint::Unreadable));
    }
}
