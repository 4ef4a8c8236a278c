//! What a client takes in: interception, SOCKS5, HTTP CONNECT, and the exceptions by destination.
//!
//! The same tables whatever carries the connections on. A client without any has nothing to do, unless it publishes ports.

use std::net::{IpAddr, SocketAddr};

use bentpipe_config::{Place, Placed, Source};
use bentpipe_proto::tunnel::MAX_ROUTED;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::ConfigError;
use super::dssl::ClientDssl;
use super::les::ClientLes;
use super::rule::{Action, Asked, Rule};
use super::trusted_name::TrustedName;
use super::value::{self, Http3, InterfaceName, OnFailure, OtherTraffic};
use super::web::ClientWeb;

/// TPROXY's target port when nothing else is said.
const DEFAULT_INTERCEPT_PORT: u16 = 4480;

/// Sources of a client's connections: at least one of the first three, but for a client that only publishes ports.
#[derive(Clone, Debug)]
pub struct FrontEnds {
    /// Transparent interception.
    pub intercept: Option<Placed<Intercept>>,
    /// SOCKS5 front end.
    pub socks5: Option<Placed<ProxyFrontEnd>>,
    /// HTTP CONNECT front end.
    pub http: Option<Placed<ProxyFrontEnd>>,
    /// Pages that are fetched ahead, where connections to web servers are taken in.
    pub web: ClientWeb,
    /// Origins whose pages' objects come ahead and stay sealed.
    pub dssl: ClientDssl,
    /// TCP that goes by LES, if some is to.
    pub les: Option<ClientLes>,
    /// In order.
    pub rules: Vec<Rule>,
}

#[cfg(test)]
impl FrontEnds {
    /// Front ends of a client that has nothing but these rules, each as in the file.
    pub(crate) fn of_rules(rules: &[&str]) -> Self {
        let rule = |text: &&str| toml::from_str(text).expect("a rule");
        Self {
            intercept: None,
            socks5: None,
            http: None,
            web: ClientWeb::default(),
            dssl: ClientDssl::default(),
            les: None,
            rules: rules.iter().map(rule).collect(),
        }
    }
}

/// Transparent interception of TCP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intercept {
    /// LAN interfaces whose TCP is taken in; empty only if `local` is set.
    #[serde(default, deserialize_with = "interfaces")]
    pub interfaces: Vec<String>,
    /// True if this machine's own TCP is taken in too.
    #[serde(default)]
    pub local: bool,
    /// Destinations left alone.
    #[serde(default, deserialize_with = "value::texts")]
    pub bypass: Vec<IpNet>,
    /// Prefixes behind `interfaces` that the server may route here as they are.
    #[serde(default, deserialize_with = "value::texts")]
    pub routes: Vec<IpNet>,
    /// Fate of everything but TCP.
    #[serde(default)]
    pub other: OtherTraffic,
    /// Fate of HTTP/3.
    #[serde(default)]
    pub http3: Http3,
    /// Fate of all this when it cannot be carried.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Local TCP port that TPROXY hands connections to.
    #[serde(default = "default_intercept_port")]
    pub port: u16,
}

/// SOCKS5 or HTTP CONNECT, without authentication.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyFrontEnd {
    /// TCP address to serve.
    #[serde(deserialize_with = "value::text")]
    pub listen: SocketAddr,
}

impl FrontEnds {
    /// Ports that are never accepted before the server has connected: SMTP and BGP judge a peer by that.
    pub const NEVER_OPTIMISTIC: [u16; 2] = [25, 179];

    /// Refuses front ends that cannot be.
    pub(super) fn new(
        source: &Source,
        intercept: Option<Spanned<Intercept>>,
        socks5: Option<Spanned<ProxyFrontEnd>>,
        http: Option<Spanned<ProxyFrontEnd>>,
        rules: Vec<Spanned<Rule>>,
    ) -> Result<Self, ConfigError> {
        if let Some(intercept) = &intercept {
            check(source, intercept)?;
        }
        for (index, rule) in rules.iter().enumerate() {
            Rule::check(
                (index, rule),
                source,
                intercept.as_ref().map(Spanned::get_ref),
            )?;
        }
        let front = Self {
            intercept: intercept.map(|intercept| source.placed(intercept)),
            socks5: socks5.map(|front_end| source.placed(front_end)),
            http: http.map(|front_end| source.placed(front_end)),
            web: ClientWeb::default(),
            dssl: ClientDssl::default(),
            les: None,
            rules: rules.into_iter().map(Spanned::into_inner).collect(),
        };
        front.check_routes(source)?;
        Ok(front)
    }

