//! Where a flow goes: IP addresses, host names and ports, as text and as bytes (`PROTOCOL.md` §6).
//!
//! Front ends parse what an application asked for, OPEN and REPLY carry it, the server dials it. Names are checked and
//! lower-cased once, here; nothing is resolved and nothing is allowed or denied here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::DecodeError;
use super::wire::{Reader, put_sized};

const NONE: u8 = 0x00;
const NAME: u8 = 0x01;
const IPV4: u8 = 0x04;
const IPV6: u8 = 0x06;

/// Longest host name, bytes (RFC 1035 §2.3.4).
pub const MAX_NAME: usize = 255;

/// Reason why a text is not a host name or a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not 1 to 255 bytes.
    #[error("a host name has 1 to 255 bytes")]
    Length,
    /// A label is empty or longer than 63 bytes (RFC 1035 §2.3.4).
    #[error("a label of a host name has 1 to 63 bytes")]
    Label,
    /// Something other than ASCII letters, digits, `-`, `_` and `.`; international names go as A-labels (RFC 5890).
    #[error("a host name has only letters, digits, '-', '_' and '.'")]
    Character,
    /// The last label is a number, so resolvers may take the whole for an IPv4 address (`127.1`, `0x7f.0.0.1`).
    #[error("an IP address is not a host name")]
    Address,
    /// No port, or one that is not 0 to 65535.
    #[error("the port is missing or not a number up to 65535")]
    Port,
}

/// A host name fit to be resolved: lower case, letters, digits, `-`, `_`, `.`, never an IP address in any notation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Checks `text` and lower-cases it. A trailing dot is kept: it tells the resolver not to search.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > MAX_NAME {
            return Err(NameError::Length);
        }
        if !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        {
            return Err(NameError::Character);
        }
        let labels = text.strip_suffix('.').unwrap_or(text);
        if labels
            .split('.')
            .any(|label| label.is_empty() || label.len() > 63)
        {
            return Err(NameError::Label);
        }
        if labels.rsplit('.').next().is_some_and(is_number) {
            return Err(NameError::Address);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The name, lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Decimal, octal or `0x` hexadecimal: what `inet_aton` takes for a part of an address.
fn is_number(label: &str) -> bool {
    let hex = label
        .strip_prefix("0x")
        .or_else(|| label.strip_prefix("0X"));
    hex.map_or_else(
        || label.bytes().all(|b| b.is_ascii_digit()),
        |digits| digits.bytes().all(|b| b.is_ascii_hexdigit()),
    )
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// An address, or a name for the server to resolve.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address, dialled as it is.
    Ip(IpAddr),
    /// A name, resolved by the server.
    Name(HostName),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl FromStr for Host {
    type Err = NameError;

    /// An IP address (IPv6 without brackets), else a host name.
    fn from_str(text: &str) -> Result<Self, NameError> {
        text.parse().map_or_else(
            |_| HostName::new(text).map(Self::Name),
            |address| Ok(Self::Ip(address)),
        )
    }
}

/// Destination of a flow. Port 0 can be written and read; dialling it is refused by the server, flow by flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Address or name.
    pub host: Host,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Destination {
    type Err = NameError;

    /// `host:port`, `1.2.3.4:port` or `[v6]:port` (the authority of an HTTP CONNECT, RFC 9110 §9.3.6).
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (host, port) = text.rsplit_once(':').ok_or(NameError::Port)?;
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(NameError::Port);
        }
        let port = port.parse().map_err(|_| NameError::Port)?;
        let host = match host
            .strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
        {
            Some(inner) => Host::Ip(IpAddr::V6(inner.parse().map_err(|_| NameError::Character)?)),
            None if host.contains(':') => return Err(NameError::Character),
            None => host.parse()?,
        };
        Ok(Self { host, port })
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: Host::Ip(address.ip()),
            port: address.port(),
        }
    }
}

impl Destination {
    /// Kind, host, port.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match &self.host {
            Host::Ip(address) => put_ip(*address, out),
            Host::Name(name) => {
                out.push(NAME);
                put_sized(name.0.as_bytes(), out);
            }
        }
        out.extend_from_slice(&self.port.to_be_bytes());
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [kind] = reader.array()?;
        let host = if kind == NAME {
            let text = str::from_utf8(reader.sized()?).map_err(|_| NameError::Character)?;
            Host::Name(HostName::new(text)?)
        } else {
            Host::Ip(get_ip(kind, reader)?)
        };
        Ok(Self {
            host,
            port: u16::from_be_bytes(reader.array()?),
        })
    }
}

/// Kind and address, without port.
pub(super) fn put_ip(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            out.push(IPV4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(IPV6);
            out.extend_from_slice(&address.octets());
        }
    }
}

pub(super) fn get_ip(kind: u8, reader: &mut Reader<'_>) -> Result<IpAddr, DecodeError> {
    match kind {
        IPV4 => Ok(Ipv4Addr::from(reader.array::<4>()?).into()),
        IPV6 => Ok(Ipv6Addr::from(reader.array::<16>()?).into()),
        _ => Err(DecodeError::AddressKind(kind)),
    }
}

/// Kind, address, port; or the kind "none" alone. Scope and flow label of IPv6 do not travel.
pub(super) fn put_socket(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    match address {
        None => out.push(NONE),
        Some(address) => {
            put_ip(address.ip(), out);
            out.extend_from_slice(&address.port().to_be_bytes());
        }
    }
}

pub(super) fn get_socket(reader: &mut Reader<'_>) -> Result<Option<SocketAddr>, DecodeError> {
    let [kind] = reader.array()?;
    if kind == NONE {
        return Ok(None);
    }
    let ip = get_ip(kind, reader)?;
    Ok(Some(SocketAddr::new(
        ip,
        u16::from_be_bytes(reader.array()?),
    )))
}
