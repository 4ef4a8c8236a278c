//! Chains as `nft` lists them, and what is made of them.

mod answers;
mod outward;
mod translated;

use super::super::tests::{client, healthy, server, subject};
use super::*;
use crate::doctor::Level;
use crate::doctor::facts::{HandshakeResult, IntakeFacts, ListenState, ServerFacts};

/// A chain `input` of the table `inet filter` that has this `policy` and these `rules`.
fn chain(policy: &str, rules: &str) -> ListedChain {
    let base = BaseChain {
        family: "inet",
        table: "filter".into(),
        name: "input".into(),
        hook: INPUT,
        drops: policy == "drop",
    };
    let rules = rules.replace('\n', "\n\t\t");
    let listing = format!(
        "table inet filter {{\n\tset open {{\n\t\ttype inet_service\n\t\telements = {{ 22, 80,\n\t\t\t     4433 }}\n\t}}\n\n\
         \tset shut {{\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n\t}}\n\n\
         \tchain wan {{\n\t\tudp dport 4433 accept\n\t}}\n\n\
         \tchain closed {{\n\t\tudp dport 53 return\n\t\tcounter packets 0 bytes 0 reject\n\t}}\n\n\
         \tchain local {{\n\t\tfib daddr type local return\n\t\tdrop\n\t}}\n\n\
         \tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n\t\t{rules}\n\t}}\n}}\n"
    );
    (base, listing)
}

/// Fate of UDP to port 4433 of 192.0.2.1.
fn fate_of(policy: &str, rules: &str) -> Fate {
    fate_by(None, policy, rules)
}

fn fate_by(device: Option<&str>, policy: &str, rules: &str) -> Fate {
    let (chain, listing) = chain(policy, rules);
    let packet = FilteredPacket {
        protocol: ListenProtocol::Udp,
        to: [192, 0, 2, 1].into(),
        port: Some(4433),
        answer_from: None,
        device: device.map(str::to_owned),
        mark: Some(0),
        may_be_translated: false,
        leaves: false,
    };
    fate::at(&chain, &TableListing::read(&listing), &packet)
}

#[test]
fn a_chain_that_accepts_nothing_of_the_port_drops_it() {
    for rules in [
        "",
        "ct state established,related accept\niif \"lo\" accept\ntcp dport 22 accept",
        "ct state vmap { invalid : drop, established : accept, related : accept }\ntcp dport { 22, 4433 } accept",
        "udp dport 53 counter packets 7 bytes 8 accept comment \"udp dport 4433 accept\"",
        "meta l4proto icmp icmp type echo-request limit rate 5/second burst 10 packets accept",
        "icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept",
        "udp dport != 4433 accept",
        "udp dport 1024-4432 accept",
        "udp sport 67 udp dport 68 accept",
        "meta mark 0x10000000/4 accept\nmeta mark & 0xf0000000 == 0x80000000 accept",
        "ip6 saddr fe80::/10 accept\nmeta nfproto ipv6 accept",
        "ip daddr 224.0.0.251 accept\nct status dnat accept",
        "limit rate 3/minute burst 10 packets counter packets 0 bytes 0 log prefix \"[accept] \"",
        "iifname vmap { \"lo\" : accept }",
        "jump local\ngoto closed\naccept",
        "counter packets 0 bytes 0 drop\nudp dport 4433 accept",
    ] {
        assert_eq!(fate_of("drop", rules), Fate::Dropped, "{rules}");
    }
    for rules in [
        "drop",
        "jump closed",
        "reject with icmpx admin-prohibited",
        "log prefix \"x\" level warn drop",
    ] {
        assert_eq!(fate_of("accept", rules), Fate::Dropped, "{rules}");
    }
}

