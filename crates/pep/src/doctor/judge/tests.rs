//! Findings of `bentpipe doctor` from facts that no machine had to have.

use std::path::PathBuf;
use std::time::Duration;

use bentpipe_sys::link::Port;
use bentpipe_sys::nftables::{BaseChain, FORWARD};
use bentpipe_sys::policy_rule::StrayRoute;
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
            resolvers: Ok(vec!["192.0.2.53".parse().unwrap()]),
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
        intercepts: true,
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

fn with_reached(reached: HandshakeResult) -> impl FnOnce(&mut Facts) {
    move |facts| content(facts).side = SideFacts::Client(client(reached))
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
fn the_servers_answer_decides() {
    use Level::Fail;
    must_find(
        with_reached(HandshakeResult::Shaken(TrialOutcome::UnknownClient)),
        Fail,
        "server",
        &["public_key = \"KEY=\"", "SIGHUP"],
    );
    must_find(
        with_reached(HandshakeResult::Shaken(TrialOutcome::WrongServer)),
        Fail,
        "server",
        &["another key", "pubkey"],
    );
    must_find(
        with_reached(HandshakeResult::Silent(Duration::from_secs(8))),
        Fail,
        "server",
        &["within 8 s", "UDP port 4433", "does not run"],
    );
    must_find(
        with_reached(HandshakeResult::TlsAlone(([192, 0, 2, 1], 443).into())),
        Level::Warn,
        "server",
        &["192.0.2.1:443 accepts TCP", "over TLS", "UDP port 4433"],
    );
    must_find(
        with_reached(HandshakeResult::Unsent(
            "what is sent to 192.0.2.1:4433 does not leave this machine: a firewall".into(),
        )),
        Fail,
        "server",
        &["does not leave this machine", "accept UDP to port 4433"],
    );
    must_find(
        with_reached(HandshakeResult::Unreachable("port unreachable".into())),
        Fail,
        "server",
        &["192.0.2.1:4433", "open UDP port 4433"],
    );
    must_find(
        with_reached(HandshakeResult::Shaken(TrialOutcome::ClosedByStranger(
            "go away".into(),
        ))),
        Fail,
        "server",
        &["without having shown", "go away"],
    );
}

#[test]
fn a_client_that_joins_need_not_be_known() {
    let mut facts = healthy();
    content(&mut facts).side = SideFacts::Client(ClientFacts {
        enrols: true,
        ..client(HandshakeResult::Shaken(TrialOutcome::UnknownClient))
    });
    assert!(judge(&facts).iter().all(|one| one.level == Level::Ok));
}

#[test]
fn a_ca_that_answers_for_nobody_is_a_warning() {
    let found = |authority| {
        let mut facts = healthy();
        content(&mut facts).side = SideFacts::Client(ClientFacts {
            authority: Some(authority),
            ..client(HandshakeResult::Shaken(TrialOutcome::UnknownClient))
        });
        let mut findings = judge(&facts);
        findings.retain(|one| one.area == "ca");
        let one = findings.pop().unwrap();
        (one.level, one.to_string())
    };
    let present = |expired, lacking: &[&str]| AuthorityFacts::Present {
        subject: "bentpipe local CA 2026-11-27".into(),
        expires: "2028-11-26".into(),
        expired,
        lacking: lacking.iter().map(ToString::to_string).collect(),
    };
    for (authority, level, word) in [
        (present(false, &[]), Level::Ok, "until 2028-11-26"),
        (present(true, &[]), Level::Warn, "expired"),
        (
            present(false, &["a.example"]),
            Level::Warn,
            "not for a.example",
        ),
        (
            AuthorityFacts::Absent("/s/ca".into()),
            Level::Warn,
            "`bentpipe ca init`",
        ),
        (
            AuthorityFacts::Unfit("no key".into()),
            Level::Warn,
            "no key",
        ),
    ] {
        let (found, text) = found(authority);
        assert!(found == level && text.contains(word), "{text}");
    }
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
fn routes_and_links() {
    use Level::{Fail, Warn};
    let none = |facts: &mut Facts| (facts.network.ipv4, facts.network.ipv6) = (false, false);
    must_find(
        none,
        Warn,
        "routes",
        &["no default route", "ip route add default"],
    );
    let at_server = |facts: &mut Facts| {
        none(facts);
        facts.subjects = vec![subject(SideFacts::Server(server()))];
    };
    must_find(at_server, Fail, "routes", &["no default route"]);
    let shared = |facts: &mut Facts| facts.network.uplinks = vec!["lan0".into()];
    let words = ["past the router", "lan0", "network of its own"];
    must_find(shared, Warn, "interfaces", &words);
    let small = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.servers[0].way.as_mut().unwrap().mtu = Some(1000);
        content(facts).side = SideFacts::Client(client);
    };
    must_find(small, Fail, "mtu", &["1000 bytes", "ip link set eth0 mtu"]);
    // What IPv4 needs is less than what IPv6 does.
    let enough = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.servers[0].way.as_mut().unwrap().mtu = Some(1228);
        content(facts).side = SideFacts::Client(client);
    };
    let mut facts = healthy();
    enough(&mut facts);
    let faults = judge(&facts)
        .into_iter()
        .filter(|one| one.level != Level::Ok);
    assert_eq!(faults.count(), 0);
    let no_way = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.servers[0].way = None;
        content(facts).side = SideFacts::Client(client);
    };
    must_find(no_way, Fail, "server", &["no route to 192.0.2.1"]);
    let two_uplinks = |facts: &mut Facts| {
        facts.network.uplinks.push("eth1".into());
        facts.machine.settings[3].1 = 1;
    };
    must_find(two_uplinks, Warn, "sysctl", &["rp_filter=2"]);
    let inside =
        |facts: &mut Facts| facts.network.tunnels = vec![("eth0".into(), "wireguard".into())];
    let mut facts = healthy();
    inside(&mut facts);
    let faults = judge(&facts);
    // The default route and the way to the server.
    assert_eq!(
        faults
            .iter()
            .filter(|one| one.level == Warn && one.area == "vpn")
            .count(),
        2
    );
}

