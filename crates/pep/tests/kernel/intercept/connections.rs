//! TCP: to the listener, refused, or held; and the table, which comes and goes whole.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use bentpipe_pep::client::intercept::{Gate, Interception, KernelAnswer, Other};
use bentpipe_sys::hold::HOLD_TABLE;
use bentpipe_sys::nft::Table;
use bentpipe_testbed::privileged;

use super::inside::Inside;
use super::net::{Echo, Net, OTHERS, V4, V6, connect, connect_within, exchange, send_other};

const PORT: u16 = 15_080;

fn interception() -> Interception {
    let mut interception = Interception::new(PORT);
    interception.interfaces = vec!["lan0".into()];
    interception
}

#[test]
fn lan_connections_reach_the_listener_with_their_destination() {
    if !privileged("lan_connections_reach_the_listener_with_their_destination") {
        return;
    }
    let net = Net::new();
    let it = interception();
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let _installed = Inside::install(&net.router, &it);
    for to in [V4, V6] {
        assert_eq!(exchange(&net.lan, to), format!("{to} ping"));
    }
    assert_eq!(net.leaked(), 0);
    // The listener's own port is no open proxy.
    let error = connect(&net.lan, &format!("10.1.0.1:{PORT}")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    // The router itself, and LAN prefixes, are not intercepted.
    let own = net
        .router
        .enter(|| TcpListener::bind("10.2.0.1:22").unwrap())
        .unwrap();
    connect(&net.lan, "10.2.0.1:22").unwrap();
    drop(own);
}

#[test]
fn without_a_listener_nothing_leaves() {
    if !privileged("without_a_listener_nothing_leaves") {
        return;
    }
    let net = Net::new();
    // First the control (TCP's is in `Net::new`): without interception all of it is seen.
    send_other(&net.lan);
    send_other(&net.router);
    let before = net.leaked();
    assert_eq!(before, 2 * OTHERS, "the counter works");

    let mut it = interception();
    it.local = true;
    let echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let _installed = Inside::install(&net.router, &it);
    exchange(&net.lan, V4);
    drop(echo);
    for from in [&net.lan, &net.router] {
        for to in [V4, V6] {
            let error = connect(from, to).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{to}: {error}");
        }
        send_other(from);
    }
    assert_eq!(net.leaked(), before);

    // Nor when somebody flushes the policy rules: that of the LAN, and that of this machine.
    for _ in 0..2 {
        net.router
            .run("ip", &["rule", "del", "priority", "99"])
            .unwrap();
    }
    for from in [&net.lan, &net.router] {
        connect(from, V4).unwrap_err();
    }
    assert_eq!(net.leaked(), before);
}

#[test]
fn the_machines_own_connections_are_intercepted() {
    if !privileged("the_machines_own_connections_are_intercepted") {
        return;
    }
    let net = Net::new();
    let mut it = interception();
    it.local = true;
    it.bypass = vec![
        "198.51.100.0/24".parse().unwrap(),
        "2001:db8:9::/48".parse().unwrap(),
    ];
    // An ssh session into the router, from before: conntrack has not seen its beginning.
    let ssh = net
        .router
        .enter(|| TcpListener::bind("10.2.0.1:22").unwrap())
        .unwrap();
    let mut outside = connect(&net.uplink, "10.2.0.1:22").unwrap();
    let mut session = ssh.accept().unwrap().0;

    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let _installed = Inside::install(&net.router, &it);
    let before = net.leaked();
    for to in [V4, V6] {
        assert_eq!(exchange(&net.router, to), format!("{to} ping"));
        assert_eq!(exchange(&net.lan, to), format!("{to} ping"));
    }
    assert_eq!(net.leaked(), before);

    // Old and new connections to the machine work, whoever speaks first.
    for _ in 0..2 {
        use std::io::{Read as _, Write as _};
        session.write_all(b"$").unwrap();
        outside
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        outside.read_exact(&mut [0]).unwrap();
        outside = connect(&net.uplink, "10.2.0.1:22").unwrap();
        session = ssh.accept().unwrap().0;
    }
    // Exempt destinations and our own mark go out.
    let _open = net
        .uplink
        .enter(|| TcpListener::bind("198.51.100.1:80").unwrap())
        .unwrap();
    let _open6 = net
        .uplink
        .enter(|| TcpListener::bind("[2001:db8:9::1]:80").unwrap())
        .unwrap();
    for from in [&net.lan, &net.router] {
        connect(from, "198.51.100.1:80").unwrap();
        connect(from, "[2001:db8:9::1]:80").unwrap();
    }
    let tunnel = net
        .router
        .enter(|| UdpSocket::bind("0.0.0.0:0").unwrap())
        .unwrap();
    bentpipe_sys::socket::set_mark(&tunnel, it.routing.own_mark()).unwrap();
    let before = net.leaked();
    tunnel.send_to(b"quic", "192.0.2.1:4433").unwrap();
    assert_eq!(net.leaked(), before + 1);
}

#[test]
fn refused_destinations_are_refused_by_the_kernel() {
    if !privileged("refused_destinations_are_refused_by_the_kernel") {
        return;
    }
    let net = Net::new();
    let mut it = interception();
    it.local = true;
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    for to in [V4, V6] {
        installed.refuse(to, KernelAnswer::Reset);
        installed.refuse(to, KernelAnswer::Reset);
        installed.refuse(&to.replace(":80", ":81"), KernelAnswer::HostUnreachable);
    }
    for from in [&net.lan, &net.router] {
        for to in [V4, V6] {
            let error = timed(|| connect(from, to)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{to}");
            // Here all of the network is one machine, and the answer may arrive while `connect` still
            // holds the socket's lock, which costs a SYN its ICMP error: the second SYN gets it.
            let (to, time) = (to.replace(":80", ":81"), Duration::from_secs(5));
            let error = connect_within(from, &to, time).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::HostUnreachable, "{to}");
            let to = to.replace(":81", ":82");
            assert_eq!(exchange(from, &to), format!("{to} ping"));
        }
    }
    // A family that the far side lacks is refused at once, the other is untouched.
    it.families.ipv6 = false;
    installed.at(|ours| ours.update(&it)).unwrap();
    for from in [&net.lan, &net.router] {
        let error = timed(|| connect(from, V6)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        exchange(from, V4);
    }
}

#[test]
fn gates_change_and_what_was_refused_stays_so() {
    if !privileged("gates_change_and_what_was_refused_stays_so") {
        return;
    }
    let net = Net::new();
    let mut it = interception();
    let _echo = Echo::start(&net.router, PORT, it.routing.own_mark());
    let mut installed = Inside::install(&net.router, &it);
    installed.refuse(V6, KernelAnswer::Reset);
    let (gated, open) = (V6.replace(":80", ":81"), V6.replace(":80", ":82"));
    let gate = Gate {
        ports: vec![81],
        destinations: vec!["::/0".parse().unwrap()],
        shut: true,
    };
    for gates in [vec![gate.clone()], Vec::new()] {
        let shut = !gates.is_empty();
        it.gates = gates;
        installed.at(|ours| ours.update(&it)).unwrap();
        let error = connect(&net.lan, V6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect(&net.lan, &gated).is_err(), shut, "gates {shut}");
        assert_eq!(exchange(&net.lan, &open), format!("{open} ping"));
    }
    // Of a table that another program has changed nothing is left as it is.
    let flush = ["flush", "chain", "inet", "bentpipe_client", "intercept"];
    net.router.run("nft", &flush).unwrap();
    it.gates = vec![gate];
    installed.at(|ours| ours.update(&it)).unwrap();
    assert_eq!(exchange(&net.lan, &open), format!("{open} ping"));
    connect(&net.lan, &gated).unwrap_err();
}

#[expect(
    clippy::disallowed_methods,
    reason = "a kernel's answer is timed by the real clock"
)]
fn timed<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    assert!(
        start.elapsed() < Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );
    result
}