#[test]
fn a_chain_that_accepts_the_port_lets_it_pass() {
    for rules in [
        "udp dport 4433 accept",
        "udp dport { 22, 4000-5000 } ct state new counter packets 1 bytes 2 accept",
        "udp dport @open accept",
        "udp dport vmap { 22 : drop, 4433 : jump wan }",
        "meta l4proto { tcp, udp } th dport 4433 accept",
        "jump local\njump wan",
        "goto wan",
        "ip saddr @shut drop\nudp dport 4433 accept",
        "ip saddr 0.0.0.0/0 accept",
        "ip daddr 192.0.2.0/24 accept",
        "fib daddr type local accept",
    ] {
        assert_eq!(fate_of("drop", rules), Fate::Passes, "{rules}");
    }
    for rules in [
        "",
        "tcp dport 22 drop",
        "ct state invalid drop",
        "iif != \"lo\" ip daddr 127.0.0.0/8 drop",
        "udp dport 4433 limit rate over 1000/second drop",
        "ip saddr @shut drop",
        "fib saddr . iif oif missing drop",
        "meta pkttype { broadcast, multicast } drop",
        "iifname != \"docker0\" udp dport 4433 dnat to 172.17.0.2:4433",
    ] {
        assert_eq!(fate_of("accept", rules), Fate::Passes, "{rules}");
    }
}

#[test]
fn what_hangs_on_the_sender_is_told_with_its_rule() {
    for (rules, rule) in [
        (
            "iifname \"eth0\" udp dport 4433 counter packets 1 bytes 2 accept",
            "iifname \"eth0\" udp dport 4433 accept",
        ),
        (
            "meta l4proto . th dport { tcp . 22, udp . 4433 } accept",
            "meta l4proto . th dport { tcp . 22, udp . 4433 } accept",
        ),
        (
            "udp dport 4433 update @shut { ip saddr limit rate 5/second } accept",
            "udp dport 4433 update @shut { ip saddr limit rate 5/second } accept",
        ),
        ("iifname \"wan*\" jump wan", "udp dport 4433 accept"),
    ] {
        assert_eq!(
            fate_of("drop", rules),
            Fate::Opened(rule.to_owned()),
            "{rules}"
        );
    }
    for rule in [
        "ip saddr 10.0.0.0/8 accept",
        "udp dport @elsewhere accept",
        "xt match \"geoip\" accept",
    ] {
        let rules = format!("tcp dport 22 accept\n{rule}");
        assert_eq!(
            fate_of("drop", &rules),
            Fate::Unclear(rule.to_owned()),
            "{rules}"
        );
    }
    // By one interface it is clear.
    let rules = "iifname vmap { \"lo\" : accept, \"eth0\" : jump closed, \"lan0\" : accept }";
    assert_eq!(fate_by(Some("eth0"), "drop", rules), Fate::Dropped);
    assert_eq!(fate_by(Some("lan0"), "drop", rules), Fate::Passes);
}

/// Findings of the area `firewall` that are not `ok`, at a server with this chain.
fn found(chains: Vec<ListedChain>) -> Vec<Finding> {
    let mut facts = healthy();
    facts.network.inward_chains = Some(Ok(chains));
    let both = ["0.0.0.0:4433", "[::]:4433"].map(|address| ListenFacts {
        protocol: ListenProtocol::Udp,
        address: address.parse().unwrap(),
        state: ListenState::Served,
    });
    let tls = ListenFacts {
        protocol: ListenProtocol::Tcp,
        address: "0.0.0.0:443".parse().unwrap(),
        state: ListenState::Served,
    };
    let inside = ListenFacts {
        address: "127.0.0.1:9".parse().unwrap(),
        ..tls.clone()
    };
    facts.subjects = vec![subject(SideFacts::Server(ServerFacts {
        listen: both.into_iter().chain([tls, inside]).collect(),
        ..server()
    }))];
    let found = judge(&facts).into_iter();
    found.filter(|one| one.area == "firewall").collect()
}

fn levels(found: &[Finding]) -> Vec<Level> {
    found.iter().map(|one| one.level).collect()
}