#[test]
fn interfaces_by_which_connections_are_taken_in_are_looked_at() {
    let taking_in = |intake, setting: &'static str| {
        move |facts: &mut Facts| {
            let intake = Some(intake);
            facts.subjects = vec![subject(SideFacts::Server(ServerFacts {
                intake,
                ..server()
            }))];
            facts.machine.settings.push((setting.into(), 1));
        }
    };
    let missing = IntakeFacts {
        missing: vec!["sat9".into()],
        ..IntakeFacts::default()
    };
    must_find(
        taking_in(missing, "net.ipv4.ip_forward"),
        Level::Warn,
        "interfaces",
        &["sat9"],
    );
    for setting in [
        "net.bridge.bridge-nf-call-iptables",
        "net.bridge.bridge-nf-call-ip6tables",
    ] {
        let bridges = IntakeFacts {
            bridges: vec!["br0".into()],
            ..IntakeFacts::default()
        };
        let named = ["br0", setting];
        must_find(
            taking_in(bridges, setting),
            Level::Warn,
            "interfaces",
            &named,
        );
    }
}

#[test]
fn a_chain_that_drops_is_named_and_no_fault() {
    let chain = BaseChain {
        family: "ip",
        table: "filter".into(),
        name: "FORWARD".into(),
        hook: FORWARD,
        drops: true,
    };
    for (passes, at_server, says) in [
        (false, true, "the server lets its clients' packets pass"),
        (true, true, "and lets bentpipe0 pass"),
        (false, false, "the client lets itself pass"),
    ] {
        let mut facts = healthy();
        facts.network.forward_chains = Some(Ok(vec![(chain.clone(), passes)]));
        if at_server {
            facts.subjects = vec![subject(SideFacts::Server(server()))];
        }
        let found = judge(&facts);
        assert!(found.iter().all(|one| one.level == Level::Ok), "{found:?}");
        assert!(
            found.iter().any(|one| one.text.contains(says)),
            "{says}: {found:?}"
        );
    }
}

