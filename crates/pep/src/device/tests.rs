//! The device against the real kernel, with its offloads and without: a sender's datagrams come out single, whole and in
//! order, and go in again so. Needs root.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use bentpipe_proto::packets::Header;
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::privilege;
use bentpipe_sys::tun::Tun;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

const DEVICE: &str = "bulk0";

/// A datagram's size, the last one's, and how many there are.
const SIZE: usize = 1200;
const LAST: usize = 700;
const COUNT: usize = 11;

/// Times that packets are written before they count as lost.
const ATTEMPTS: usize = 3;

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
        let ends = [["10.9.0.1", "10.9.0.2"], ["fd00:9::1", "fd00:9::2"]];
        let packets = ends.map(|ends| there_and_back(&place, &tun, ends, merges));
        forwarded(&place, &tun, ends, packets);
    }
}

fn there_and_back(place: &NetNs, tun: &BulkTun, ends: [&str; 2], merges: bool) -> Vec<Bytes> {
    let [own, other] = ends.map(|end| end.parse::<IpAddr>().unwrap());
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

    // A kernel that is short of time or memory may drop what comes in, all of it where it is merged: then once more.
    let came =
        (0..ATTEMPTS).any(|_| comes_in(place, tun, &packets, merges, &socket, &content, other));
    assert!(came, "nothing came in from {other}");
    packets
}

/// Writes the turned `packets`, and reads what of them comes to `socket`; false if that is nothing.
fn comes_in(
    place: &NetNs,
    tun: &BulkTun,
    packets: &[Bytes],
    merges: bool,
    socket: &UdpSocket,
    content: &[u8],
    other: IpAddr,
) -> bool {
    let before = counted(place);
    write_batch(tun, packets.iter().map(turned));
    let went = counted(place)[0] - before[0];
    assert_eq!(went, if merges { 1 } else { COUNT as u64 }, "pieces in");
    let mut buffer = [0; 2000];
    for (index, datagram) in content.chunks(SIZE).enumerate() {
        match socket.recv_from(&mut buffer) {
            Err(error) if index == 0 && error.kind() == ErrorKind::WouldBlock => return false,
            received => {
                let (length, from) = received.unwrap();
                assert_eq!(from, SocketAddr::new(other, 7));
                assert_eq!(&buffer[..length], datagram);
            }
        }
    }
    true
}

/// Packets on their way to a device without offloads: the kernel has to cut pieces and to complete checksums, and what it
/// makes of them is what was written.
fn forwarded(place: &NetNs, tun: &BulkTun, ends: [[&str; 2]; 2], packets: [Vec<Bytes>; 2]) {
    let plain = place.enter(|| Tun::create("plain0")).unwrap().unwrap();
    let run = |program: &str, words: &str| {
        let words: Vec<_> = words.split(' ').collect();
        place.run(program, &words).unwrap();
    };
    run("ip", "link set plain0 up");
    run(
        "sysctl",
        "-qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
    );
    run("ip", &format!("addr flush dev {DEVICE}"));
    for ([own, other], packets) in ends.into_iter().zip(packets) {
        run("ip", &format!("route replace {own} dev plain0"));
        run("ip", &format!("route replace {other} dev {DEVICE}"));
        let turned: Vec<_> = packets.iter().map(turned).collect();
        write_batch(tun, turned.iter().cloned());
        let mut buffer = [0; 70_000];
        for packet in turned {
            let (length, header) = loop {
                wait_for(&plain);
                let length = plain.read(&mut buffer).unwrap();
                let header = Header::parse(&buffer[..length]).expect("a whole packet");
                if header.protocol == 17 {
                    break (length, header);
                }
            };
            assert_eq!(buffer[header.offset..length], packet[header.offset..]);
        }
    }
}

fn wait_for(device: &impl AsFd) {
    let fd = device.as_fd();
    let wait = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait));
    assert_eq!(ready, Ok(1), "no packet within 5 s");
}

/// As many UDP packets as were sent, and what comes with them.
fn read_all(tun: &BulkTun) -> Vec<Bytes> {
    let (mut packets, mut buffer) = (Vec::new(), BytesMut::new());
    while packets.len() < COUNT {
        wait_for(tun);
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
fn turned(packet: &Bytes) -> Bytes {
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

/// Packets that have gone into the kernel through the device, and come out: pieces, as the kernel counts them.
fn counted(place: &NetNs) -> [u64; 2] {
    let text = place.enter(|| fs::read_to_string("/proc/thread-self/net/dev"));
    let text = text.unwrap().unwrap();
    let line = text.lines().find(|line| line.contains(DEVICE)).unwrap();
    let word = |at: usize| line.split_whitespace().nth(at).unwrap().parse().unwrap();
    [word(2), word(10)]
}
