//! Schemes of pages: links, ports and the address of the page before differ with them.

/// Scheme of a page's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Pages in clear, on port 80.
    Http,
    /// Pages over TLS, on port 443.
    Https,
}

impl Scheme {
    /// Scheme as URLs have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// `authority` without the port that URLs of this scheme need not name.
    pub(crate) fn host_of(self, authority: &str) -> &str {
        let port = match self {
            Self::Http => ":80",
            Self::Https => ":443",
        };
        authority.strip_suffix(port).unwrap_or(authority)
    }
}
