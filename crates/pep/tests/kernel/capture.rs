//! The packet socket against the real kernel: both directions of one interface, and an honest count of what it missed.

use std::net::UdpSocket;
use std::time::Duration;

use bentpipe_sys::capture::{Packet, PacketSocket};
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn next(capture: &PacketSocket, buffer: &mut [u8]) -> Packet {
    let wait = Timespec::try_from(Duration::from_secs(5)).unwrap();
    let mut wanted = [PollFd::new(capture, PollFlags::IN)];
    assert_eq!(poll(&mut wanted, Some(&wait)).unwrap(), 1, "nothing came");
    capture.receive(buffer).unwrap()
}

#[test]
fn packets_of_both_directions_are_seen() {
    if !privileged("packets_of_both_directions_are_seen") {
        return;
    }
    let namespace = namespace("capture");
    let (capture, socket) = namespace
        .enter(|| {
            let capture = PacketSocket::open("lo").unwrap();
            (capture, UdpSocket::bind("127.0.0.1:7000").unwrap())
        })
        .unwrap();
    socket.send_to(b"seen", "127.0.0.1:7000").unwrap();
    let mut buffer = [0; 2000];
    for outgoing in [true, false] {
        let packet = next(&capture, &mut buffer);
        let expected = Packet {
            length: 32,
            ether_type: 0x0800,
            outgoing,
        };
        assert_eq!(packet, expected);
        // An IPv4 header first: no Ethernet header.
        assert_eq!((buffer[0], &buffer[28..32]), (0x45, &b"seen"[..]));
    }
    assert_eq!(capture.missed().unwrap(), 0);
}

#[test]
fn what_did_not_fit_is_counted() {
    if !privileged("what_did_not_fit_is_counted") {
        return;
    }
    let namespace = namespace("missed");
    let (capture, socket) = namespace
        .enter(|| {
            let capture = PacketSocket::open("lo").unwrap();
            (capture, UdpSocket::bind("127.0.0.1:7000").unwrap())
        })
        .unwrap();
    // Twice 4000 × 60 kB, and nobody reads.
    for _ in 0..4000 {
        socket.send_to(&[0; 60_000], "127.0.0.1:7000").unwrap();
    }
    assert!(capture.missed().unwrap() > 0);
    assert_eq!(capture.missed().unwrap(), 0, "asking starts anew");
}
