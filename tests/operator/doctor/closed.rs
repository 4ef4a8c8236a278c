//! Ports that firewalls close, and that other programs have, are named with who does.

use super::*;

/// The chain is judged by its rules, as a stranger's datagram is by the kernel; the rule that is named opens it.
#[test]
fn a_firewall_of_the_servers_own_machine_is_named_with_the_rule_that_opens_it() {
    if !privileged("doctor: the server's firewall") {
        return;
    }
    let mut pair = Pair::new();
    pair.start("server");
    let closed = "add table inet filter; add chain inet filter input { type filter hook input priority 0; policy drop; }; \
                  add rule inet filter input iif lo accept; add rule inet filter input ct state established,related accept; \
                  add rule inet filter input tcp dport 22 accept";
    pair.gateway.run("nft", &[closed]).expect("nft");
    let server = pair.examine("server");
    server.must_fail_only(&["firewall"]);
    let words = "chain `inet filter input` drops UDP to port 4433 of the server";
    server.must_say("fail", "firewall", &[words]);
    let silent = pair.examine("client");
    silent.must_say("fail", "server", &["nothing came back"]);
    let rule = server
        .text
        .split_once("`nft ")
        .and_then(|(_, rest)| rest.split_once('`'));
    let (rule, _) = rule.unwrap_or_else(|| panic!("no command: {}", server.text));
    pair.gateway.run("nft", &[rule]).expect("the mend");
    let open = pair.examine("server");
    open.must_fail_only(&[]);
    let words = "UDP port 4433: no chain of another program closes it";
    open.must_say("ok", "firewall", &[words]);
    pair.examine("client")
        .must_say("ok", "server", &["knows this client's key"]);
}

#[test]
fn a_firewall_of_the_clients_own_machine_is_named_with_the_rule_that_drops() {
    if !privileged("doctor: the client's firewall") {
        return;
    }
    let mut pair = Pair::new();
    pair.start("server");
    let closed = "add table inet filter; add chain inet filter output { type filter hook output priority 0; }; \
                  add rule inet filter output udp dport 4433 drop";
    pair.terminal.run("nft", &[closed]).expect("nft");
    let client = pair.examine("client");
    let fault = "what is sent to 192.0.2.1:4433 does not leave this machine: a firewall of this machine drops it";
    client.must_say("fail", "server", &[fault]);
    let rule = "chain `inet filter output` of this machine drops UDP to 192.0.2.1:4433 by `udp dport 4433 drop`";
    client.must_say("fail", "firewall", &[rule]);
    let mend = client
        .text
        .split_once("`nft insert")
        .and_then(|(_, rest)| rest.split_once('`'));
    let (mend, _) = mend.unwrap_or_else(|| panic!("no command: {}", client.text));
    pair.terminal
        .run("nft", &[&format!("insert{mend}")])
        .expect("the mend");
    let client = pair.examine("client");
    client.must_fail_only(&[]);
    client.must_say("ok", "server", &["knows this client's key"]);
}

/// A container that publishes the server's port takes what comes to it; the responder's port is one that others come to, too.
#[test]
fn ports_that_others_take_or_close_are_named_at_the_server() {
    if !privileged("doctor: the server's ports") {
        return;
    }
    let mut pair = Pair::new();
    let responder = "[responder]\nlisten = \"192.0.2.1:8081\"\n[[client]]";
    pair.home.edit("server.toml", "[[client]]", responder);
    pair.start("server");
    let server = pair.examine("server");
    server.must_fail_only(&[]);
    server.must_say(
        "ok",
        "listen",
        &["192.0.2.1:8081", "the running server has it"],
    );
    let docker = "add table ip nat; add chain ip nat DOCKER; \
                  add chain ip nat PREROUTING { type nat hook prerouting priority -100; }; \
                  add rule ip nat PREROUTING fib daddr type local counter jump DOCKER; \
                  add rule ip nat DOCKER iifname docker0 counter return; \
                  add rule ip nat DOCKER iifname != docker0 udp dport 4433 counter dnat to 172.17.0.2:4433";
    pair.gateway.run("nft", &[docker]).expect("nft");
    let closed = "add table inet filter; add chain inet filter input { type filter hook input priority 0; policy drop; }; \
                  add rule inet filter input udp dport 4433 accept";
    pair.gateway.run("nft", &[closed]).expect("nft");
    let server = pair.examine("server");
    server.must_fail_only(&["firewall"]);
    let away = "chain `ip nat PREROUTING` leads UDP to port 4433 of the server away by `iifname != \"docker0\" udp dport 4433 dnat to 172.17.0.2:4433`";
    server.must_say("fail", "firewall", &[away, "publish another port"]);
    let closed = "chain `inet filter input` drops TCP to port 8081 of the server";
    server.must_say("fail", "firewall", &[closed]);
}

#[test]
fn a_chain_that_drops_what_is_forwarded_is_found_and_whether_it_lets_the_device_pass() {
    if !privileged("doctor") {
        return;
    }
    let pair = Pair::new();
    let firewall = "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }";
    pair.gateway.run("nft", &[firewall]).expect("nft");
    let dropped = pair.examine("server");
    dropped.must_fail_only(&[]);
    dropped.must_say(
        "ok",
        "firewall",
        &[
            "ip filter FORWARD",
            "the server lets its clients' packets pass",
        ],
    );
    for direction in ["iifname", "oifname"] {
        let rule = format!("insert rule ip filter FORWARD {direction} bentpipe0 accept");
        pair.gateway.run("nft", &[rule]).expect("nft");
    }
    let mended = pair.examine("server");
    mended.must_fail_only(&[]);
    mended.must_say("ok", "firewall", &["lets bentpipe0 pass"]);
}

#[test]
fn a_port_that_another_has_is_named_with_its_program() {
    if !privileged("doctor") {
        return;
    }
    let pair = Pair::new();
    let taken = pair
        .gateway
        .enter(|| std::net::UdpSocket::bind("0.0.0.0:4433"));
    let _taken = taken.expect("a namespace").expect("a port");
    let held = pair.examine("server");
    held.must_fail_only(&["listen"]);
    let ours = format!("(pid {})", std::process::id());
    held.must_say(
        "fail",
        "listen",
        &["192.0.2.1:4433: held by", &ours, "`listen`"],
    );
}
