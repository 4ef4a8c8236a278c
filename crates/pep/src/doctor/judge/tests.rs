//! Findings of `bentpipe doctor` from facts that no machine had to have.

mod far;
mod network;

use std::path::PathBuf;
use std::time::Duration;

use bentpipe_tunnel::engine::TrialOutcome;

use super::*;
use crate::doctor::facts::*;
use crate::keys::Readers;

/// A machine on which all is well, with a client in order.
pub(super) fn healthy() -> Facts {
    Facts {
        machine: Machine {
            release: "6.12.5".into(),
            net_admin: true,
            root: true,
            programs: vec![
                ("nft", Ok("nftables v1.1".into())),
                ("ip", Ok("ip utility".into())),
            ],
            client_table: Some(Ok(())),
            server_table: Some(Ok(())),
            transparent_socket: Some(Ok(())),
            owned_tables: Some(Ok(true)),
            tun: Ok(()),
            year: 2026,
            built: Some(2026),
            synchronised: Ok(true),
            time_service: TimeService::Switched,
            open_files: 1 << 20,
            settings: vec![
                ("net.core.rmem_max".into(), 8 << 20),
                ("net.core.wmem_max".into(), 8 << 20),
                ("net.ipv4.ip_forward".into(), 0),
                ("net.ipv4.conf.all.rp_filter".into(), 0),
            ],
        },
        network: NetworkFacts {
            ipv4: true,
            ipv6: true,
            uplinks: vec!["eth0".into()],
            tunnels: Vec::new(),
            firewalls: Some(Ok(Vec::new())),
            forward_chains: Some(Ok(Vec::new())),
            inward_chains: Some(Ok(Vec::new())),
            outward_chains: Some(Ok(Vec::new())),
            legacy_tables: false,
            resolvers: Ok(vec![("192.0.2.53".parse().unwrap(), true)]),
            port_53: Vec::new(),
        },
        subjects: vec![subject(SideFacts::Client(client(HandshakeResult::Shaken(
            TrialOutcome::Known {
                rtt: Duration::from_millis(600),
            },
        ))))],
    }
}

pub(super) fn subject(side: SideFacts) -> Examined {
    let owned = |path: &str| Owned {
        path: path.into(),
        found: Some(Ownership {
            owner: 998,
            mode: 0o600,
        }),
        daemon_user: Some(998),
        readers: Readers::Owner,
    };
    let role = match side {
        SideFacts::Client(_) => Role::Client,
        SideFacts::Server(_) => Role::Server,
        SideFacts::Pep(_) => Role::Pep,
        SideFacts::Origin(_) => Role::Origin,
    };
    Examined {
        file: PathBuf::from("/etc/bentpipe/x.toml"),
        content: Ok(Content {
            role,
            plain: false,
            daemon: Daemon::Healthy("tunnel ready".into()),
            secrets: vec![owned("/etc/bentpipe/x.key")],
            state_dir: Some(owned("/var/lib/bentpipe")),
            side,
        }),
    }
}

pub(super) fn client(reached: HandshakeResult) -> ClientFacts {
    ClientFacts {
        servers: vec![FarFacts {
            name: "192.0.2.1:4433".into(),
            addresses: Ok(vec!["192.0.2.1:4433".parse().unwrap()]),
            way: Some(WayThere {
                to: "192.0.2.1:4433".parse().unwrap(),
                device: Some("eth0".into()),
                mtu: Some(1500),
                reached,
            }),
            tls: Vec::new(),
        }],
        intercepts: Some(GuardFacts::On),
        own_names_in_clear: false,
        needs_device: true,
        local: true,
        interfaces: vec!["lan0".into()],
        missing: Vec::new(),
        ports: Vec::new(),
        strays: Vec::new(),
        rules_ahead: Vec::new(),
        forwards: None,
        enrols: false,
        public_key: Some("KEY=".into()),
        packets_limited: None,
        authority: None,
    }
}

pub(super) fn server() -> ServerFacts {
    ServerFacts {
        listen: vec![ListenFacts {
            protocol: ListenProtocol::Udp,
            address: "192.0.2.1:4433".parse().unwrap(),
            state: ListenState::Served,
        }],
        packets: true,
        packets_limited: None,
        clients: 1,
        damage: None,
        intake: None,
    }
}

fn content(facts: &mut Facts) -> &mut Content {
    facts.subjects[0].content.as_mut().unwrap()
}

