//! `[[rule]]`: what happens to some of the traffic. In order; for each of the two questions that rules answer (how a
//! connection is opened, where traffic goes) the first that matches and answers it counts.

use std::net::IpAddr;

use bentpipe_config::Source;
use bentpipe_proto::tunnel::Host;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::ConfigError;
use super::front::Intercept;
use super::value::{self, FromText};

/// TCP's number.
pub(crate) const TCP: u8 = 6;

/// The number of UDP.
pub(crate) const UDP: u8 = 17;

/// Protocols that have ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [TCP, UDP, 33, 132, 136];

/// A rule; what is empty matches all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Intercepted interfaces that it is for.
    #[serde(default, deserialize_with = "super::front::interfaces")]
    pub interfaces: Vec<String>,
    /// Networks that traffic comes from.
    #[serde(default, deserialize_with = "value::texts")]
    pub sources: Vec<IpNet>,
    /// Destinations of traffic; with `domains`, either will do.
    #[serde(default, deserialize_with = "value::texts")]
    pub destinations: Vec<IpNet>,
    /// Names that it goes to.
    #[serde(default, deserialize_with = "value::texts")]
    pub domains: Vec<Domain>,
    /// IP protocols.
    #[serde(default, deserialize_with = "value::texts")]
    pub protocols: Vec<Protocol>,
    /// Destination ports.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Values of the DSCP.
    #[serde(default, deserialize_with = "value::texts")]
    pub dscp: Vec<Dscp>,
    /// Acceptance of connections before the server has connected, if the rule says so.
    #[serde(default)]
    pub optimistic: Option<bool>,
    /// Action on traffic, if the rule says so.
    #[serde(default)]
    pub action: Option<Action>,
}

/// Way that traffic goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Through the tunnel.
    Tunnel,
    /// Past it, in clear.
    Direct,
    /// Nowhere: it is refused.
    Block,
}

/// A name, with all that are below it; lower case, without a dot at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain(String);

impl Domain {
    /// True if `name` is it, or below it.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        let Some(start) = name.len().checked_sub(self.0.len()) else {
            return false;
        };
        // A host name is ASCII; what is not covers nothing.
        let bytes = name.as_bytes();
        bytes[start..].eq_ignore_ascii_case(self.0.as_bytes())
            && (start == 0 || bytes[start - 1] == b'.')
    }
}

impl FromText for Domain {
    const EXPECTED: &'static str = "a domain, such as \"example.com\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text);
        value::is_host_name(name)
            .then(|| Self(name.to_ascii_lowercase()))
            .ok_or_else(|| format!("bad domain `{text}`; expected {}", Self::EXPECTED))
    }
}

/// The numbers of an IP protocol, two if IPv4 and IPv6 differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol(pub(crate) Vec<u8>);

impl FromText for Protocol {
    const EXPECTED: &'static str =
        "tcp, udp, icmp, sctp, dccp, udplite, gre, esp, ah, or a number from 0 to 255";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(match text {
            "tcp" => vec![TCP],
            "udp" => vec![UDP],
            "icmp" => vec![1, 58],
            "sctp" => vec![132],
            "dccp" => vec![33],
            "udplite" => vec![136],
            "gre" => vec![47],
            "esp" => vec![50],
            "ah" => vec![51],
            number => vec![
                number
                    .parse()
                    .map_err(|_| format!("bad protocol `{text}`; expected {}", Self::EXPECTED))?,
            ],
        }))
    }
}

/// A DSCP, 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(pub(crate) u8);

impl FromText for Dscp {
    const EXPECTED: &'static str =
        "ef, va, le, cs0 to cs7, af11 to af43, or a number from 0 to 63, such as \"46\"";

    /// The names of RFC 2474, 2597, 3246, 5865 and 8622.
    fn from_text(text: &str) -> Result<Self, String> {
        let digit = |at: usize, most: u8| {
            let digit = text.as_bytes().get(at)?.checked_sub(b'0')?;
            (digit <= most && text.is_ascii()).then_some(digit)
        };
        let class = |prefix| text.starts_with(prefix);
        let value = match (text, text.len()) {
            ("ef", _) => Some(46),
            ("va", _) => Some(44),
            ("le", _) => Some(1),
            (_, 3) if class("cs") => digit(2, 7).map(|class| class << 3),
            (_, 4) if class("af") => {
                let parts = digit(2, 4).filter(|class| *class > 0);
                let drop = digit(3, 3).filter(|drop| *drop > 0);
                parts
                    .zip(drop)
                    .map(|(class, drop)| (class << 3) + (drop << 1))
            }
            _ => text.parse().ok().filter(|value| *value < 64),
        };
        value
            .map(Self)
            .ok_or_else(|| format!("bad DSCP `{text}`; expected {}", Self::EXPECTED))
    }
}

/// A TCP connection that somebody asks for, or where a datagram is to go.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The interface that it came in by; `None`: it came to a proxy.
    pub interface: Option<&'a str>,
    /// Address that asks.
    pub source: Option<IpAddr>,
    /// For whom.
    pub host: &'a Host,
    /// And which port.
    pub port: u16,
    /// The number of its protocol.
    pub protocol: u8,
}

impl Rule {
    /// True if the rule is for `port` at `address`, as far as destinations and ports go; `None` is a host name, which only
    /// a rule for all destinations meets.
    #[must_use]
    pub fn matches(&self, address: Option<IpAddr>, port: u16) -> bool {
        (self.ports.is_empty() || self.ports.contains(&port))
            && (self.destinations.is_empty()
                || address.is_some_and(|address| contains(&self.destinations, address)))
    }

