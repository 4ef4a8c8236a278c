//! Values that configuration files hold: text with a syntax, and the small enums.

mod forms;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use bentpipe_config::Source;
use bentpipe_units::ByteCount;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use super::ConfigError;
pub(super) use forms::{
    count, one_or_many, positive_rate, some_count, some_text, spanned_texts, text, text_or_texts,
    texts, within, yes,
};

/// TCP address and port, written as a string.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct TextAddress(#[serde(deserialize_with = "text")] pub(super) SocketAddr);

/// A value written as a string.
pub(super) trait FromText: Sized {
    /// Words for what a reader should have written, for "expected …".
    const EXPECTED: &'static str;

    /// Parses `text`; the error names the text and the mend.
    fn from_text(text: &str) -> Result<Self, String>;
}

impl FromText for SocketAddr {
    const EXPECTED: &'static str =
        "an address with port, such as \"10.20.0.1:4433\" or \"[fd00::1]:4433\"";

    fn from_text(text: &str) -> Result<Self, String> {
        address(text).ok_or_else(|| format!("bad address `{text}`; expected {}", Self::EXPECTED))
    }
}

/// Address with a port, in whose brackets the scope of an IPv6 address may be the name of an interface: `[fe80::1%eth0]:4433`.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
    scoped(host, port.parse().ok()?)
}

/// The address in `text`, an IPv6 address and the interface that leads there, with this `port`: `fe80::1%eth0`. `None` if the machine has
/// no such interface.
pub(crate) fn scoped(text: &str, port: u16) -> Option<SocketAddr> {
    let (address, _) = text.split_once('%')?;
    address.parse::<Ipv6Addr>().ok()?;
    // Of numbers alone, so that no resolver is asked.
    (text, port).to_socket_addrs().ok()?.next()
}

impl FromText for IpNet {
    const EXPECTED: &'static str =
        "an address or prefix, such as \"10.30.0.0/24\" or \"fd00:30::1\"";

    /// A lone address is its host prefix; host bits of a prefix are cleared.
    fn from_text(text: &str) -> Result<Self, String> {
        let prefix = text
            .parse::<Self>()
            .or_else(|_| text.parse::<IpAddr>().map(Self::from));
        prefix
            .map(|prefix| prefix.trunc())
            .map_err(|_| format!("bad prefix `{text}`; expected {}", Self::EXPECTED))
    }
}

impl FromText for IpAddr {
    const EXPECTED: &'static str = "an address, such as \"10.30.0.5\" or \"fd00:30::5\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("bad address `{text}`; expected {}", Self::EXPECTED))
    }
}

impl FromText for Ipv4Net {
    const EXPECTED: &'static str = "an IPv4 prefix, such as \"100.96.0.0/16\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse::<Self>()
            .map(|prefix| prefix.trunc())
            .map_err(|_| format!("bad prefix `{text}`; expected {}", Self::EXPECTED))
    }
}

impl FromText for Ipv6Net {
    const EXPECTED: &'static str = "an IPv6 prefix, such as \"fd62:656e:7470::/64\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse::<Self>()
            .map(|prefix| prefix.trunc())
            .map_err(|_| format!("bad prefix `{text}`; expected {}", Self::EXPECTED))
    }
}

/// Address at which a client finds its server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A literal address; needs no resolver.
    Ip(SocketAddr),
    /// A host name, resolved at every connection attempt.
    Name {
        /// The name, at most 253 bytes.
        host: String,
        /// The server's UDP port.
        port: u16,
    },
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::from_text(text)
    }
}

impl FromText for ServerAddress {
    const EXPECTED: &'static str =
        "IP:PORT or NAME:PORT, such as \"10.20.0.1:4433\" or \"gw.example.net:4433\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if let Some(address) = address(text)
            && address.port() != 0
        {
            return Ok(Self::Ip(address));
        }
        let name = text.rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse().ok().filter(|port| *port != 0)?;
            is_host_name(host).then(|| Self::Name {
                host: host.to_owned(),
                port,
            })
        });
        name.ok_or_else(|| format!("bad address `{text}`; expected {}", Self::EXPECTED))
    }
}

