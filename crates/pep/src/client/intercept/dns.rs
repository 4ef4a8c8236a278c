//! What becomes of name lookups.

/// Interception of name lookups (port 53, UDP and TCP, IPv4 and IPv6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsInterception {
    /// The port of the transparent DNS listeners, the same for UDP and TCP, IPv4 and IPv6.
    pub port: u16,
    /// Fate of name lookups that are meant for this machine itself.
    pub router: RouterDns,
}

/// Fate of name lookups of the LAN that are meant for this machine's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouterDns {
    /// A name server that is bound to the very address gets them; what a server on the wildcard address would get, and
    /// what nobody would, goes to the DNS listeners.
    #[default]
    Auto,
    /// Any name server of this machine gets them; what nobody would get goes to the DNS listeners.
    Leave,
    /// All of them go to the DNS listeners.
    Answer,
}

impl DnsInterception {
    /// Interception towards listeners on `port`; a name server of this machine keeps what is meant for it.
    #[must_use]
    pub fn at(port: u16) -> Self {
        Self {
            port,
            router: RouterDns::Auto,
        }
    }
}
