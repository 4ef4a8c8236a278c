//! What crossed a link: every packet on one interface, judged as it passes.
//!
//! The question is whether anything but the tunnel crossed, and whether content could be read. So each packet is the
//! tunnel's, an error about one of the tunnel's, neighbours' business that no router forwards, or *in clear*; whatever is
//! not understood is in clear. A capture that missed packets proves nothing, and says so.
//!
//! ```text
//!  sat0 ──► packet socket ──► classify ──► counters, the first packets in clear
//!                       └───► marker? ──►
//! ```

mod classify;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::AddAssign;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bentpipe_sys::capture::{Packet, PacketSocket};
use bentpipe_sys::netns::NetNs;
use memchr::memmem::Finder;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::workload::MARKER;
use bentpipe_emulator::Stop;
use classify::{Class, classify, describe, kind};

/// Packets in clear that a report shows; more are only counted.
const SHOWN: usize = 20;
/// The largest IP packet.
const MAX_PACKET: usize = 65_535;

/// Mark by which the tunnel's packets are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tunnel {
    /// UDP from or to this port.
    Udp(u16),
    /// TCP from or to this port.
    Tcp(u16),
    /// TCP from and to anybody: that of SLE whose outer connections go to the flows' own destinations. That it is sealed shows by
    /// what is in it.
    EveryTcp,
    /// IKE, and ESP, alone (RFC 4303) or in UDP: ports 500 and 4500 (RFC 3948).
    Ipsec,
}

impl From<u16> for Tunnel {
    /// bentpipe's: UDP.
    fn from(port: u16) -> Self {
        Self::Udp(port)
    }
}

/// Traffic that a capture takes for its contender's own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedPackets {
    /// Mark by which the tunnel's packets are known.
    pub tunnel: Tunnel,
    /// Other tunnels of its own that stand beside it without the content that is measured.
    pub idle: [Option<Tunnel>; 3],
    /// Questions to the web's resolver and its answers pass beside the tunnel: that of one who takes TCP alone, as PEPs
    /// do, and forwards all else.
    pub names_beside: bool,
}

impl<T: Into<Tunnel>> From<T> for ExpectedPackets {
    /// Nothing passes beside it.
    fn from(tunnel: T) -> Self {
        Self {
            tunnel: tunnel.into(),
            idle: [None; 3],
            names_beside: false,
        }
    }
}

/// A running capture. Dropping it throws away what it saw.
#[derive(Debug)]
pub struct Capture {
    stop: Stop,
    thread: Option<JoinHandle<Result<CaptureReport>>>,
}

/// Traffic that a capture saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaptureReport {
    /// Packets of the tunnel.
    pub tunnel_packets: u64,
    /// Packets of the other tunnels of its own, if there are some.
    pub idle_packets: u64,
    /// ICMP errors and redirects that quote a packet of any of them: from the kernel where a daemon or an address is gone.
    /// The packets that they quote are encrypted.
    pub tunnel_errors: u64,
    /// ARP, IPv6 neighbour discovery, and membership of link-local groups.
    pub link_scope_packets: u64,
    /// Questions for names, and answers, beside a tunnel that is for TCP alone.
    pub name_packets: u64,
    /// Everything else.
    pub clear_packets: u64,
    /// Number of those of each kind, such as `UDP 53`, `IPv6 TCP`, `SCTP`.
    pub clear_kinds: BTreeMap<String, u64>,
    /// The first of those.
    pub clear: Vec<ClearPacket>,
    /// Packets of any kind that hold [`MARKER`], thus content that can be read.
    pub marker_packets: u64,
    /// Packets with content that can be read and are the tunnel's own, or about it: not among `clear_packets`.
    pub readable_own: u64,
    /// Packets that were too fast for the capture.
    pub missed: u64,
    /// Bytes of all packets, from the IP header on.
    pub bytes: u64,
    /// Bytes of `tunnel_packets`.
    pub tunnel_bytes: u64,
}

/// A packet that was not the tunnel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearPacket {
    /// Since the start of the capture.
    pub at: Duration,
    /// Protocol, addresses, ports, size.
    pub what: String,
    /// True if it holds [`MARKER`].
    pub marker: bool,
}

