//! Which URLs a webhook may have. Pure: nothing is resolved here, so it can be asked while a CALL is judged.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use agent_reach_protocol::ErrorCode;
use rustls::pki_types::ServerName;
use url::{Position, Url};

/// Longest name of a host in bytes, as DNS has it.
const NAME_BYTES_MAX: usize = 253;

/// A host in its one form, to be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A name: lower-case, ASCII (IDNA).
    Name(String),
    /// An address; a mapped IPv4 address is the IPv4 address.
    Address(IpAddr),
}

/// A text that is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no host; write a name or an address, without scheme, port or path")]
pub struct NoHost;

impl Host {
    /// Reads a host as an operator writes it: a name in any case and any script, or an address; IPv6 without brackets.
    ///
    /// # Errors
    /// [`NoHost`] for anything else, as a port, a pattern or a dot at the end.
    pub fn parse(text: &str) -> Result<Self, NoHost> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        match url::Host::parse(text) {
            Ok(url::Host::Domain(name)) if is_name(&name) => Ok(Self::Name(name)),
            // The other notations of IPv4 (`127.1`, `0x7f000001`) are for URLs; in a list they are mistakes.
            Ok(url::Host::Domain(_) | url::Host::Ipv4(_) | url::Host::Ipv6(_)) | Err(_) => Err(NoHost),
        }
    }

    fn of(url: &Url) -> Option<Self> {
        match url.host()? {
            url::Host::Domain(name) if is_name(name) => Some(Self::Name(name.to_owned())),
            url::Host::Domain(_) => None,
            url::Host::Ipv4(address) => Some(Self::Address(address.into())),
            url::Host::Ipv6(address) => Some(Self::Address(IpAddr::from(address).to_canonical())),
        }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(label)
}

/// The host of a URL, as [`Host`] prints it; empty where there is none.
pub fn host_of(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| Host::of(&url));
    host.map(|host| host.to_string()).unwrap_or_default()
}

/// The hosts that may be called: `[callbacks] allowed_hosts`. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts(Arc<BTreeSet<Host>>);

impl AllowedHosts {
    /// Of the list of an operator. None in it: nothing may be called.
    ///
    /// # Errors
    /// The first entry that is no host.
    pub fn new(hosts: &[String]) -> Result<Self, NoHost> {
        Ok(Self(Arc::new(hosts.iter().map(|host| Host::parse(host)).collect::<Result<_, _>>()?)))
    }

    /// Whether exactly this host is in the list.
    pub fn contains(&self, host: &Host) -> bool {
        self.0.contains(host)
    }
}

/// A URL that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: Host,
    server_name: ServerName<'static>,
}

impl Target {
    /// The URL in its one form: this is what is stored and called.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Whom it calls, whatever the port.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port, 443 where none is written.
    pub fn port(&self) -> u16 {
        self.url.port().unwrap_or(443)
    }

    /// The name that the receiver's certificate must have.
    pub const fn server_name(&self) -> &ServerName<'static> {
        &self.server_name
    }

    /// What the header `Host` says.
    pub(super) fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }

    /// What the request line says.
    pub(super) fn path_and_query(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }
}

/// Why a URL is not called. The caller is at fault; the text is for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No URL at all, or one without a usable host.
    #[error("callback_url is no URL")]
    NoUrl,
    /// Another scheme than https.
    #[error("callback_url is not https")]
    NotHttps,
    /// A user or a password in it, which would be stored and logged in plain.
    #[error("callback_url holds a user or password")]
    UserInfo,
    /// A fragment, which is never sent.
    #[error("callback_url has a fragment")]
    Fragment,
    /// Port 0.
    #[error("callback_url has no usable port")]
    Port,
    /// The operator does not list the host.
    #[error("the host of callback_url is not allowed")]
    HostNotAllowed,
}

impl Refused {
    /// What the CALL fails with.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::NoUrl | Self::NotHttps | Self::UserInfo | Self::Fragment | Self::Port => {
                ErrorCode::InvalidRequest
            }
            Self::HostNotAllowed => ErrorCode::Unauthorized,
        }
    }
}

