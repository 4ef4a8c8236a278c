//! Interception as the configuration wants it, and as what the tunnel reaches changes it.

use bentpipe_proto::proxy::associate;
use ipnet::Ipv6Net;

use crate::client::intercept::{
    Action, Device, DnsInterception, Gate, Interception, Other, RouterDns, Rule, TcpIntoDevice,
};
use crate::client::reach::Reach;
use crate::config::{self, ClientDns, FrontEnds, Http3, Intercept, OnFailure, OtherTraffic};

/// Interception as it is configured.
pub(crate) fn interception(config: &FrontEnds, intercept: &Intercept) -> Interception {
    let les = config.les.as_ref();
    Interception {
        interfaces: intercept.interfaces.clone(),
        local: intercept.local,
        bypass: intercept.bypass.clone(),
        other: match intercept.other {
            OtherTraffic::Tunnel => Other::Tunnel,
            OtherTraffic::Drop => Other::Drop,
            OtherTraffic::Direct => Other::Direct,
        },
        reject_http3: intercept.http3 == Http3::Reject,
        gates: gates(config),
        rules: rules(config),
        fail_open: intercept.on_failure == OnFailure::Direct,
        device: Device {
            tcp: TcpIntoDevice {
                destinations: les.map(|les| les.destinations.clone()).unwrap_or_default(),
                leads: true,
            },
            ..Device::default()
        },
        ..Interception::new(intercept.port)
    }
}

/// Interception to begin with, for what the tunnel reaches now.
pub(super) fn at_first(
    config: &FrontEnds,
    intercept: &Intercept,
    dns: Option<&ClientDns>,
    reach: &Reach,
) -> Interception {
    let configured = interception(config, intercept);
    Interception {
        dns: dns.map(lookups),
        device: Device {
            published: reach.published.clone(),
            udp_ports_below: config.socks5.as_ref().map(|_| *associate::PORTS.start()),
            ..configured.device.clone()
        },
        ..configured
    }
}

/// Interception of name lookups as it is configured.
fn lookups(dns: &ClientDns) -> DnsInterception {
    DnsInterception {
        port: dns.port,
        router: match dns.router {
            config::RouterDns::Auto => RouterDns::Auto,
            config::RouterDns::Leave => RouterDns::Leave,
            config::RouterDns::Answer => RouterDns::Answer,
        },
    }
}

/// [`FrontEnds::actions`], for the kernel.
fn rules(config: &FrontEnds) -> Vec<Rule> {
    let rules = config.actions().map(|(_, rule, action)| Rule {
        interfaces: rule.interfaces.clone(),
        sources: rule.sources.clone(),
        destinations: rule.destinations.clone(),
        learned: !rule.domains.is_empty(),
        protocols: rule.numbers(),
        ports: rule.ports.clone(),
        dscp: rule.dscp.iter().map(|dscp| dscp.0).collect(),
        action: match action {
            config::Action::Tunnel => Action::Tunnel,
            config::Action::Direct => Action::Direct,
            config::Action::Block => Action::Block,
        },
    });
    rules.collect()
}

/// Interception of what is `configured` for what the tunnel reaches now; with a gate for IPv6 while that is `doubtful`.
pub(super) fn now(configured: &Interception, reach: &Reach, doubtful: bool) -> Interception {
    let mut now = configured.clone();
    now.families = reach.families;
    now.server.clone_from(&reach.servers);
    now.device.routed.clone_from(&reach.routed);
    now.device.tcp.leads = reach.leads_tcp;
    // Behind what rules say of it.
    now.gates.extend(doubtful.then(|| Gate {
        ports: Vec::new(),
        destinations: vec![Ipv6Net::default().into()],
        shut: true,
    }));
    now
}

/// [`FrontEnds::is_optimistic`], for the kernel.
fn gates(config: &FrontEnds) -> Vec<Gate> {
    let never = Gate {
        ports: FrontEnds::NEVER_OPTIMISTIC.to_vec(),
        destinations: Vec::new(),
        shut: true,
    };
    let configured = config.rules.iter().filter_map(|rule| {
        Some(Gate {
            ports: rule.ports.clone(),
            destinations: rule.destinations.clone(),
            shut: !rule.optimistic?,
        })
    });
    std::iter::once(never).chain(configured).collect()
}