#[test]
fn each_port_that_is_closed_is_named_once_with_the_rule_that_opens_it() {
    let closed = found(vec![chain("drop", "ct state established accept")]);
    let lines: Vec<_> = closed.iter().map(ToString::to_string).collect();
    let [udp, tcp] = &lines[..] else {
        panic!("{lines:#?}");
    };
    for (line, said, mend) in [
        (
            udp,
            "drops UDP to port 4433 of the server",
            "udp dport 4433",
        ),
        (tcp, "drops TCP to port 443 of the server", "tcp dport 443"),
    ] {
        assert!(line.starts_with("fail") && line.contains(said), "{line}");
        let mend = format!("`nft insert rule inet filter input {mend} accept`");
        assert!(
            line.contains("`inet filter input`") && line.contains(&mend),
            "{line}"
        );
    }
    let open = found(vec![chain(
        "drop",
        "udp dport 4433 accept\ntcp dport 443 accept",
    )]);
    assert!(
        open.len() == 2 && open.iter().all(|one| one.level == Level::Ok),
        "{open:#?}"
    );
}

#[test]
fn a_table_that_is_not_in_force_and_marks_that_are_set_are_heeded() {
    let (base, listing) = chain("drop", "");
    let dormant = listing.replacen("{\n", "{\n\tflags dormant\n", 1);
    let found_of = |listing| found(vec![(base.clone(), listing)]);
    let asleep = found_of(dormant);
    assert_eq!(levels(&asleep), [Level::Ok; 2], "{asleep:#?}");
    let by_mark = listing.replace(
        "policy drop;\n",
        "policy drop;\n\t\tmeta mark 0x00000007 accept\n",
    );
    let set = by_mark.clone()
        + "table inet other {\n\tchain first {\n\t\tudp dport 4433 meta mark set 0x00000007\n\t}\n}\n";
    for (listing, level) in [(by_mark, Level::Fail), (set, Level::Warn)] {
        let marked = found_of(listing);
        assert_eq!(levels(&marked), [level; 2], "{marked:#?}");
    }
}

#[test]
fn what_comes_in_by_the_uplink_alone_is_a_warning() {
    for (policy, rules) in [
        ("drop", "iifname \"lan0\" accept"),
        ("accept", "iifname \"eth0\" jump closed"),
    ] {
        let warned = found(vec![chain(policy, rules)]);
        let by_uplink =
            |one: &Finding| one.level == Level::Warn && one.text.ends_with("comes in by eth0");
        assert!(
            warned.len() == 2 && warned.iter().all(by_uplink),
            "{warned:#?}"
        );
    }
    let by_sender = found(vec![chain("drop", "ip saddr 10.0.0.0/8 accept")]);
    let unclear = |one: &Finding| {
        one.level == Level::Warn && one.text.contains("unless `ip saddr 10.0.0.0/8 accept`")
    };
    assert!(by_sender.iter().any(unclear), "{by_sender:#?}");
    let by_uplink = found(vec![chain("drop", "iifname \"eth0\" accept")]);
    assert_eq!(levels(&by_uplink), [Level::Ok; 2], "{by_uplink:#?}");
}

#[test]
fn a_port_that_is_closed_for_one_family_is_not_called_open_for_the_other() {
    let (mut base, listing) = chain("drop", "");
    base.family = "ip";
    let closed = found(vec![(base, listing)]);
    let udp: Vec<_> = closed
        .iter()
        .filter(|one| one.text.contains("UDP"))
        .collect();
    assert!(udp.len() == 1 && udp[0].level == Level::Fail, "{closed:#?}");
}