#[test]
fn ports_files_and_names() {
    use Level::{Fail, Warn};
    let held = |facts: &mut Facts| {
        let holder = SocketHolder {
            address: "0.0.0.0:4433".parse().unwrap(),
            program: Some("other (pid 7)".into()),
        };
        let mut server = server();
        server.listen[0].state = ListenState::Held(vec![holder]);
        facts.subjects = vec![subject(SideFacts::Server(server))];
    };
    must_find(
        held,
        Fail,
        "listen",
        &["held by other (pid 7) at 0.0.0.0:4433", "`listen`"],
    );
    let loose = |facts: &mut Facts| {
        content(facts).secrets[0].found = Some(Ownership {
            owner: 998,
            mode: 0o640,
        });
    };
    must_find(
        loose,
        Fail,
        "keys",
        &["mode 0640", "chmod 600 /etc/bentpipe/x.key"],
    );
    // The key of a web server's certificate, as certbot and `ssl-cert` leave it.
    let certified = |mode| {
        move |facts: &mut Facts| {
            let secret = &mut content(facts).secrets[0];
            secret.readers = Readers::Group;
            secret.found = Some(Ownership { owner: 0, mode });
        }
    };
    let mut facts = healthy();
    certified(0o640)(&mut facts);
    assert!(judge(&facts).iter().all(|one| one.level == Level::Ok));
    must_find(certified(0o600), Warn, "keys", &["cannot read it"]);
    for mode in [0o644, 0o660] {
        must_find(certified(mode), Fail, "keys", &["chmod 640"]);
    }
    let roots = |facts: &mut Facts| {
        content(facts).secrets[0].found = Some(Ownership {
            owner: 0,
            mode: 0o600,
        });
    };
    must_find(roots, Warn, "keys", &["chown 998 /etc/bentpipe/x.key"]);
    let open = |facts: &mut Facts| {
        let state = content(facts).state_dir.as_mut().unwrap();
        state.found = Some(Ownership {
            owner: 998,
            mode: 0o777,
        });
    };
    must_find(open, Fail, "state", &["chmod 700 /var/lib/bentpipe"]);
    let stub =
        |facts: &mut Facts| facts.network.resolvers = Ok(vec!["127.0.0.53".parse().unwrap()]);
    must_find(stub, Fail, "dns", &["127.0.0.53", "nobody has UDP port 53"]);
    let beside = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.own_names_in_clear = true;
        content(facts).side = SideFacts::Client(client);
        facts.network.port_53 = vec![SocketHolder {
            address: "0.0.0.0:53".parse().unwrap(),
            program: Some("dnsmasq (pid 7)".into()),
        }];
    };
    let words = [
        "dnsmasq (pid 7) at 0.0.0.0:53 leave in clear",
        "server=127.0.0.1#5300",
    ];
    must_find(beside, Warn, "dns", &words);
    must_find(
        |facts| facts.network.resolvers = Ok(Vec::new()),
        Warn,
        "dns",
        &["nameserver ADDRESS"],
    );
    let gone = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.missing = vec!["lan9".into()];
        content(facts).side = SideFacts::Client(client);
    };
    must_find(gone, Fail, "interfaces", &["lan9", "ip link"]);
    let port = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.ports = vec![Port {
            name: "lan0".into(),
            master: "br-lan".into(),
            surfaces: vec!["br-lan".into()],
        }];
        content(facts).side = SideFacts::Client(client);
    };
    let said = ["lan0 is a port of br-lan", "name br-lan in `interfaces`"];
    must_find(port, Fail, "interfaces", &said);
    let stray = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.strays = vec![StrayRoute {
            to: "10.1.0.0/25".parse().unwrap(),
            device: "wan0".into(),
            table: 254,
        }];
        content(facts).side = SideFacts::Client(client);
    };
    let said = ["10.1.0.0/25", "by wan0", "option 121"];
    must_find(stray, Fail, "routes", &said);
    let ahead = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.rules_ahead = vec![["the rule is before ours", "move it"].map(str::to_owned)];
        content(facts).side = SideFacts::Client(client);
    };
    must_find(ahead, Fail, "routes", &["before ours", "move it"]);
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
