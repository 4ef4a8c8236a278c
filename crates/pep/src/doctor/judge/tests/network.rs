//! Routes, links, chains of other programs, ports and names.

use bentpipe_sys::link::Port;
use bentpipe_sys::nftables::{BaseChain, FORWARD};
use bentpipe_sys::policy_rule::StrayRoute;

use super::*;

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
    let damaged = |facts: &mut Facts| {
        let damage = Some(["enrolled.json is damaged", "put a copy back"].map(str::to_owned));
        let server = ServerFacts { damage, ..server() };
        facts.subjects = vec![subject(SideFacts::Server(server))];
    };
    must_find(damaged, Fail, "clients", &["put a copy back"]);
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
    let silent = |address: &str| {
        let address = address.parse().unwrap();
        move |facts: &mut Facts| facts.network.resolvers = Ok(vec![(address, false)])
    };
    must_find(
        silent("127.0.0.53"),
        Fail,
        "dns",
        &["127.0.0.53", "nobody has UDP port 53"],
    );
    must_find(
        silent("192.0.2.53"),
        Warn,
        "dns",
        &["192.0.2.53, from where no answer", "`servers` in `[dns]`"],
    );
    let unguarded = |facts: &mut Facts| {
        let mut client = client(HandshakeResult::TunnelUp("up".into()));
        client.intercepts = Some(GuardFacts::Off);
        content(facts).side = SideFacts::Client(client);
    };
    let words = ["in clear what it takes in", "restart bentpipe-guard"];
    must_find(unguarded, Warn, "guard", &words);
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