    /// Hosts that a client answers for in TLS, by its local CA.
    #[must_use]
    pub fn answered_names(&self) -> Vec<TrustedName> {
        [&self.web.names[..], &self.dssl.origins[..]].concat()
    }

    /// Refuses a client that would take in nothing, and for which `others` would do as well.
    pub(super) fn check_any(&self, source: &Source, others: &str) -> Result<(), ConfigError> {
        if self.intercept.is_some() || self.socks5.is_some() || self.http.is_some() {
            return Ok(());
        }
        let fault = format!("no front end is configured; add `[intercept]`, {others}");
        Err(source.error_at_line(1, fault))
    }

    /// Refuses prefixes that cannot be routed here.
    fn check_routes(&self, source: &Source) -> Result<(), ConfigError> {
        let Some(intercept) = &self.intercept else {
            return Ok(());
        };
        let routes = &intercept.routes;
        let whole = routes.iter().find(|prefix| prefix.prefix_len() == 0);
        let fault = if routes.is_empty() {
            return Ok(());
        } else if let Some(prefix) = whole {
            format!("{prefix} is everything; name the prefixes behind this router")
        } else if routes.len() > MAX_ROUTED {
            format!(
                "`routes` has {} entries; at most {MAX_ROUTED} are possible",
                routes.len()
            )
        } else if intercept.interfaces.is_empty() {
            "`routes` lead to hosts behind `interfaces`; list these".into()
        } else if self.tunnels_packets().is_none() {
            "`routes` lead through the tunnel's device; set `other = \"tunnel\"`".into()
        } else {
            return Ok(());
        };
        Err(source.error_at_key("intercept.routes", fault))
    }

    /// Place at which all but TCP is asked to go into the tunnel, or some TCP by LES, if it is.
    #[must_use]
    pub fn tunnels_packets(&self) -> Option<&Place> {
        let intercept = self.intercept.as_ref()?;
        let tunnels = |rule: &Rule| rule.action == Some(Action::Tunnel);
        let any = intercept.other == OtherTraffic::Tunnel
            || self.les.is_some()
            || self.rules.iter().any(tunnels);
        any.then_some(&intercept.place)
    }

    /// True if IP packets are to cross the tunnel: those of [`Self::tunnels_packets`], or datagrams of SOCKS5 applications.
    #[must_use]
    pub fn carries_packets(&self) -> bool {
        self.tunnels_packets().is_some() || self.socks5.is_some()
    }

    /// True if a connection to `port` at `address` (`None`: a host name) may be accepted before the server has
    /// connected. Never for SMTP and BGP, whatever the rules say.
    #[must_use]
    pub fn is_optimistic(&self, address: Option<IpAddr>, port: u16) -> bool {
        self.says_optimistic(address, port).unwrap_or(true)
    }

    /// As [`Self::is_optimistic`]; `None` if nothing is said of it.
    pub(crate) fn says_optimistic(&self, address: Option<IpAddr>, port: u16) -> Option<bool> {
        let mut rules = self.rules.iter().filter(|rule| rule.matches(address, port));
        match Self::NEVER_OPTIMISTIC.contains(&port) {
            true => Some(false),
            false => rules.find_map(|rule| rule.optimistic),
        }
    }

    /// The rules that say where traffic goes, with their places among all.
    pub(crate) fn actions(&self) -> impl Iterator<Item = (usize, &Rule, Action)> {
        let rules = self.rules.iter().enumerate();
        rules.filter_map(|(place, rule)| Some((place, rule, rule.action?)))
    }

    /// Decides where a connection goes, and which of [`Self::actions`] says so; `learned` tells whether its address is one of that
    /// rule's domains.
    pub(crate) fn decide(
        &self,
        asked: &Asked<'_>,
        learned: impl Fn(usize) -> bool,
    ) -> Option<(usize, Action)> {
        let mut rules = self.actions().enumerate();
        rules.find_map(|(index, (_, rule, action))| {
            rule.meets(asked, learned(index)).then_some((index, action))
        })
    }
}

fn check(source: &Source, intercept: &Spanned<Intercept>) -> Result<(), ConfigError> {
    let table = intercept.get_ref();
    if table.interfaces.is_empty() && !table.local {
        let fault = "`[intercept]` takes in nothing; list `interfaces` or set `local = true`";
        return Err(source.error(&intercept.span(), fault));
    }
    if table.port == 0 {
        let fault = "`port` of `[intercept]` is 0; choose 1 to 65535";
        return Err(source.error_at_key("intercept.port", fault));
    }
    Ok(())
}

/// Names of interfaces.
pub(super) fn interfaces<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let names: Vec<InterfaceName> = value::texts(deserializer)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

fn default_intercept_port() -> u16 {
    DEFAULT_INTERCEPT_PORT
}
