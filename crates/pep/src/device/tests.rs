//! The device against the real kernel, with its offloads and without: a sender's datagrams come out single, whole and in
//! order, and go in again so. Needs root.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::Duration;

use bentpipe_proto::packets::Header;
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::privilege;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

const DEVICE: &str = "bulk0";

/// A datagram's size, the last one's, and how many there are.
const SIZE: usize = 1200;
const LAST: usize = 700;
const COUNT: usize = 11;

#[test]
fn datagrams_come_out_single_and_go_in_whether_the_kernel_has_offloads_or_not() {
    if !privilege::has_net_admin() {
        eprintln!("SKIPPED the tunnel's device: needs root, for namespaces and TUN devices");
        return;
    }
    for offloads in [true, false] {
        let name = format!("bpt-{}-device-{offloads}", std::process::id());
        let place = NetNs::temporary(&name).unwrap();
        let make = match offloads {
            true => BulkTun::create,
            false => BulkTun::without_offloads,
        };
        let tun = place.enter(|| make(DEVICE)).unwrap().unwrap();
        // Kernels before 6.2 have none; what is carried is the same.
        let merges = offloads && tun.merges();
        assert!(offloads || !tun.merges());
        for address in ["10.9.0.1/24", "fd00:9::1/64"] {
            let nodad = address.contains(':').then_some("nodad");
            let add = ["addr", "add", address, "dev", DEVICE].into_iter();
            let words: Vec<_> = add.chain(nodad).collect();
            place.run("ip", &words).unwrap();
        }
        place.run("ip", &["link", "set", DEVICE, "up"]).unwrap();
        for [own, other] in [["10.9.0.1", "10.9.0.2"], ["fd00:9::1", "fd00:9::2"]] {
            let ends = [own, other].map(|end| end.parse::<IpAddr>().unwrap());
            there_and_back(&place, &tun, ends, merges);
        }
    }
}

fn there_and_back(place: &NetNs, tun: &BulkTun, [own, other]: [IpAddr; 2], merges: bool) {
    let socket = place
        .enter(|| UdpSocket::bind((own, 5000)))
        .unwrap()
        .unwrap();
    let patience = Some(Duration::from_secs(5));
    socket.set_read_timeout(patience).unwrap();
    let content: Vec<u8> = (0..(COUNT - 1) * SIZE + LAST)
        .map(|at| (at / 7) as u8)
        .collect();
    let before = counted(place);
    // Of another socket: the library changes how one receives.
    let another = UdpSocket::bind("127.0.0.1:0").unwrap();
    let state = UdpSocketState::new(UdpSockRef::from(&another)).unwrap();
    let sent = Transmit {
        destination: SocketAddr::new(other, 7),
        ecn: None,
        contents: &content,
        segment_size: Some(SIZE),
        src_ip: None,
    };
    state.try_send(UdpSockRef::from(&socket), &sent).unwrap();
    let packets = read_all(tun);
    let whole: Vec<u8> = packets
        .iter()
        .flat_map(|packet| {
            let header = Header::parse(packet).expect("a whole packet");
            packet[header.offset + 8..].to_vec()
        })
        .collect();
    assert_eq!(whole, content);
    let came = counted(place)[1] - before[1];
    assert_eq!(came < COUNT as u64, merges, "{came} pieces out");

    write_batch(tun, packets.into_iter().map(turned));
    let went = counted(place)[0] - before[0];
    assert_eq!(went, if merges { 1 } else { COUNT as u64 }, "pieces in");
    let mut buffer = [0; 2000];
    for datagram in content.chunks(SIZE) {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(from, SocketAddr::new(other, 7));
        assert_eq!(&buffer[..length], datagram);
    }
}

/// As many UDP packets as were sent, and what comes with them.
fn read_all(tun: &BulkTun) -> Vec<Bytes> {
    let (mut packets, mut buffer) = (Vec::new(), BytesMut::new());
    while packets.len() < COUNT {
        let (fd, wait) = (
            tun.as_fd(),
            Timespec {
                tv_sec: 5,
                tv_nsec: 0,
            },
        );
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait));
        assert_eq!(ready, Ok(1), "no packet within 5 s");
        read_batch(tun, &mut buffer, |packet| {
            // The kernel asks for routers, too.
            if Header::parse(&packet).is_some_and(|header| header.protocol == 17) {
                packets.push(packet);
            }
        })
        .unwrap();
    }
    packets
}

/// The packet that goes back; addresses and ports change places, which leaves the checksums valid.
fn turned(packet: Bytes) -> Bytes {
    let mut packet = packet.to_vec();
    let (from, length) = if packet[0] >> 4 == 4 {
        (12, 4)
    } else {
        (8, 16)
    };
    let (source, destination) = packet[from..from + 2 * length].split_at_mut(length);
    source.swap_with_slice(destination);
    let (source, destination) = packet[from + 2 * length..][..4].split_at_mut(2);
    source.swap_with_slice(destination);
    packet.into()
}

/// What has gone into the kernel through the device, and what has come out: pieces, as the kernel counts them.
fn counted(place: &NetNs) -> [u64; 2] {
    let text = place.enter(|| fs::read_to_string("/proc/thread-self/net/dev"));
    let text = text.unwrap().unwrap();
    let line = text.lines().find(|line| line.contains(DEVICE)).unwrap();
    let word = |at: usize| line.split_whitespace().nth(at).unwrap().parse().unwrap();
    [word(2), word(10)]
}
