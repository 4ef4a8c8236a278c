//! The topology carries plain IP end to end, and leaves nothing behind. Needs root.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bentpipe_lab::topology::{Topology, TopologyConfig, WEB, WEB6, host, unique_prefix};

#[test]
fn plain_ip_crosses_and_nothing_stays() {
    if !bentpipe_sys::privilege::has_net_admin() {
        eprintln!("skipped: needs CAP_NET_ADMIN");
        return;
    }
    let prefix = unique_prefix();
    let topology = Topology::build(&TopologyConfig {
        scenario: bentpipe_link::preset("geo").expect("a preset"),
        prefix: prefix.clone(),
        hosts: 3,
    })
    .expect("topology");
    for target in [WEB.to_string(), WEB6.to_string(), host(2).to_string()] {
        let start = Instant::now();
        topology
            .user()
            .run("ping", &["-c1", "-W2", &target])
            .expect("an answer");
        assert!(start.elapsed() >= Duration::from_millis(500), "{target}");
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
    drop(topology);
    assert!(!Path::new(&proc).exists());
    assert!(!directory.exists());
    assert!(!Path::new(&format!("/run/netns/{prefix}-user")).exists());
}
