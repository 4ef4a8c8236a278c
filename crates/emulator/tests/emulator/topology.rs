//! The topology carries plain IP end to end, and leaves nothing behind. Needs root.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bentpipe_emulator::topology::{
    Behind, GATEWAY_WAN, Ground, Topology, TopologyConfig, WEB, WEB6, host, unique_prefix,
};
use bentpipe_sys::netns::NetNs;
use bentpipe_units::BitRate;
use rustix::net::sockopt::tcp_congestion;

const PORT: u16 = 7000;

#[expect(
    clippy::disallowed_methods,
    reason = "this is a test on the real clock"
)]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn plain_ip_crosses_and_nothing_stays() {
    if !bentpipe_testbed::privileged("topology") {
        return;
    }
    let prefix = unique_prefix();
    let topology = Topology::build(&TopologyConfig {
        link: bentpipe_emulator::scenario::preset("geo")
            .expect("a preset")
            .into(),
        prefix: prefix.clone(),
        hosts: 3,
    })
    .expect("topology");
    let targets: [IpAddr; 3] = [WEB.into(), WEB6.into(), host(2).into()];
    let listen = |target| {
        topology
            .web()
            .enter(move || TcpListener::bind((target, PORT)))
    };
    let _listeners = targets.map(|target| listen(target).expect("inside").expect("listener"));
    for target in targets {
        let start = now();
        let connect = || TcpStream::connect_timeout(&(target, PORT).into(), Duration::from_secs(5));
        let socket = topology
            .user()
            .enter(connect)
            .expect("inside")
            .expect("an answer");
        assert!(start.elapsed() >= Duration::from_millis(500), "{target}");
        assert_eq!(tcp_congestion(&socket).expect("its name"), "cubic");
    }
    let mut command = Command::new("sh");
    command.args(["-c", "ip -br addr >&2; echo ready >&2; exec sleep 1000"]);
    let process = topology
        .spawn_in(topology.web(), command)
        .expect("a process");
    process
        .wait_for_line("ready", Duration::from_secs(5))
        .expect("its line");
    assert!(process.stderr_text().contains("10.30.0.12/24"));
    let proc = format!("/proc/{}", process.id());
    let directory = topology.directory().to_owned();
    assert!(Path::new(&proc).exists());
    let stats = topology.finish().expect("a sound link");
    assert!(stats.return_link.delivered >= 6, "{stats:?}");
    assert!(!Path::new(&proc).exists());
    assert!(!directory.exists());
    assert!(!Path::new(&format!("/run/netns/{prefix}-user")).exists());
}

/// Packets that a modem behind the gateway has no room for are counted, and apart from the link.
#[test]
fn packets_that_a_full_modem_drops_behind_the_gateway_are_counted() {
    const SENT: u64 = 100;
    if !bentpipe_testbed::privileged("modem") {
        return;
    }
    let config = TopologyConfig {
        link: bentpipe_emulator::scenario::preset("geo")
            .expect("a preset")
            .into(),
        prefix: format!("{}-modem", unique_prefix()),
        hosts: 1,
    };
    let ground = Ground {
        behind: Behind {
            uplink: Some(BitRate::kilobits_per_second(384)),
            ..Behind::default()
        },
        ..Ground::default()
    };
    let topology = Topology::build_on(&config, ground).expect("topology");
    let bind = |namespace: &NetNs, address: Ipv4Addr| {
        let bound = namespace.enter(move || UdpSocket::bind((address, PORT)));
        bound.expect("inside").expect("a socket")
    };
    let web = bind(topology.web(), WEB);
    let gateway = bind(topology.gateway(), GATEWAY_WAN);
    // 120 kB at once, where 64 kB have room.
    for _ in 0..SENT {
        web.send_to(&[0; 1172], (GATEWAY_WAN, PORT)).expect("sent");
    }
    gateway
        .set_read_timeout(Some(Duration::from_secs(3)))
        .expect("a timeout");
    let mut buffer = [0; 2000];
    let arrived = std::iter::from_fn(|| gateway.recv(&mut buffer).ok()).count() as u64;
    let stats = topology.finish().expect("a sound link");
    let [from_web, _] = stats.behind_gateway.expect("its counts");
    // Packets that wait for an address to be resolved may be dropped before the modem.
    assert!(
        from_web.delivered >= arrived && arrived > 30,
        "{from_web:?}"
    );
    let accounted = from_web.delivered + from_web.dropped_queue;
    assert_eq!(from_web.offered, accounted, "{from_web:?}");
    assert!(from_web.dropped_queue > 10, "{from_web:?}");
    assert_eq!(stats.forward_link.dropped_queue, 0);
    let told = &stats.to_json()["behind_gateway"]["from_web"];
    assert_eq!(told["dropped"]["queue"], from_web.dropped_queue);
}