/// The healthy machine after `change` has exactly one finding that is not `ok`: of this level, area and words, with a mend.
fn must_find(change: impl FnOnce(&mut Facts), level: Level, area: &str, words: &[&str]) {
    let mut facts = healthy();
    change(&mut facts);
    let findings = judge(&facts);
    let faults: Vec<_> = findings
        .iter()
        .filter(|one| one.level != Level::Ok)
        .collect();
    let [fault] = faults[..] else {
        panic!("not one fault: {faults:#?}");
    };
    assert_eq!((fault.level, fault.area), (level, area), "{fault}");
    let line = fault.to_string();
    assert!(fault.mend.is_some(), "no mend: {line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    for word in words {
        assert!(line.contains(word), "no `{word}`: {line}");
    }
}

#[test]
fn nothing_is_said_against_a_healthy_machine() {
    let mut facts = healthy();
    facts.subjects.push(subject(SideFacts::Server(server())));
    let findings = judge(&facts);
    let faults: Vec<_> = findings
        .iter()
        .filter(|one| one.level != Level::Ok)
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(
        findings
            .iter()
            .all(|one| one.to_string().lines().count() == 1)
    );
}

#[test]
fn what_the_machine_lacks_fails_where_it_is_needed() {
    use Level::{Fail, Warn};
    let no_expression = |facts: &mut Facts| {
        facts.machine.client_table = Some(Err("No such file: tproxy".into()));
    };
    must_find(no_expression, Fail, "nftables", &["tproxy", "modprobe"]);
    let unneeded = |facts: &mut Facts| {
        no_expression(facts);
        facts.subjects.clear();
    };
    must_find(unneeded, Warn, "nftables", &["modprobe"]);
    must_find(
        |facts| facts.machine.owned_tables = Some(Ok(false)),
        Warn,
        "owned tables",
        &["6.9"],
    );
    must_find(
        |facts| facts.machine.tun = Err("No such file".into()),
        Fail,
        "tun",
        &["modprobe tun"],
    );
    must_find(
        |facts| facts.machine.year = 1970,
        Fail,
        "clock",
        &["1970", "timedatectl"],
    );
    must_find(
        |facts| facts.machine.synchronised = Ok(false),
        Warn,
        "clock",
        &["set-ntp"],
    );
    for (service, mend) in [
        (TimeService::Other("chronyd"), "start `chronyd`"),
        (
            TimeService::Absent,
            "install `systemd-timesyncd` or `chrony`",
        ),
    ] {
        let unkept = |facts: &mut Facts| {
            facts.machine.synchronised = Ok(false);
            facts.machine.time_service = service;
        };
        must_find(unkept, Warn, "clock", &[mend]);
    }
    must_find(
        |facts| facts.machine.open_files = 1024,
        Warn,
        "open files",
        &["512 connections", "LimitNOFILE"],
    );
    must_find(
        |facts| facts.machine.settings[0].1 = 212_992,
        Warn,
        "sysctl",
        &["net.core.rmem_max = 8388608", "60-bentpipe.conf"],
    );
    must_find(
        |facts| facts.machine.release = "4.19.0-2".into(),
        Warn,
        "kernel",
        &["5.10"],
    );
}

#[test]
fn daemons_and_files_at_fault() {
    must_find(
        |facts| content(facts).daemon = Daemon::Absent,
        Level::Warn,
        "daemon",
        &["systemctl start bentpipe-client"],
    );
    must_find(
        |facts| content(facts).daemon = Daemon::Unhealthy("silent".into()),
        Level::Fail,
        "daemon",
        &["silent"],
    );
    let mut facts = healthy();
    facts.subjects[0].content = Err(ConfigFault::Wrong("client.toml:3: unknown key".into()));
    let findings = judge(&facts);
    let fault = findings
        .iter()
        .find(|one| one.level == Level::Fail)
        .unwrap();
    assert_eq!(fault.area, "configuration");
    must_find(
        |facts| facts.subjects[0].content = Err(ConfigFault::Forbidden),
        Level::Warn,
        "configuration",
        &["x.toml", "may not read", "as root"],
    );
}

/// Everybody may ask; what is hidden from them is said once.
#[test]
fn without_privileges_it_says_what_was_not_seen() {
    let nobody = |facts: &mut Facts| {
        let machine = &mut facts.machine;
        machine.net_admin = false;
        machine.root = false;
        (machine.client_table, machine.server_table) = (None, None);
        (machine.transparent_socket, machine.owned_tables) = (None, None);
        (facts.network.firewalls, facts.network.forward_chains) = (None, None);
    };
    must_find(
        nobody,
        Level::Warn,
        "privileges",
        &["nftables", "TPROXY", "firewalls", "as root"],
    );
}
