//! The topology carries plain IP end to end, and leaves nothing behind. Needs root.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bentpipe_emulator::topology::{Topology, TopologyConfig, WEB, WEB6, host, unique_prefix};
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