/// As firewalld 1.3 lists itself, with one zone for all.
#[test]
fn the_zones_of_firewalld_are_followed() {
    let listing = |ports: &str| {
        format!(
            "table inet firewalld {{\n\
             \tchain filter_INPUT {{\n\t\ttype filter hook input priority filter + 10; policy accept;\n\
             \t\tct state {{ established, related }} accept\n\t\tct status dnat accept\n\t\tiifname \"lo\" accept\n\
             \t\tct state invalid drop\n\t\tjump filter_INPUT_ZONES\n\t\treject with icmpx admin-prohibited\n\t}}\n\n\
             \tchain filter_INPUT_ZONES {{\n\t\tiifname \"eth0\" goto filter_IN_public\n\t\tgoto filter_IN_public\n\t}}\n\n\
             \tchain filter_IN_public {{\n\t\tjump filter_IN_public_deny\n\t\tjump filter_IN_public_allow\n\
             \t\tmeta l4proto {{ icmp, ipv6-icmp }} accept\n\t\treject with icmpx admin-prohibited\n\t}}\n\n\
             \tchain filter_IN_public_deny {{\n\t}}\n\n\
             \tchain filter_IN_public_allow {{\n\t\ttcp dport 22 accept\n\
             \t\tip6 daddr fe80::/64 udp dport 546 accept\n{ports}\t}}\n}}\n"
        )
    };
    let base = BaseChain {
        family: "inet",
        table: "firewalld".into(),
        name: "filter_INPUT".into(),
        hook: INPUT,
        drops: false,
    };
    let both = "\t\tudp dport 4433 accept\n\t\ttcp dport 443 accept\n";
    let translated =
        "\t\ticmp type redirect accept\n\t}\n\tchain nat {\n\t\tudp dport 443 redirect to :4433\n";
    for (ports, level) in [
        ("", Level::Fail),
        (both, Level::Ok),
        // What was sent to another port is let in.
        (translated, Level::Warn),
    ] {
        let found = found(vec![(base.clone(), listing(ports))]);
        assert!(
            found.len() == 2 && found.iter().all(|one| one.level == level),
            "{found:#?}"
        );
    }
}

#[test]
fn the_mend_is_in_the_words_of_the_firewall() {
    for (table, words, mend) in [
        (
            "firewalld",
            "",
            "firewall-cmd --permanent --add-port=4433/udp",
        ),
        ("fw4", "", "/etc/config/firewall"),
        (
            "filter",
            "chain ufw-user-input {\n}\n",
            "`ufw allow 4433/udp`",
        ),
    ] {
        let (mut base, listing) = chain("drop", "");
        base.table = table.into();
        let closed = found(vec![(base, listing + words)]);
        let one = closed[0].to_string();
        assert!(one.contains(mend), "{one}");
    }
}

/// What a daemon takes in on its way is delivered to this machine, and so crosses the same chains.
#[test]
fn a_chain_at_which_ends_what_is_taken_in_is_a_fault_there_alone() {
    let at_client = || {
        subject(SideFacts::Client(client(HandshakeResult::TunnelUp(
            "up".into(),
        ))))
    };
    let at_server = |intake| {
        let intake = Some(IntakeFacts::default()).filter(|_| intake);
        let server = ServerFacts { intake, ..server() };
        subject(SideFacts::Server(server))
    };
    let port = "udp dport 4433 accept\ntcp dport 22 accept";
    let accepting = |mark: &str| {
        format!("{port}\nmeta mark & 0xf0000000 == {mark} counter packets 0 bytes 0 accept")
    };
    let (of_client, of_server) = (accepting("0x10000000"), accepting("0x80000000"));
    for (rules, examined, warns) in [
        (port, at_client(), true),
        (&of_client, at_client(), false),
        (
            &of_client.replace("& 0xf0000000 == 0x10000000", "0x10000000/4"),
            at_client(),
            false,
        ),
        (&of_server, at_client(), true),
        ("iifname { \"lo\", \"lan0\" } accept", at_client(), false),
        (port, at_server(false), false),
        (&of_client, at_server(true), true),
        (&of_server, at_server(true), false),
    ] {
        let mut facts = healthy();
        facts.network.inward_chains = Some(Ok(vec![chain("drop", rules)]));
        facts.subjects = vec![examined];
        let found = judge(&facts);
        let named =
            |one: &Finding| one.level == Level::Warn && one.text.contains("inet filter input");
        assert_eq!(found.iter().any(named), warns, "{rules}: {found:?}");
    }
}
