//! The client's tables and the guard's for a handful of configurations, each compared with a file.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_proto::tunnel::Families;
use bentpipe_sys::nft::Table;

use super::gate::Gate;
use super::kept::{self, Count, Kept, LearnedAddress};
use super::lan::Lan;
use super::policy::{Action, Rule};
use super::{
    Carrying, Device, DnsInterception, Interception, Other, RouterDns, TcpIntoDevice, guard,
    ruleset,
};
use crate::firewall::snapshot::compare;
use crate::firewall::{CLIENT_TABLE, GUARD_TABLE, Settings};

fn nets<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A LAN with TCP taken in, everything else dropped.
fn lan() -> Interception {
    Interception {
        interfaces: vec!["lan0".into(), "lan1".into()],
        server: nets(&["198.51.100.1", "2001:db8:5::1"]),
        gates: vec![
            Gate {
                ports: vec![25, 179],
                destinations: Vec::new(),
                shut: true,
            },
            Gate {
                ports: Vec::new(),
                destinations: nets(&["192.0.2.0/24", "2001:db8::/32"]),
                shut: false,
            },
        ],
        ..Interception::new(4480)
    }
}

/// As [`lan`], with everything else in the tunnel.
fn packets() -> Interception {
    Interception {
        other: Other::Tunnel,
        ..lan()
    }
}

/// As [`packets`], for this machine's own traffic too.
fn local() -> Interception {
    Interception {
        local: true,
        dns: Some(DnsInterception::at(4453)),
        ..packets()
    }
}

fn rules() -> Vec<Rule> {
    vec![
        Rule {
            sources: nets(&["10.1.0.0/25", "fd00:1::/64"]),
            destinations: nets(&["203.0.113.0/24", "203.0.113.128/25", "2001:db8:7::/48"]),
            ..Rule::for_all(Action::Direct)
        },
        Rule {
            learned: true,
            protocols: vec![6, 17],
            ports: vec![443, 8443],
            ..Rule::for_all(Action::Block)
        },
        Rule {
            interfaces: vec!["lan1".into()],
            dscp: vec![46, 34],
            ..Rule::for_all(Action::Tunnel)
        },
        Rule {
            ports: vec![123],
            ..Rule::for_all(Action::Direct)
        },
        Rule {
            learned: true,
            destinations: nets(&["192.0.2.7/32"]),
            ..Rule::for_all(Action::Direct)
        },
    ]
}

fn kept() -> Kept {
    let learned = ["192.0.2.9", "192.0.2.10", "2001:db8::9"].map(|address| LearnedAddress {
        rule: 1,
        address: address.parse().unwrap(),
        time: Duration::from_secs(60),
    });
    Kept {
        counts: vec![Count {
            packets: 3,
            bytes: 180,
        }],
        learned: learned.into(),
    }
}

fn clients() -> Vec<(&'static str, Interception)> {
    let with_rules = Interception {
        rules: rules(),
        ..local()
    };
    let open = Interception {
        fail_open: true,
        ..local()
    };
    let tcp = TcpIntoDevice {
        destinations: nets(&["192.0.2.0/24", "192.0.2.128/25", "2001:db8::/32"]),
        leads: true,
    };
    let les = Interception {
        local: true,
        device: Device {
            tcp: tcp.clone(),
            ..Device::default()
        },
        ..lan()
    };
    let les_lacking = Interception {
        device: Device {
            tcp: TcpIntoDevice {
                leads: false,
                ..tcp
            },
            ..Device::default()
        },
        ..lan()
    };
    vec![
        ("lan", lan()),
        ("les", les),
        ("les-lacking", les_lacking),
        (
            "lan-direct",
            Interception {
                other: Other::Direct,
                dns: Some(DnsInterception {
                    port: 4453,
                    router: RouterDns::Leave,
                }),
                bypass: nets(&["10.1.0.1/32", "198.51.100.7/24", "fd00:1::1/128"]),
                reject_http3: true,
                ..lan()
            },
        ),
        ("packets", packets()),
        (
            "packets-dns",
            Interception {
                dns: Some(DnsInterception {
                    port: 4453,
                    router: RouterDns::Answer,
                }),
                reject_http3: true,
                ..packets()
            },
        ),
        (
            "packets-ipv4-alone",
            Interception {
                families: Families {
                    ipv4: true,
                    ipv6: false,
                },
                ..packets()
            },
        ),
        (
            "published",
            Interception {
                device: Device {
                    published: vec![
                        (5060, ([10, 1, 0, 20], 5061).into()),
                        (5060, ([0xfd00, 0, 0, 0, 0, 0, 0, 1], 5062).into()),
                    ],
                    udp_ports_below: Some(64_512),
                    ..Device::default()
                },
                ..packets()
            },
        ),
        (
            "routed",
            Interception {
                device: Device {
                    routed: nets(&["10.1.0.1/24", "10.1.0.128/25", "fd00:1::/64"]),
                    ..Device::default()
                },
                ..packets()
            },
        ),
        ("rules", with_rules),
        ("local", local()),
        (
            "local-alone",
            Interception {
                interfaces: Vec::new(),
                local: true,
                ..Interception::new(4480)
            },
        ),
        (
            "fail-open-silent",
            Interception {
                carrying: Carrying::No,
                ..open.clone()
            },
        ),
        ("fail-open", open),
    ]
}

fn guards() -> Vec<(&'static str, Interception)> {
    vec![
        ("guard", packets()),
        (
            "guard-local",
            Interception {
                other: Other::Direct,
                bypass: nets(&["198.51.100.7/24"]),
                ..local()
            },
        ),
        (
            "guard-rules",
            Interception {
                rules: rules(),
                ..lan()
            },
        ),
    ]
}

#[test]
fn tables_are_those_of_the_snapshots() {
    let own: Vec<IpAddr> = nets(&["10.1.0.1", "fd00:1::1", "192.168.9.1"]);
    let prefixes = nets(&["10.1.0.0/24", "fd00:1::/64", "192.168.9.0/24"]);
    let inbound = [
        ("198.51.100.7:50000".parse().unwrap(), 22),
        ("[2001:db8::2]:1024".parse().unwrap(), 22),
    ];
    let lan = Lan::sample(&prefixes, &own, &[3, 4]);
    let settings = Settings::sample();
    let clients = clients().into_iter().map(|(name, it)| {
        let body = ruleset::body(&it, &lan, &inbound, &kept());
        let body = format!("{}{body}", settings.sets());
        (name, Table::new(CLIENT_TABLE).replacement(&body))
    });
    let guards = guards().into_iter().map(|(name, it)| {
        let body = format!("{}{}", settings.set_of_marks(), guard::body(&it, &[]));
        let ports = Table::of_bridges(GUARD_TABLE).replacement(&guard::ports(&it));
        (name, Table::new(GUARD_TABLE).replacement(&body) + &ports)
    });
    let all: Vec<_> = clients.chain(guards).collect();
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/client/intercept/snapshots"
    );
    compare(directory, &all);
}

#[test]
fn what_is_learned_replaces_what_was_known() {
    let lines = kept::teaching(CLIENT_TABLE, &kept().learned[..1]);
    assert_eq!(
        lines,
        "add element inet bentpipe_client learned1_4 { 192.0.2.9 timeout 60s }\n\
         delete element inet bentpipe_client learned1_4 { 192.0.2.9 }\n\
         add element inet bentpipe_client learned1_4 { 192.0.2.9 timeout 60s }\n"
    );
}
