//! Settings of bentpipe at both ends of the link, and the lines that they are in the daemons' files.

use std::net::{IpAddr, Ipv4Addr};

use bentpipe_units::BitRate;

use super::ahead::PagesAhead;
use super::bentpipe::{HOSTS_PORT, SERVER_PORT, SLE_PORT, TLS_PORT};
use super::ends::Between;
use super::les::Layers;
use super::vpn::OuterEnd;
use crate::workload::corpus;
use bentpipe_emulator::topology::{
    GATEWAY_WAN, GATEWAY_WAN6, RESOLVER, RESOLVER6, USER, USER6, WEB, WEB6, host, host6,
};

/// Settings of the client's `[link]`; those that are `None` are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// The class of link.
    pub profile: Option<&'static str>,
    /// Controller that both ends send with.
    pub controller: Option<&'static str>,
    /// Another key.
    pub tuned: Option<Tuned>,
    /// Rates that have been sold, of forward and return link.
    pub rates: Option<[BitRate; 2]>,
    /// True if everything but TCP passes as it is.
    pub tcp_alone: bool,
    /// True if HTTP/3 passes as packets; else it is refused, and browsers take TCP.
    pub http3: bool,
    /// True if names are asked for as the hosts do, and none along with another.
    pub names_alone: bool,
    /// True if the terminal's own traffic is taken in, too.
    pub local: bool,
    /// True if the tunnel goes over TLS, and nothing by UDP.
    pub tls: bool,
    /// End of the connections in which TCP is sealed beside the tunnel, one for each, if it is.
    pub sle: Option<OuterEnd>,
    /// Way in which TCP is sealed packet by packet beside the tunnel, if it is.
    pub les: Option<Layers>,
    /// Pages whose objects are fetched ahead, if some are.
    pub ahead: Option<PagesAhead>,
    /// Place of both ends.
    pub between: Between,
}

impl Between {
    /// Port of the tunnel.
    pub(super) fn port(self) -> u16 {
        match self {
            Self::Nodes => SERVER_PORT,
            Self::Hosts => HOSTS_PORT,
        }
    }

    /// Beginning of the names of its files.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Nodes => "",
            Self::Hosts => "host-",
        }
    }

    /// Traffic that the client takes in; `local`: its own machine's, too.
    pub(super) fn taken(self, local: bool) -> String {
        match self {
            Self::Nodes => format!("interfaces = [\"lan0\"]\nlocal = {local}\n"),
            Self::Hosts => "local = true\n".to_owned(),
        }
    }

    /// Destinations that the server opens.
    pub(super) fn allowed(self) -> String {
        match self {
            Self::Nodes => "\"10.30.0.0/24\", \"fd00:30::/64\"".to_owned(),
            // These are the server's own, which are opened one by one.
            Self::Hosts => one_by_one(),
        }
    }
}

/// A key of `[link]` that is a number, for both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuned {
    key: &'static str,
    number: u32,
}

impl Tuned {
    /// `KEY=NUMBER`; none if it is no such key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (key, number) = text.split_once('=')?;
        let key = ["ack_packets", "initial_window"]
            .into_iter()
            .find(|known| *known == key)?;
        let number = number.parse().ok()?;
        Some(Self { key, number })
    }
}

impl Settings {
    /// Tables about sealed flows, of the server's file and the client's.
    pub(super) fn sle_tables(&self, address: Ipv4Addr) -> (String, &'static str) {
        match self.sle {
            Some(OuterEnd::Server) => (
                format!("\n[sle]\nlisten = \"{address}:{SLE_PORT}\"\n"),
                "[sle]\n\n",
            ),
            // An operator's PEP connects in the gateway's name.
            Some(OuterEnd::Destination) => (
                format!(
                    "\n[sle]\ninterfaces = [\"eth0\"]\nprefixes = [{}]\nsources = [\"{USER}\", \"{USER6}\", \"{GATEWAY_WAN}\", \"{GATEWAY_WAN6}\"]\n",
                    one_by_one()
                ),
                "[sle]\nmode = \"transparent\"\n\n",
            ),
            None => Default::default(),
        }
    }

    /// Lines about TLS of the server's file, and of the client's `[server]`.
    pub(super) fn tls_keys(&self, address: Ipv4Addr) -> (String, String) {
        let address = format!("{address}:{TLS_PORT}");
        match self.tls {
            true => (
                format!("listen_tls = \"{address}\"\n"),
                format!("tls = \"{address}\"\nwire = \"tls\"\n"),
            ),
            false => Default::default(),
        }
    }

    /// The line of `[intercept]` on what is not TCP.
    pub(super) fn other(&self) -> &'static str {
        match (self.tcp_alone, self.http3) {
            (true, _) => "other = \"direct\"\n",
            (false, true) => "http3 = \"tunnel\"\n",
            (false, false) => "",
        }
    }

    /// The table on names.
    pub(super) fn names(&self) -> &'static str {
        match self.names_alone {
            true => "[dns]\nprefetch = false\n\n",
            false => "",
        }
    }

    /// The lines of `[link]`, and the tables under it.
    pub(super) fn lines(&self) -> String {
        let keys = [("profile", self.profile), ("controller", self.controller)];
        let said = keys
            .iter()
            .filter_map(|(key, value)| value.map(|value| (key, value)));
        let tuned = self
            .tuned
            .map(|Tuned { key, number }| format!("{key} = {number}\n"));
        said.map(|(key, value)| format!("{key} = \"{value}\"\n"))
            .chain(tuned)
            .chain(self.rates.map(sold_at_most))
            .collect()
    }
}

/// Addresses of the web's node, as between the brackets of a list.
fn one_by_one() -> String {
    let hosts = (0..corpus::HOSTS).flat_map(|i| [host(i).into(), host6(i).into()]);
    let own: [IpAddr; 4] = [WEB.into(), WEB6.into(), RESOLVER.into(), RESOLVER6.into()];
    let all: Vec<_> = hosts.chain(own).map(|one| format!("\"{one}\"")).collect();
    all.join(", ")
}

/// The tables that tell each direction its rate.
pub(super) fn sold([forward, back]: [BitRate; 2]) -> String {
    let table =
        |name, rate: BitRate| format!("[link.{name}]\nrate = \"{} bit/s\"\n", rate.as_u64());
    table("forward", forward) + &table("return", back)
}

/// Rates that are told, and not exceeded either: the profile's first window may be more than the link holds.
fn sold_at_most([forward, back]: [BitRate; 2]) -> String {
    let table = |name, rate: BitRate| {
        let rate = rate.as_u64();
        format!("[link.{name}]\nrate = \"{rate} bit/s\"\nmax_rate = \"{rate} bit/s\"\n")
    };
    table("forward", forward) + &table("return", back)
}