    /// True if the rule is for a connection; `learned` says of its address that it is one of the rule's domains.
    pub(super) fn meets(&self, asked: &Asked<'_>, learned: bool) -> bool {
        let interface = |name: &str| self.interfaces.iter().any(|one| one == name);
        let anywhere = self.destinations.is_empty() && self.domains.is_empty();
        let destination = match asked.host {
            Host::Ip(address) => contains(&self.destinations, *address) || learned,
            Host::Name(name) => self.domains.iter().any(|one| one.covers(name.as_str())),
        };
        (self.interfaces.is_empty() || asked.interface.is_some_and(interface))
            && (self.sources.is_empty()
                || asked.source.is_some_and(|source| contains(&self.sources, source)))
            && (anywhere || destination)
            && (self.protocols.is_empty() || self.numbers().contains(&asked.protocol))
            && (self.ports.is_empty() || self.ports.contains(&asked.port))
            // Nobody knows a proxy's application's.
            && self.dscp.is_empty()
    }

    /// The numbers of its protocols.
    pub(crate) fn numbers(&self) -> Vec<u8> {
        self.protocols
            .iter()
            .flat_map(|one| one.0.clone())
            .collect()
    }

    /// Refuses a rule that cannot mean what it says.
    pub(super) fn check(
        (index, rule): (usize, &Spanned<Self>),
        source: &Source,
        intercept: Option<&Intercept>,
    ) -> Result<(), ConfigError> {
        let fault = |key: &str, text: String| {
            Err(source.error_at_key(&format!("rule.{index}.{key}"), text))
        };
        let this = rule.get_ref();
        if this.optimistic.is_none() && this.action.is_none() {
            let text = "this rule says nothing; give it an `action` or `optimistic`";
            return Err(source.error(&rule.span(), text));
        }
        let narrow = [
            ("interfaces", this.interfaces.is_empty()),
            ("sources", this.sources.is_empty()),
            ("domains", this.domains.is_empty()),
            ("protocols", this.protocols.is_empty()),
            ("dscp", this.dscp.is_empty()),
        ];
        if let Some((key, _)) = narrow.iter().find(|(_, empty)| !empty)
            && this.optimistic.is_some()
        {
            let text = format!(
                "`optimistic` goes by `ports` and `destinations` alone, not by `{key}`; give it a rule of its own"
            );
            return fault("optimistic", text);
        }
        let known = |name: &String| intercept.is_some_and(|table| table.interfaces.contains(name));
        if let Some(name) = this.interfaces.iter().find(|name| !known(name)) {
            let text = format!(
                "`{name}` is not intercepted; add it to `interfaces` of `[intercept]` or remove it here"
            );
            return fault("interfaces", text);
        }
        let portless = |number: &u8| !WITH_PORTS.contains(number);
        if !this.ports.is_empty() && this.numbers().iter().any(portless) {
            let text = "`ports` beside a protocol that has none; make two rules";
            return fault("ports", text.into());
        }
        Ok(())
    }
}

fn contains(nets: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    nets.iter().any(|net| net.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_covers_itself_and_what_is_below() {
        let domain = Domain::from_text("Example.com.").unwrap();
        for (name, covered) in [
            ("example.com", true),
            ("EXAMPLE.COM.", true),
            ("www.example.com", true),
            ("anexample.com", false),
            ("com", false),
            ("example.com.evil.net", false),
            ("\u{e9}xample.com", false),
        ] {
            assert_eq!(domain.covers(name), covered, "{name}");
        }
    }

    #[test]
    fn dscp_have_the_names_of_the_rfcs() {
        for (text, value) in [
            ("ef", Some(46)),
            ("cs0", Some(0)),
            ("cs7", Some(56)),
            ("af11", Some(10)),
            ("af43", Some(38)),
            ("63", Some(63)),
            ("64", None),
            ("af14", None),
            ("af01", None),
            ("cs8", None),
            ("\u{20ac}", None),
            ("", None),
        ] {
            assert_eq!(Dscp::from_text(text).ok().map(|one| one.0), value, "{text}");
        }
    }

    #[test]
    fn a_name_meets_domains_and_never_prefixes() {
        let rule: Rule = toml::from_str(
            "domains = [\"example.com\"]\ndestinations = [\"192.0.2.0/24\"]\nports = [443]\naction = \"direct\"",
        )
        .unwrap();
        let name = |name: &str| Host::Name(name.parse().unwrap());
        let address = |address: &str| Host::Ip(address.parse().unwrap());
        for (host, port, learned, meets) in [
            (name("www.example.com"), 443, false, true),
            (name("www.example.com"), 80, false, false),
            (name("example.org"), 443, false, false),
            (address("192.0.2.7"), 443, false, true),
            (address("198.51.100.7"), 443, false, false),
            (address("198.51.100.7"), 443, true, true),
        ] {
            let asked = Asked {
                interface: None,
                source: None,
                host: &host,
                port,
                protocol: TCP,
            };
            assert_eq!(rule.meets(&asked, learned), meets, "{host:?} {port}");
        }
    }

    #[test]
    fn a_rule_for_some_protocols_is_for_no_others() {
        let rule: Rule = toml::from_str("protocols = [\"udp\"]\naction = \"block\"").unwrap();
        let host = Host::Ip([192, 0, 2, 7].into());
        let asked = |protocol| Asked {
            interface: None,
            source: None,
            host: &host,
            port: 53,
            protocol,
        };
        assert!(rule.meets(&asked(UDP), false) && !rule.meets(&asked(TCP), false));
    }
}
