//! Ports of the server that deliver to hosts behind a client: what the client asks for (`[[publish]]`), and what the server
//! permits it (`publish` of `[[client]]`).

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use bentpipe_config::Source;
use bentpipe_proto::tunnel::MAX_PUBLISHED;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::ConfigError;
use super::front::FrontEnds;
use super::value::{self, FromText};

/// Protocol of a port that is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortProtocol {
    /// Connections.
    #[default]
    Tcp,
    /// Packets.
    Udp,
}

impl PortProtocol {
    /// IP's number of it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl fmt::Display for PortProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A port of the server that delivers to a host behind this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// TCP or UDP.
    #[serde(default)]
    pub protocol: PortProtocol,
    /// The port of the server.
    pub port: u16,
    /// The host, and its port.
    #[serde(deserialize_with = "value::text")]
    pub to: SocketAddr,
    /// The host is told who has connected, by the PROXY protocol (TCP).
    #[serde(default)]
    pub proxy_protocol: bool,
}

/// Ports of the server that a client may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Of TCP or UDP.
    pub protocol: PortProtocol,
    /// Ports that may be published.
    pub ports: RangeInclusive<u16>,
}

impl Permit {
    /// True if `port` of `protocol`, by IP's number, is among them.
    #[must_use]
    pub fn covers(&self, protocol: u8, port: u16) -> bool {
        self.protocol.number() == protocol && self.ports.contains(&port)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.protocol == other.protocol
            && self.ports.start() <= other.ports.end()
            && other.ports.start() <= self.ports.end()
    }
}

impl fmt::Display for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.ports.start(), self.ports.end());
        write!(f, "{}/{first}", self.protocol)?;
        match first == last {
            true => Ok(()),
            false => write!(f, "-{last}"),
        }
    }
}

impl FromText for Permit {
    const EXPECTED: &'static str =
        "a port or a range of them, such as \"tcp/8443\" or \"udp/5000-5010\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let parse = || {
            let (protocol, ports) = text.split_once('/')?;
            let protocol = match protocol {
                "tcp" => PortProtocol::Tcp,
                "udp" => PortProtocol::Udp,
                _ => return None,
            };
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let ports: RangeInclusive<u16> = first.parse().ok()?..=last.parse().ok()?;
            let sound = *ports.start() > 0 && !ports.is_empty();
            sound.then_some(Self { protocol, ports })
        };
        parse().ok_or_else(|| format!("bad port `{text}`; expected {}", Self::EXPECTED))
    }
}

/// Refuses what cannot be published.
pub(super) fn asked(
    source: &Source,
    entries: Vec<Spanned<Publish>>,
    front: &FrontEnds,
) -> Result<Vec<Publish>, ConfigError> {
    let mut seen = HashSet::new();
    for (entry, index) in entries.iter().zip(0..) {
        let this = entry.get_ref();
        let name = format!("{}/{}", this.protocol, this.port);
        let (mut key, zero) = ("", "a port is 0; choose 1 to 65535");
        let fault = if index >= MAX_PUBLISHED {
            Some(format!("at most {MAX_PUBLISHED} ports can be published"))
        } else if this.port == 0 {
            key = ".port";
            Some(zero.into())
        } else if this.to.port() == 0 {
            key = ".to";
            Some(zero.into())
        } else if this.to.ip().is_unspecified() || this.to.ip().is_multicast() {
            key = ".to";
            Some(format!("`to` is no host: {}", this.to.ip()))
        } else if this.protocol == PortProtocol::Tcp {
            (!seen.insert((this.protocol, this.port, false)))
                .then(|| format!("{name} is published twice; choose another `port`"))
        } else {
            udp_fault(this, front).or_else(|| {
                let taken = !seen.insert((this.protocol, this.port, this.to.is_ipv6()));
                taken.then(|| {
                    format!("{name} is published twice for one IP version; choose another `port`")
                })
            })
        };
        if let Some(fault) = fault {
            return Err(source.error_at_key(&format!("publish.{index}{key}"), fault));
        }
    }
    Ok(entries.into_iter().map(Spanned::into_inner).collect())
}

/// UDP crosses as packets, which the kernel translates.
fn udp_fault(publish: &Publish, front: &FrontEnds) -> Option<String> {
    if publish.proxy_protocol {
        return Some("`proxy_protocol` is for TCP; UDP shows its source by itself".into());
    }
    if publish.to.ip().is_loopback() {
        return Some("UDP cannot be led to loopback; give an address of an interface".into());
    }
    front.tunnels_packets().is_none().then(|| {
        "UDP is published through the tunnel's device; add `[intercept]` with `other = \"tunnel\"`"
            .into()
    })
}

/// Ports that some client may have: no other may, and the server needs its own.
#[derive(Default)]
pub(super) struct Permits(Vec<(Permit, String)>);

impl Permits {
    /// Permits of the client `name`.
    pub(super) fn of(
        &mut self,
        source: &Source,
        name: &str,
        entries: &[Spanned<Permit>],
        listen: &[SocketAddr],
    ) -> Result<Vec<Permit>, ConfigError> {
        for entry in entries {
            let permit = entry.get_ref();
            let other = self
                .0
                .iter()
                .find(|(other, owner)| owner != name && other.overlaps(permit));
            let own = |address: &&SocketAddr| permit.covers(17, address.port());
            let fault = if let Some((other, owner)) = other {
                format!("{permit} of `{name}` overlaps {other} of `{owner}`; give each its own")
            } else if let Some(own) = listen.iter().find(own) {
                format!("{permit} holds the server's own port, {own}; leave that out")
            } else {
                self.0.push((permit.clone(), name.to_owned()));
                continue;
            };
            return Err(source.error(&entry.span(), fault));
        }
        Ok(entries
            .iter()
            .map(|entry| entry.get_ref().clone())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_alone_or_as_ranges() {
        let permit = |text: &str| Permit::from_text(text).ok();
        let range = permit("udp/5000-5010").unwrap();
        assert_eq!(range.to_string(), "udp/5000-5010");
        assert!(range.covers(17, 5000) && range.covers(17, 5010));
        assert!(!range.covers(17, 5011) && !range.covers(17, 4999) && !range.covers(6, 5005));
        assert_eq!(permit("tcp/1").unwrap().to_string(), "tcp/1");
        assert!(!range.overlaps(&permit("tcp/5000").unwrap()));
        assert!(range.overlaps(&permit("udp/5010-6000").unwrap()));
        for bad in [
            "",
            "tcp",
            "tcp/",
            "tcp/0",
            "tcp/2-1",
            "tcp/65536",
            "sctp/5",
            "tcp/1-2-3",
            "tcp/-5",
        ] {
            assert_eq!(permit(bad), None, "{bad}");
        }
    }
}
