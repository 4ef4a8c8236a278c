//! Envoy as a MASQUE proxy: HTTP/3 of a host crosses in it as datagrams and TCP as streams, to both families, and nothing beside it.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use bentpipe_emulator::topology::{LINK_DEVICE, unique_prefix};
use bentpipe_lab::capture::Capture;
use bentpipe_lab::contender::{Available, Contender};
use bentpipe_lab::workload::{HTTPS_PORT, get_by_http3, run_in};
use bentpipe_testbed::required;

use super::world::{PATIENCE, World, object, world};
use crate::BENTPIPE;

/// Bytes of one download.
const LENGTH: u64 = 300_000;

/// Time in which the last packets for sockets that are closed by then have come, and the hosts have said so: round trips.
const LAST_PACKETS: Duration = Duration::from_millis(500);

/// Fetches a file from the host over HTTP/3, or not at all.
fn over_http3(world: &World, host: usize) -> anyhow::Result<()> {
    let (name, address) = world.hosts.get(host).unwrap();
    let (to, expected) = (SocketAddr::new(address, HTTPS_PORT), object(1, LENGTH));
    let tls = world.authority.http3_client_config()?;
    let fetch = || get_by_http3(to, name, &expected, &tls);
    run_in(world.topology.user(), &world.stop, PATIENCE, fetch).map(drop)
}

#[test]
fn http3_and_tcp_cross_in_a_masque_proxy_alone() {
    let Some(world) = world("masque") else { return };
    let prefix = format!("{}-envoy", unique_prefix());
    let available = Available::new(BENTPIPE.into(), &prefix).unwrap();
    let contender: Contender = "masque".parse().unwrap();
    if let Err(reason) = contender.version(&available) {
        assert!(!required(), "{reason}");
        return println!("masque: skipped: {reason}");
    }
    let expected = contender.on_link(false).unwrap();
    let capture = Capture::start(world.topology.terminal(), LINK_DEVICE, expected).unwrap();
    let at_work = contender.start(&available, &world.topology).unwrap();
    // One of each family.
    for host in [0, 1] {
        over_http3(&world, host).unwrap();
        world.get(host, &object(2, LENGTH)).unwrap();
    }
    thread::sleep(LAST_PACKETS);
    let carried = at_work.carried(&world.topology).unwrap().unwrap();
    let crossed = capture.stop().unwrap();
    assert!(
        carried.bytes > 4 * LENGTH && carried.past == 0,
        "{carried:?}"
    );
    assert!(crossed.tunnel_bytes > 4 * LENGTH, "{crossed}");
    assert_eq!(crossed.clear_packets, 0, "{crossed}");
}
