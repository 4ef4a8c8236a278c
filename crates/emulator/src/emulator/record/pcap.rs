//! A capture of both ends of the link in one file, for Wireshark and tcpdump: pcapng
//! (draft-ietf-opsawg-pcapng), with an interface per end and nanoseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_link::Port;

use super::{Crossing, Framing};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LINKTYPE_ETHERNET: u16 = 1;
/// "Cooked": a packet behind a header that says where it goes. Not raw IP: of that, libpcap reads only one interface per
/// file.
const LINKTYPE_LINUX_SLL: u16 = 113;
const SLL_HEADER: usize = 16;
/// No hardware address.
const ARPHRD_NONE: u16 = 0xfffe;
const SLL_TO_US: u16 = 0;
const SLL_SENT_BY_US: u16 = 4;
const OPTION_END: u16 = 0;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
/// Stamps count 10^-9 s.
const NANOSECONDS: u8 = 9;
const PACKET_FLAGS: u16 = 2;
/// Seen from the host of that end: what enters the link there, it has sent.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

#[derive(Debug)]
pub(super) struct Pcap {
    file: BufWriter<File>,
    /// Of the run's start, since 1970.
    start: Duration,
    skip: usize,
    ethernet: bool,
    block: Vec<u8>,
}

impl Pcap {
    #[expect(
        clippy::disallowed_methods,
        reason = "stamps of a capture are wall-clock time"
    )]
    pub(super) fn start(
        file: BufWriter<File>,
        framing: Framing,
        terminals: &[String],
    ) -> io::Result<Self> {
        let mut pcap = Self {
            file,
            start: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            skip: framing.skip,
            ethernet: framing.ethernet,
            block: Vec::new(),
        };
        pcap.put_u32(BYTE_ORDER);
        pcap.put_u16(1); // version 1.0
        pcap.put_u16(0);
        pcap.block.extend(u64::MAX.to_le_bytes()); // length of the section: unknown
        pcap.write_block(SECTION_HEADER)?;
        let link_type = if framing.ethernet {
            LINKTYPE_ETHERNET
        } else {
            LINKTYPE_LINUX_SLL
        };
        for name in std::iter::once("gateway").chain(terminals.iter().map(String::as_str)) {
            pcap.put_u16(link_type);
            pcap.put_u16(0); // reserved
            pcap.put_u32(0); // no limit of length
            pcap.put_option(INTERFACE_NAME, name.as_bytes());
            pcap.put_option(INTERFACE_RESOLUTION, &[NANOSECONDS]);
            pcap.put_option(OPTION_END, &[]);
            pcap.write_block(INTERFACE)?;
        }
        Ok(pcap)
    }

    pub(super) fn crossing(&mut self, crossing: &Crossing) -> io::Result<()> {
        let interface = match crossing.port {
            Port::Gateway { .. } => 0,
            Port::Terminal(terminal) => 1 + terminal.index(),
        };
        let bytes = crossing.packet.bytes.get(self.skip..).unwrap_or_default();
        // A packet has at most 64 KiB, a link at most some hundred terminals, and 64 bits hold 500 years.
        let nanos = (self.start + crossing.at).as_nanos() as u64;
        let cooked = if self.ethernet { 0 } else { SLL_HEADER };
        let length = (cooked + bytes.len()) as u32;
        self.put_u32(interface as u32);
        self.put_u32((nanos >> 32) as u32);
        self.put_u32(nanos as u32);
        self.put_u32(length);
        self.put_u32(length);
        if !self.ethernet {
            self.put_cooked_header(crossing.entering, bytes);
        }
        self.block.extend_from_slice(bytes);
        self.pad();
        let flags = if crossing.entering { OUTBOUND } else { INBOUND };
        self.put_option(PACKET_FLAGS, &flags.to_le_bytes());
        self.put_option(OPTION_END, &[]);
        self.write_block(ENHANCED_PACKET)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Writes what has been put together, between its type and its length, which stands at both ends.
    fn write_block(&mut self, kind: u32) -> io::Result<()> {
        let length = (self.block.len() as u32 + 12).to_le_bytes();
        self.file.write_all(&kind.to_le_bytes())?;
        self.file.write_all(&length)?;
        self.file.write_all(&self.block)?;
        self.file.write_all(&length)?;
        self.block.clear();
        Ok(())
    }

    /// In network byte order, unlike the file around it.
    fn put_cooked_header(&mut self, entering: bool, packet: &[u8]) {
        let kind = if entering { SLL_SENT_BY_US } else { SLL_TO_US };
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let protocol: u16 = if v6 { 0x86dd } else { 0x0800 };
        self.block.extend(kind.to_be_bytes());
        self.block.extend(ARPHRD_NONE.to_be_bytes());
        self.block.extend([0; 10]);
        self.block.extend(protocol.to_be_bytes());
    }

    fn put_option(&mut self, code: u16, value: &[u8]) {
        self.put_u16(code);
        self.put_u16(value.len() as u16);
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn put_u16(&mut self, value: u16) {
        self.block.extend(value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.block.extend(value.to_le_bytes());
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}
