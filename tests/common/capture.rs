//! What crossed the satellite, and whether all of it was the tunnel.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_lab::topology::{GATEWAY_SAT, Process, TERMINAL_SAT, Topology};
use rustix::process::Signal;

use super::peer::MARKER;
use super::site::PORT;

/// A capture of both directions of the terminal's `sat0`, running.
#[derive(Debug)]
pub(crate) struct Capture {
    process: Process,
    file: PathBuf,
}

/// What a capture holds.
#[derive(Debug, Default)]
pub(crate) struct Crossed {
    /// Packets of the tunnel.
    pub(crate) tunnel: usize,
    /// Packets that are neither the tunnel's nor bound to the link, by what they are.
    pub(crate) foreign: BTreeMap<String, usize>,
    /// ICMP errors about datagrams of the tunnel, from the kernel of a dead daemon; they quote what is encrypted.
    pub(crate) errors: usize,
    /// Packets with payload that anybody can read.
    pub(crate) readable: usize,
}

impl Capture {
    pub(crate) fn start(topology: &Topology) -> Result<Self> {
        let file = topology.directory().join("sat0.pcap");
        let mut command = Command::new("tcpdump");
        command
            .args(["-i", "sat0", "-n", "-U", "-s", "0", "-B", "32768"])
            .args(["-Z", "root", "-w"])
            .arg(&file);
        let process = topology.spawn_in(topology.terminal(), command)?;
        process.wait_for_line("listening on", Duration::from_secs(5))?;
        Ok(Self { process, file })
    }

    /// Ends the capture and looks at every packet.
    pub(crate) fn finish(self) -> Result<Crossed> {
        self.process.signal(Signal::INT)?;
        self.process.wait(Duration::from_secs(5))?;
        let log = self.process.stderr_text();
        ensure!(
            log.contains("\n0 packets dropped by kernel"),
            "the capture is not whole:\n{log}"
        );
        let bytes = fs::read(&self.file)?;
        let mut crossed = Crossed::default();
        for packet in packets(&bytes)? {
            match foreign(packet) {
                _ if is_tunnel(packet) => crossed.tunnel += 1,
                _ if is_error_about_tunnel(packet) => crossed.errors += 1,
                None => {}
                Some(kind) => *crossed.foreign.entry(kind).or_default() += 1,
            }
            let readable = packet
                .windows(MARKER.len())
                .any(|window| window == MARKER.as_bytes());
            crossed.readable += usize::from(readable);
        }
        Ok(crossed)
    }
}

impl Crossed {
    /// The tunnel was used, nothing crossed beside it, and nobody could read what crossed.
    pub(crate) fn expect_tunnel_alone(&self) -> Result<()> {
        ensure!(self.tunnel > 0, "the capture saw nothing of the tunnel");
        ensure!(
            self.foreign.is_empty(),
            "crossed beside the tunnel: {:?}",
            self.foreign
        );
        ensure!(
            self.readable == 0,
            "payload in clear in {} packets",
            self.readable
        );
        Ok(())
    }
}

/// The packets of a capture file; a TUN device has no link header.
fn packets(file: &[u8]) -> Result<Vec<&[u8]>> {
    const RAW_IP: u32 = 101;
    let word = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes);
    let header = file.get(..24).context("no capture file")?;
    ensure!(
        word(&header[20..24])? == RAW_IP,
        "the capture is not of plain IP packets"
    );
    let mut rest = &file[24..];
    let mut packets = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let (captured, length) = (word(&header[8..12])?, word(&header[12..16])?);
        ensure!(captured == length, "the capture cut a packet short");
        let Some((packet, after)) = after.split_at_checked(usize::try_from(captured)?) else {
            bail!("the capture file ends inside a packet");
        };
        packets.push(packet);
        rest = after;
    }
    Ok(packets)
}

fn is_tunnel(packet: &[u8]) -> bool {
    // Without IP options, which we never send; a fragment is no datagram and so not the tunnel's.
    let (Some(&[0x45, ..]), Some(udp)) = (packet.get(..20), packet.get(20..28)) else {
        return false;
    };
    let fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
    let ends = [&packet[12..16], &packet[16..20]];
    let ports = [&udp[..2], &udp[2..4]].map(|port| u16::from_be_bytes([port[0], port[1]]));
    let gateway = GATEWAY_SAT.octets();
    let terminal = TERMINAL_SAT.octets();
    let down = ends == [&gateway, &terminal] && ports[0] == PORT;
    let up = ends == [&terminal, &gateway] && ports[1] == PORT;
    !fragment && packet[9] == 17 && (up || down)
}

/// ICMP "port unreachable" that quotes a datagram of the tunnel.
fn is_error_about_tunnel(packet: &[u8]) -> bool {
    let unreachable = packet.first() == Some(&0x45)
        && packet.get(9) == Some(&1)
        && packet.get(20..22) == Some(&[3, 3]);
    unreachable && packet.get(28..).is_some_and(is_tunnel)
}

/// What a packet is that has no business on the link: neither the tunnel's nor bound to the link itself.
fn foreign(packet: &[u8]) -> Option<String> {
    let (source, target, protocol) = match packet.first()? >> 4 {
        4 if packet.len() >= 20 => {
            let address = |at: usize| IpAddr::from([0, 1, 2, 3].map(|i| packet[at + i]));
            (address(12), address(16), packet[9])
        }
        6 if packet.len() >= 40 => {
            let address = |at: usize| {
                let octets: Option<[u8; 16]> = packet[at..at + 16].try_into().ok();
                IpAddr::from(octets.map_or(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from))
            };
            (address(8), address(24), packet[6])
        }
        _ => return Some("no IP packet".into()),
    };
    let link_scope = match target {
        IpAddr::V4(target) => target.octets()[..3] == [224, 0, 0],
        IpAddr::V6(target) => target.segments()[0] == 0xff02 || target.is_unicast_link_local(),
    };
    if link_scope {
        return None;
    }
    let protocol = match protocol {
        1 | 58 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        other => format!("protocol {other}"),
    };
    Some(format!("{protocol} {source} > {target}"))
}