#[test]
fn other_protocols_pass_when_asked_to() {
    if !privileged("other_protocols_pass_when_asked_to") {
        return;
    }
    let net = Net::new();
    let mut it = interception();
    it.local = true;
    it.other = Other::Direct;
    let _installed = Inside::install(&net.router, &it);
    send_other(&net.lan);
    send_other(&net.router);
    assert_eq!(net.leaked(), 2 * OTHERS);
    connect(&net.lan, V4).unwrap_err();
    connect(&net.router, V4).unwrap_err();
    assert_eq!(net.leaked(), 2 * OTHERS, "TCP stays in");
}

#[test]
fn leftovers_are_replaced_and_removal_is_complete() {
    if !privileged("leftovers_are_replaced_and_removal_is_complete") {
        return;
    }
    let net = Net::new();
    let theirs = "table inet theirs { chain in { type filter hook input priority 0; tcp dport 9 drop\n}\n}\n";
    net.router
        .enter(|| bentpipe_sys::nft::apply(theirs).unwrap())
        .unwrap();
    let before = net.state();
    let mut it = interception();
    it.local = true;
    // A process killed twice: the guards never run. The second line for this machine's own traffic would have its owner
    // still, because this process lives; without an owner it is a table like any other.
    for (local, fail_open) in [(true, true), (false, false)] {
        (it.local, it.fail_open) = (local, fail_open);
        Inside::install(&net.router, &it).kill();
    }
    let orphan = format!("add table inet {HOLD_TABLE}");
    net.router.run("nft", &[&orphan]).unwrap();
    it.local = true;
    let rules = net.router.run("ip", &["rule"]).unwrap();
    // One for the LAN, and one for this machine.
    assert_eq!(rules.matches("25200").count(), 2, "{rules}");
    let table = Table::new("bentpipe_client");
    assert!(net.router.enter(|| table.exists()).unwrap().unwrap());
    assert!(net.state().contains("table inet theirs"));
    Inside::install(&net.router, &it).remove();
    assert_eq!(net.state(), before);
    assert!(!net.router.enter(|| table.exists()).unwrap().unwrap());
    drop(Inside::install(&net.router, &it));
    assert_eq!(net.state(), before);
    // One of an interface that is missing leaves nothing, and a failing install does not either.
    it.interfaces.push("nosuch0".into());
    Inside::install(&net.router, &it).remove();
    assert_eq!(net.state(), before);
    it.interfaces.push("longer_than_names_are0".into());
    assert!(
        net.router
            .enter(|| it.install().map(drop))
            .unwrap()
            .is_err()
    );
    assert_eq!(net.state(), before);
}
