//! A capture tells the tunnel from everything else, and content from noise.

use std::net::UdpSocket;
use std::time::Duration;

use bentpipe_emulator::topology::{GATEWAY_SAT, LINK_DEVICE, TERMINAL_SAT};
use bentpipe_lab::capture::Capture;

use super::world::{World, object, world};

const PORT: u16 = 4433;

/// Sends `datagrams` through the link as a tunnel would, and waits for them.
fn tunnel(world: &World, datagrams: u64) {
    let bind = |namespace: &bentpipe_sys::netns::NetNs, address| {
        namespace
            .enter(|| UdpSocket::bind((address, PORT)).unwrap())
            .unwrap()
    };
    let gateway = bind(world.topology.gateway(), GATEWAY_SAT);
    let terminal = bind(world.topology.terminal(), TERMINAL_SAT);
    gateway
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    for _ in 0..datagrams {
        terminal
            .send_to(&[0x40; 1200], (GATEWAY_SAT, PORT))
            .unwrap();
        gateway.recv(&mut [0; 2000]).unwrap();
    }
}

#[test]
fn plain_traffic_is_flagged_and_shown() {
    let Some(world) = world("clear") else { return };
    let capture = Capture::start(world.topology.terminal(), LINK_DEVICE, PORT).unwrap();
    tunnel(&world, 3);
    world.get(0, &object(5, 100_000)).unwrap();
    world.get(1, &object(5, 1000)).unwrap();
    let report = capture.stop().unwrap();
    eprintln!("{report}");
    assert_eq!((report.tunnel_packets, report.missed), (3, 0));
    assert_eq!(report.tunnel_bytes, 3 * 1228);
    // 100 kB are about 70 packets of content, and three requests carry the marker too.
    assert!(report.clear_packets > 70 && report.marker_packets > 70);
    assert_eq!(report.clear.len(), 20);
    assert!(
        report.clear[0].what.starts_with("TCP SYN 10.10.0.2:"),
        "{report}"
    );
    assert!(report.clear.iter().any(|packet| packet.marker), "{report}");
    let error = report.expect_only_tunnel().unwrap_err().to_string();
    assert!(
        error.contains("in clear") && error.contains("10.30.0.10:80"),
        "{error}"
    );
}

#[test]
fn the_tunnel_alone_passes() {
    let Some(world) = world("tunnel") else { return };
    let ends = [world.topology.terminal(), world.topology.gateway()];
    let captures = ends.map(|end| Capture::start(end, LINK_DEVICE, PORT).unwrap());
    tunnel(&world, 5);
    let [mut report, other] = captures.map(|capture| capture.stop().unwrap());
    report.expect_only_tunnel().unwrap();
    report += other;
    report.expect_only_tunnel().unwrap();
    assert_eq!((report.tunnel_packets, report.clear_packets), (10, 0));
}

#[test]
fn an_idle_link_is_quiet_but_proves_nothing() {
    let Some(world) = world("idle") else { return };
    let capture = Capture::start(world.topology.terminal(), LINK_DEVICE, PORT).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let report = capture.stop().unwrap();
    assert_eq!((report.clear_packets, report.tunnel_packets), (0, 0));
    let error = report.expect_only_tunnel().unwrap_err().to_string();
    assert!(error.contains("no packet of the tunnel"), "{error}");
}

#[test]
fn a_missing_interface_is_named_with_its_namespace() {
    let Some(world) = world("missing") else {
        return;
    };
    let error = Capture::start(world.topology.user(), LINK_DEVICE, PORT).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("sat0") && error.contains("missing-user"),
        "{error}"
    );
}