/// True if `text` can be a host name and is no mistyped IPv4 address.
pub(super) fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=63).contains(&label.len()) && label.chars().all(allowed) && !label.starts_with('-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let top_is_number = name
        .rsplit('.')
        .next()
        .is_none_or(|top| top.bytes().all(|b| b.is_ascii_digit()));
    name.len() <= 253 && name.split('.').all(label) && !top_is_number
}

/// The name of a network interface, as the kernel accepts it.
pub(super) struct InterfaceName(pub(super) String);

impl FromText for InterfaceName {
    const EXPECTED: &'static str = "an interface name, such as \"lan0\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let good = (1..=15).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_graphic() && b != b'/' && b != b'"');
        let good = good && text != "." && text != "..";
        good.then(|| Self(text.to_owned())).ok_or_else(|| {
            format!("bad interface name `{text}`; expected 1 to 15 characters, such as \"lan0\"")
        })
    }
}

impl FromText for bentpipe_congestion::Kind {
    const EXPECTED: &'static str = "the name of a congestion controller, such as \"cubic\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|error: bentpipe_congestion::UnknownController| error.to_string())
    }
}

/// Carrier of connections from one end to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// One encrypted and authenticated QUIC connection.
    #[default]
    Quic,
    /// A TCP connection for each: neither encrypted nor authenticated.
    Plain,
}

/// Congestion control of the kernel's TCP, by the kernel's name for it. Whether it has that is seen when it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionControlName(pub(crate) String);

impl FromText for CongestionControlName {
    const EXPECTED: &'static str =
        "what TCP may send with, by the kernel's name, such as \"cubic\" or \"bbr\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let usable = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        // TCP_CA_NAME_MAX, less its terminator.
        if (1..=15).contains(&text.len()) && text.bytes().all(usable) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("bad name `{text}`; expected {}", Self::EXPECTED))
    }
}

impl<'de> Deserialize<'de> for CongestionControlName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer)
    }
}

/// Fate of traffic of intercepted interfaces that is not TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtherTraffic {
    /// Carried in the tunnel, as packets.
    #[default]
    Tunnel,
    /// Dropped: nothing crosses the link in clear.
    Drop,
    /// Forwarded in clear.
    Direct,
}

/// Fate of HTTP/3 (UDP port 443) of intercepted interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Http3 {
    /// Answered with "port unreachable": browsers fall back to TCP, which is accelerated.
    #[default]
    Reject,
    /// HTTP/3 is like any other traffic.
    Tunnel,
}

/// Fate of intercepted traffic that the client cannot carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Traffic waits, or is dropped.
    #[default]
    Block,
    /// Traffic goes in clear.
    Direct,
}

/// Least that all tunnels may hold together: room for one that is of use.
const LEAST_TOTAL: ByteCount = ByteCount::new(16 << 20);

/// `total_memory` of `[limits]`, if it is given.
pub(super) fn total_memory(
    source: &Source,
    given: Option<&Spanned<ByteCount>>,
) -> Result<Option<ByteCount>, ConfigError> {
    match given {
        Some(total) if *total.get_ref() < LEAST_TOTAL => Err(source.error(
            &total.span(),
            "`total_memory` of `[limits]` is too small; choose 16 MiB or more",
        )),
        other => Ok(other.map(|total| *total.get_ref())),
    }
}

/// `listen`, and for `[::]:PORT` the IPv4 wildcard too, unless the list says itself what IPv4 is to have on that port. Sockets
/// serve one family each, so that no address ever appears in its IPv4-mapped form.
pub(super) fn both_families(mut listen: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let wildcard = |address: &&SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
    // With port 0 each family would get another.
    let Some(port) = listen.iter().find(wildcard).map(SocketAddr::port) else {
        return listen;
    };
    let has_ipv4 = |address: &SocketAddr| address.is_ipv4() && address.port() == port;
    if port != 0 && !listen.iter().any(has_ipv4) {
        listen.push((Ipv4Addr::UNSPECIFIED, port).into());
    }
    listen
}
