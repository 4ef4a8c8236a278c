//! Many datagrams of one `sendmsg`, as QUIC stacks and VPNs send them (UDP_SEGMENT): in few pieces through both devices,
//! and single, whole and in order at their destination.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Context as _, Result, ensure};
use bentpipe_link::{Scenario, Standard};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::echo::{any, bind};
use bentpipe_testbed::privileged;
use bentpipe_testbed::site::{Site, near};
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};

use super::{WEBS, site_over};

/// Sizes of all datagrams but the last, and of that: one that divides the device's packets and others that do not.
const SIZES: [(usize, usize); 4] = [(1200, 1200), (1200, 1), (1452, 777), (100, 99)];

/// Datagrams of one piece.
const COUNT: usize = 40;

#[test]
fn datagrams_sent_in_one_piece_arrive_single_whole_and_in_order() {
    if !privileged("packets: segmentation offload") {
        return;
    }
    let site = fast_site();
    let [user, web] = [site.topology.user(), site.topology.web()];
    let devices = [site.topology.terminal(), site.topology.gateway()];
    let (mut sent, mut written) = (0, 0);
    for address in WEBS {
        for (size, last) in SIZES {
            let before = devices.map(counted);
            let arrived = both_ways(user, web, address, size, last);
            arrived.unwrap_or_else(|error| {
                panic!(
                    "{address}, {size} and {last} bytes: {error:#}\n{}",
                    site.logs()
                )
            });
            let after = devices.map(counted);
            // The client's machine: out of the kernel upwards. The server's: into it.
            let out = after[0][1] - before[0][1];
            let into = after[1][0] - before[1][0];
            println!("{address}, {size} bytes: {COUNT} datagrams in {out} pieces, then {into}");
            assert!(
                out < COUNT as u64 / 2,
                "{out} pieces out of the client's kernel"
            );
            (sent, written) = (sent + COUNT as u64, written + into);
        }
    }
    // What comes together is written together; how much that is depends on link and machine.
    assert!(
        written < sent,
        "{written} pieces into the server's kernel for {sent}"
    );
}

/// A site over a link that delivers several packets at once.
fn fast_site() -> Site {
    let fast = Standard::Cbr {
        bit_rate: "400 Mbit/s".parse().expect("a rate"),
    };
    site_over(Scenario {
        forward_link: fast.clone(),
        return_link: fast,
        ..near()
    })
}

/// From the user to the web and back; the datagrams of both ways bear their numbers.
fn both_ways(user: &NetNs, web: &NetNs, address: IpAddr, size: usize, last: usize) -> Result<()> {
    let near = bind(user, any(address))?;
    let far = bind(web, address)?;
    let datagrams: Vec<Vec<u8>> = (0..COUNT)
        .map(|number| {
            let size = if number + 1 == COUNT { last } else { size };
            (0..size).map(|at| (number * 31 + at) as u8).collect()
        })
        .collect();
    send(&near, far.local_addr()?, size, &datagrams)?;
    let from = arrive(&far, &datagrams).context("to the web")?;
    send(&far, from, size, &datagrams)?;
    arrive(&near, &datagrams).context("to the user")?;
    Ok(())
}

fn send(socket: &UdpSocket, to: SocketAddr, size: usize, datagrams: &[Vec<u8>]) -> Result<()> {
    // Of another socket: the library changes how one receives.
    let state = UdpSocketState::new(UdpSockRef::from(&UdpSocket::bind("127.0.0.1:0")?))?;
    ensure!(
        state.max_gso_segments() >= COUNT,
        "this kernel has no UDP_SEGMENT"
    );
    let contents = datagrams.concat();
    let transmit = Transmit {
        destination: to,
        ecn: None,
        contents: &contents,
        segment_size: Some(size),
        src_ip: None,
    };
    state.try_send(UdpSockRef::from(socket), &transmit)?;
    Ok(())
}

/// Takes the datagrams; returns whom they came from.
fn arrive(socket: &UdpSocket, datagrams: &[Vec<u8>]) -> Result<SocketAddr> {
    let mut buffer = [0; 4096];
    let mut sender = None;
    for (number, datagram) in datagrams.iter().enumerate() {
        let (length, from) = socket
            .recv_from(&mut buffer)
            .with_context(|| format!("datagram {number}"))?;
        ensure!(
            buffer[..length] == **datagram,
            "datagram {number}, {length} bytes"
        );
        sender = Some(from);
    }
    sender.context("no datagram")
}

/// Pieces that have gone into the kernel of `place` through the tunnel's device, and that have come out of it.
fn counted(place: &NetNs) -> [u64; 2] {
    let text = place.run("cat", &["/proc/net/dev"]).expect("statistics");
    let line = text.lines().find(|line| line.contains("bentpipe0"));
    let line = line.expect("the device");
    let word = |at: usize| {
        line.split_whitespace()
            .nth(at)
            .and_then(|word| word.parse().ok())
    };
    [2, 10].map(|at| word(at).expect("a number"))
}