/// Whether a URL may be called, and what it is then.
///
/// # Errors
/// [`Refused`], the form before the list: who writes `http:` hears of it whatever the host.
pub fn allowed(url: &str, hosts: &AllowedHosts) -> Result<Target, Refused> {
    let url = Url::parse(url).map_err(|_| Refused::NoUrl)?;
    if url.scheme() != "https" {
        return Err(Refused::NotHttps);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refused::UserInfo);
    }
    if url.fragment().is_some() {
        return Err(Refused::Fragment);
    }
    if url.port() == Some(0) {
        return Err(Refused::Port);
    }
    let host = Host::of(&url).ok_or(Refused::NoUrl)?;
    let server_name = match &host {
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| Refused::NoUrl)?,
        Host::Address(address) => ServerName::from(*address),
    };
    if !hosts.contains(&host) {
        return Err(Refused::HostNotAllowed);
    }
    Ok(Target { url, host, server_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[&str]) -> AllowedHosts {
        AllowedHosts::new(&list.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_url_on_the_list_is_called_in_its_one_form() {
        let list = hosts(&["Hooks.Example.com", "bücher.example", "203.0.113.7", "2001:db8::1"]);
        let table = [
            ("https://hooks.example.com", "https://hooks.example.com/", 443),
            ("HTTPS://HOOKS.EXAMPLE.COM:8443/a?b=c", "https://hooks.example.com:8443/a?b=c", 8443),
            ("https://hooks.example.com:443/../x", "https://hooks.example.com/x", 443),
            ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/", 443),
            ("https://Bücher.example/", "https://xn--bcher-kva.example/", 443),
            ("https://0xcb007107/", "https://203.0.113.7/", 443),
            ("https://[2001:DB8:0::1]:1/", "https://[2001:db8::1]:1/", 1),
        ];
        for (text, url, port) in table {
            let target = allowed(text, &list).unwrap();
            assert_eq!((target.url(), target.port()), (url, port), "{text}");
        }
    }

    #[test]
    fn what_is_asked_of_the_receiver_is_taken_from_the_url() {
        let list = hosts(&["a.example", "::1"]);
        let target = allowed("https://a.example:444/p/q?r=%20s", &list).unwrap();
        assert_eq!((target.authority(), target.path_and_query()), ("a.example:444", "/p/q?r=%20s"));
        let target = allowed("https://[::1]", &list).unwrap();
        assert_eq!((target.authority(), target.path_and_query()), ("[::1]", "/"));
    }

    #[test]
    fn another_form_than_an_https_url_is_an_invalid_request_whatever_the_host() {
        let list = hosts(&["a.example"]);
        let table = [
            ("", Refused::NoUrl),
            ("a.example", Refused::NoUrl),
            ("/hook", Refused::NoUrl),
            ("https://", Refused::NoUrl),
            ("https://a b.example/", Refused::NoUrl),
            ("https://a..example/", Refused::NoUrl),
            ("https://*.example/", Refused::NoUrl),
            ("http://a.example/", Refused::NotHttps),
            ("http://elsewhere.example/", Refused::NotHttps),
            ("ftp://a.example/", Refused::NotHttps),
            ("file:///etc/passwd", Refused::NotHttps),
            ("agent:a", Refused::NotHttps),
            ("https://u@a.example/", Refused::UserInfo),
            ("https://:p@a.example/", Refused::UserInfo),
            ("https://a.example/#x", Refused::Fragment),
            ("https://a.example/#", Refused::Fragment),
            ("https://a.example:0/", Refused::Port),
            ("https://a.example:65536/", Refused::NoUrl),
        ];
        for (text, refused) in table {
            assert_eq!(allowed(text, &list), Err(refused), "{text}");
            assert_eq!(refused.code(), ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn a_host_that_is_not_exactly_on_the_list_is_unauthorized() {
        let list = hosts(&["a.example", "localhost"]);
        for text in [
            "https://b.example/",
            "https://x.a.example/",
            "https://a.example.evil.example/",
            "https://example/",
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://0177.0.0.1/",
            "https://127.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://169.254.169.254/latest/meta-data",
            "https://10.0.0.1/",
            "https://evil.example\\@a.example/",
        ] {
            assert_eq!(allowed(text, &list), Err(Refused::HostNotAllowed), "{text}");
        }
        assert_eq!(Refused::HostNotAllowed.code(), ErrorCode::Unauthorized);
        assert_eq!(allowed("https://a.example/", &AllowedHosts::default()), Err(Refused::HostNotAllowed));
    }

    #[test]
    fn an_address_is_one_host_in_every_notation() {
        let list = hosts(&["127.0.0.1"]);
        for text in [
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://0177.1/",
            "https://[::ffff:7f00:1]/",
            "https://127.0.0.1./",
            "https://１２７.0.0.1/",
        ] {
            let target = allowed(text, &list).unwrap();
            assert_eq!(target.host(), &Host::Address("127.0.0.1".parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_list_holds_names_and_addresses_and_nothing_else() {
        for wrong in
            ["", "*", "*.a.example", "a.example:443", "https://a.example", "a/b", "a.example.", "[::1]"]
        {
            assert_eq!(Host::parse(wrong), Err(NoHost), "{wrong}");
        }
        for odd in ["127.1", "0x7f000001", "2130706433", &"a.".repeat(130)] {
            assert_eq!(Host::parse(odd), Err(NoHost), "{odd}");
        }
        assert_eq!(Host::parse("A_b-1.Example"), Ok(Host::Name("a_b-1.example".into())));
        assert_eq!(Host::parse("::ffff:10.0.0.1"), Ok(Host::Address("10.0.0.1".parse().unwrap())));
    }
}
