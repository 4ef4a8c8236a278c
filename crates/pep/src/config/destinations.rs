//! Destinations of `allow` and `only`: a prefix, alone or with the ports that are meant.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;

use super::value::FromText;

/// Ports that one entry may name.
const MOST_PORTS: usize = 64;

/// Service that is wanted of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// A port of TCP, UDP or another transport that has ports.
    Port(u16),
    /// A protocol without ports, such as ICMP echo.
    Portless,
    /// Part of something that was judged by its port: later fragments, ICMP errors, an address alone.
    Related,
}

/// Destinations: all of a prefix, or some ports of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destinations {
    prefix: IpNet,
    /// Empty: everything at these addresses.
    ports: Vec<RangeInclusive<u16>>,
}

impl Destinations {
    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> IpNet {
        self.prefix
    }

    /// True if only some ports are meant.
    #[must_use]
    pub fn has_ports(&self) -> bool {
        !self.ports.is_empty()
    }

    /// True if `service` of `address` is among them. Where ports are named, protocols without ports are not.
    #[must_use]
    pub fn cover(&self, address: IpAddr, service: Service) -> bool {
        let served = match service {
            Service::Related => true,
            _ if self.ports.is_empty() => true,
            Service::Port(port) => self.ports.iter().any(|range| range.contains(&port)),
            Service::Portless => false,
        };
        served && self.prefix.contains(&address)
    }
}

impl From<IpNet> for Destinations {
    fn from(prefix: IpNet) -> Self {
        Self {
            prefix,
            ports: Vec::new(),
        }
    }
}

impl fmt::Display for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = |range: &RangeInclusive<u16>| match range.start() == range.end() {
            true => range.start().to_string(),
            false => format!("{}-{}", range.start(), range.end()),
        };
        let ports: Vec<_> = self.ports.iter().map(ports).collect();
        match (self.ports.is_empty(), self.prefix) {
            (true, prefix) => prefix.fmt(f),
            (false, IpNet::V4(prefix)) => write!(f, "{prefix}:{}", ports.join(",")),
            (false, IpNet::V6(prefix)) => write!(f, "[{prefix}]:{}", ports.join(",")),
        }
    }
}

impl FromStr for Destinations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::from_text(text)
    }
}

impl FromText for Destinations {
    const EXPECTED: &'static str =
        "an address or prefix, such as \"10.30.0.0/24\" or \"fd00:30::1\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let (prefix, ports) = split(text);
        let prefix = IpNet::from_text(&prefix)
            .map_err(|_| format!("bad prefix `{text}`; expected {}", Self::EXPECTED))?;
        let ports = ports.map_or(Ok(Vec::new()), |ports| {
            parse_ports(ports).ok_or_else(|| {
                format!(
                    "bad ports in `{text}`; expected some after a colon, such as \"10.30.0.0/24:22,8000-8010\" or \"[fd00:30::/64]:443\""
                )
            })
        });
        Ok(Self {
            prefix,
            ports: ports?,
        })
    }
}

/// The prefix, and what is said of ports. IPv6 needs brackets for that, around the address or around the whole prefix.
fn split(text: &str) -> (String, Option<&str>) {
    if let Some((inside, after)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let (length, ports) = match after.split_once(':') {
            Some((length, ports)) => (length, Some(ports)),
            None => (after, None),
        };
        return (format!("{inside}{length}"), ports);
    }
    match text.split_once(':') {
        Some((prefix, ports)) if prefix.contains('.') => (prefix.to_owned(), Some(ports)),
        _ => (text.to_owned(), None),
    }
}

fn parse_ports(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range: RangeInclusive<u16> = first.trim().parse().ok()?..=last.trim().parse().ok()?;
        (*range.start() > 0 && !range.is_empty()).then_some(range)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    ranges.filter(|ranges| ranges.len() <= MOST_PORTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Destinations> {
        Destinations::from_text(text).ok()
    }

    #[test]
    fn ports_follow_a_colon_and_ipv6_has_brackets() {
        for (text, shown) in [
            ("10.30.0.0/24", "10.30.0.0/24"),
            ("10.30.0.9", "10.30.0.9/32"),
            ("fd00:30::9/64", "fd00:30::/64"),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.1/128"),
            ("10.30.0.0/24:22,443", "10.30.0.0/24:22,443"),
            ("10.30.0.9:8000-8010, 22", "10.30.0.9/32:8000-8010,22"),
            ("[fd00:30::/64]:22", "[fd00:30::/64]:22"),
            ("[fd00:30::]/64:22", "[fd00:30::/64]:22"),
            ("[fd00:30::9]", "fd00:30::9/128"),
            ("0.0.0.0/0:443", "0.0.0.0/0:443"),
        ] {
            let parsed = parse(text).map(|destinations| destinations.to_string());
            assert_eq!(parsed.as_deref(), Some(shown), "{text}");
        }
        for bad in [
            "",
            "nas",
            "10.30.0.0/24:",
            "10.30.0.0/24:0",
            "10.30.0.0/24:9-3",
            "10.30.0.0/24:65536",
            "10.30.0.0/24:22,",
            "[fd00::1",
            "[fd00::1]:x",
            "10.0.0.0/33",
            "10.0.0.1:ssh",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn ports_bind_what_has_ports() {
        let some = parse("10.30.0.0/24:22,8000-8010").expect("destinations");
        let at = |address: &str, service| some.cover(address.parse().expect("an address"), service);
        assert!(at("10.30.0.1", Service::Port(22)) && at("10.30.0.1", Service::Port(8010)));
        assert!(!at("10.30.0.1", Service::Port(23)) && !at("10.31.0.1", Service::Port(22)));
        assert!(!at("10.30.0.1", Service::Portless) && at("10.30.0.1", Service::Related));
        let all = parse("10.30.0.0/24").expect("destinations");
        let address = "10.30.0.1".parse().expect("an address");
        assert!(all.cover(address, Service::Portless) && all.cover(address, Service::Port(9)));
    }
}
