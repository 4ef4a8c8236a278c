//! Namespaces and TUN devices against the real kernel: entering, running commands, carrying a packet.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use bentpipe_sys::netns::NetNs;
use bentpipe_sys::tun::Tun;
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;

/// True if process `pid` is in this process's network namespace.
fn same_netns(pid: u32) -> bool {
    let identity = |who: &str| {
        let metadata = std::fs::metadata(format!("/proc/{who}/ns/net")).unwrap();
        (metadata.dev(), metadata.ino())
    };
    identity("self") == identity(&pid.to_string())
}

#[test]
fn a_namespace_is_entered_and_deleted() {
    if !privileged("a_namespace_is_entered_and_deleted") {
        return;
    }
    let guard = namespace("enter");
    let name = guard.name().to_owned();
    let inside = guard
        .enter(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap())
        .unwrap();
    assert_eq!(
        inside.lines().count(),
        3,
        "two header lines and lo: {inside}"
    );
    let child = guard.command("sleep").arg("60").spawn().unwrap();
    let child = Child(child);
    assert!(!same_netns(child.0.id()));
    assert!(same_netns(std::process::id()));
    let error = guard.run("ip", &["link", "show", "nosuch"]).unwrap_err();
    assert!(
        error.to_string().contains(&name) && error.to_string().contains("ip link show nosuch"),
        "{error}"
    );
    drop(guard);
    let error = NetNs::open(&name).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("ip netns list"), "{error}");
}

#[test]
fn a_tun_device_carries_packets_both_ways() {
    if !privileged("a_tun_device_carries_packets_both_ways") {
        return;
    }
    let guard = namespace("tun");
    let tun = guard.enter(|| Tun::create("sat0")).unwrap().unwrap();
    assert_eq!(tun.name(), "sat0");
    let busy = guard.enter(|| Tun::create("sat0")).unwrap().unwrap_err();
    assert!(busy.to_string().contains("`sat0`"), "{busy}");
    guard
        .run("ip", &["addr", "add", "10.9.0.1/24", "dev", "sat0"])
        .unwrap();
    guard.run("ip", &["link", "set", "sat0", "up"]).unwrap();
    let socket = guard
        .enter(|| UdpSocket::bind("10.9.0.1:5000").unwrap())
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket.send_to(b"hello", "10.9.0.2:7").unwrap();

    let mut buffer = [0; 2000];
    let length = loop {
        let length = wait_read(&tun, &mut buffer);
        // The kernel's own chatter (router solicitations, MLD) comes first.
        if buffer[0] >> 4 == 4 && buffer[9] == 17 {
            break length;
        }
    };
    assert_eq!(&buffer[length - 5..length], b"hello");

    // Turn it round: swapping addresses and ports leaves both checksums valid.
    let mut packet = buffer[..length].to_vec();
    let (source, destination) = (packet[12..16].to_vec(), packet[16..20].to_vec());
    packet[12..16].copy_from_slice(&destination);
    packet[16..20].copy_from_slice(&source);
    let ports = packet[20..24].to_vec();
    packet[20..22].copy_from_slice(&ports[2..]);
    packet[22..24].copy_from_slice(&ports[..2]);
    assert_eq!(tun.write(&packet).unwrap(), length);
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(
        (&buffer[..length], from.to_string().as_str()),
        (b"hello".as_slice(), "10.9.0.2:7")
    );
}

fn wait_read(tun: &Tun, buffer: &mut [u8]) -> usize {
    use rustix::event::{PollFd, PollFlags, poll};
    let fd = tun.as_fd();
    let timeout = rustix::time::Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap();
    assert_eq!(ready, 1, "no packet within 5 s");
    tun.read(buffer).unwrap()
}

struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