impl Capture {
    /// Watches `interface` in `namespace`, both directions, from the return of this call on. The tunnel is
    /// UDP, if only a port is given.
    ///
    /// # Errors
    /// There is no such interface, or CAP_NET_RAW is missing.
    pub fn start(
        namespace: &NetNs,
        interface: &str,
        expected: impl Into<ExpectedPackets>,
    ) -> Result<Self> {
        let expected = expected.into();
        let socket = namespace
            .enter(|| PacketSocket::open(interface))?
            .with_context(|| format!("in network namespace `{}`", namespace.name()))?;
        let stop = Stop::new().context("cannot make the capture's switch")?;
        let watched = stop.clone();
        let thread = thread::Builder::new()
            .name("capture".into())
            .spawn(move || Reader::new(socket, expected).run(&watched))
            .context("cannot start the capture's thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the capture, with everything in it that crossed before this call.
    ///
    /// # Errors
    /// The capture had failed: what crossed is not known.
    pub fn stop(mut self) -> Result<CaptureReport> {
        self.end()
            .unwrap_or_else(|| Err(anyhow!("it panicked")))
            .context("capture")
    }

    fn end(&mut self) -> Option<Result<CaptureReport>> {
        self.stop.stop();
        // A panic has been printed by its own thread.
        self.thread.take()?.join().ok()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

impl CaptureReport {
    /// Checks that the tunnel was seen, whole, and nothing in clear beside it.
    ///
    /// # Errors
    /// It was not, or there is no knowing; the text shows what crossed.
    pub fn expect_only_tunnel(&self) -> Result<()> {
        ensure!(
            self.missed == 0,
            "the capture missed {} packets: there is no knowing what crossed the link",
            self.missed
        );
        if self.clear_packets > 0 || self.marker_packets > 0 {
            bail!("crossed the link in clear: {self}");
        }
        ensure!(self.tunnel_packets > 0, "no packet of the tunnel was seen");
        Ok(())
    }

    /// Counts a packet of `length` bytes, with [`MARKER`] in it or without.
    fn count(&mut self, class: Class, length: usize, marker: bool) {
        let length = length as u64;
        self.bytes += length;
        self.marker_packets += u64::from(marker);
        self.readable_own += u64::from(marker && class != Class::Clear);
        match class {
            Class::Tunnel => {
                self.tunnel_packets += 1;
                self.tunnel_bytes += length;
            }
            Class::Idle => self.idle_packets += 1,
            Class::TunnelError => self.tunnel_errors += 1,
            Class::Name => self.name_packets += 1,
            Class::LinkScope => self.link_scope_packets += 1,
            Class::Clear => self.clear_packets += 1,
        }
    }
}

impl AddAssign for CaptureReport {
    /// Of two ends of a link: what either saw.
    fn add_assign(&mut self, other: Self) {
        self.tunnel_packets += other.tunnel_packets;
        self.idle_packets += other.idle_packets;
        self.tunnel_errors += other.tunnel_errors;
        self.link_scope_packets += other.link_scope_packets;
        self.name_packets += other.name_packets;
        self.clear_packets += other.clear_packets;
        self.marker_packets += other.marker_packets;
        self.readable_own += other.readable_own;
        self.missed += other.missed;
        self.bytes += other.bytes;
        self.tunnel_bytes += other.tunnel_bytes;
        for (kind, number) in other.clear_kinds {
            *self.clear_kinds.entry(kind).or_default() += number;
        }
        self.clear.extend(other.clear);
        self.clear.sort_by_key(|packet| packet.at);
        self.clear.truncate(SHOWN);
    }
}

impl fmt::Display for CaptureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tunnel, {} ICMP about the tunnel, {} link-scope, {} in clear, {} with readable content",
            self.tunnel_packets,
            self.tunnel_errors,
            self.link_scope_packets,
            self.clear_packets,
            self.marker_packets
        )?;
        for packet in &self.clear {
            write!(f, "\n  {packet}")?;
        }
        let more = self.clear_packets.saturating_sub(self.clear.len() as u64);
        if more > 0 {
            write!(f, "\n  and {more} more")?;
        }
        Ok(())
    }
}

impl fmt::Display for ClearPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marker = if self.marker { ", content" } else { "" };
        write!(f, "{:.3} s {}{marker}", self.at.as_secs_f64(), self.what)
    }
}

/// The thread's side.
struct Reader {
    socket: PacketSocket,
    expected: ExpectedPackets,
    finder: Finder<'static>,
    start: Instant,
    report: CaptureReport,
}

impl Reader {
    fn new(socket: PacketSocket, expected: ExpectedPackets) -> Self {
        Self {
            socket,
            expected,
            finder: Finder::new(MARKER),
            start: Instant::now(),
            report: CaptureReport::default(),
        }
    }

    fn run(mut self, stop: &Stop) -> Result<CaptureReport> {
        let mut buffer = vec![0; MAX_PACKET];
        loop {
            let mut wanted = [
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
            ];
            match poll(&mut wanted, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for packets"),
            }
            let stopped = !wanted[0].revents().is_empty();
            // After the switch: what crossed before it was thrown waits in the socket.
            self.take_all(&mut buffer)?;
            if stopped {
                self.report.missed = self.socket.missed()?.into();
                return Ok(self.report);
            }
        }
    }

    fn take_all(&mut self, buffer: &mut [u8]) -> Result<()> {
        loop {
            match self.socket.receive(buffer) {
                Ok(packet) => self.take(packet, &buffer[..packet.length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The interface went down or away: nothing crosses then.
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("reading packets"),
            }
        }
    }

    fn take(&mut self, packet: Packet, bytes: &[u8]) {
        let marker = self.finder.find(bytes).is_some();
        let class = classify(packet.ether_type, bytes, self.expected);
        let report = &mut self.report;
        report.count(class, bytes.len(), marker);
        if class != Class::Clear {
            return;
        }
        let kind = kind(packet.ether_type, bytes);
        *report.clear_kinds.entry(kind).or_default() += 1;
        if report.clear.len() < SHOWN {
            report.clear.push(ClearPacket {
                at: self.start.elapsed(),
                what: describe(packet.ether_type, bytes),
                marker,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_packets_of_the_tunnel_are_counted_apart_from_those_in_clear() {
        let mut report = CaptureReport::default();
        for class in [
            Class::Tunnel,
            Class::Idle,
            Class::TunnelError,
            Class::Name,
            Class::LinkScope,
            Class::Clear,
        ] {
            report.count(class, 100, true);
            report.count(class, 100, false);
        }
        assert_eq!((report.marker_packets, report.readable_own), (6, 5));
        assert_eq!((report.clear_packets, report.tunnel_bytes), (2, 200));
        assert_eq!(report.bytes, 1200);
    }
}
