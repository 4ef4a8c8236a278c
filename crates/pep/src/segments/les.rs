//! Packets of LES on their way through a PEP: their header zones are opened with keys that clients have granted, and written
//! anew for what the PEP sends in an end's name.
//!
//! ```text
//!   packet ─► outer headers │ datagram ─► HeaderKeys: open ─► segment whose payload zone stays closed ─► SegmentRelays
//!   packet ◄─ outer headers │ datagram ◄─ HeaderKeys: write ◄─ segment ◄──────────────────────────────── SegmentRelays
//! ```
//!
//! Outer headers are those of the pair's last true packet in that direction, so that a PEP sends as the end would.

use std::collections::HashMap;
use std::time::Instant;

use bentpipe_proto::packets::{Header, write_checksums};
use bentpipe_sealed::les::{Spi, Toward};
use bentpipe_segments::{FlowName, Headers, Scope, Segment, Side};
use bytes::{BufMut as _, Bytes, BytesMut};

/// Number of UDP among IP protocols.
const UDP: u8 = 17;

/// Length of a UDP header, bytes.
const UDP_HEADER: usize = 8;

/// Packet whose header zone a key has opened.
#[derive(Debug)]
pub(super) struct OpenedPacket {
    /// Pair of ends that the packet belongs to (`PROTOCOL.md` §20.9).
    pub(super) scope: Scope,
    /// End that it goes to.
    pub(super) toward: Toward,
    /// Name of the direction of its association.
    pub(super) spi: Spi,
    /// An earlier process may have acknowledged bytes of the pair's flows.
    pub(super) renewed: bool,
    /// Inner IP and TCP header, checksums 0.
    pub(super) header: Bytes,
    /// Payload zone as it came; empty if there is none.
    pub(super) zone: Bytes,
}

/// Reason why a packet of LES was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaysClosed {
    /// The key is not here, or the packet is none that a PEP relays: it passes untouched.
    NoKey,
    /// The packet is a copy, which no hop hands on (`PROTOCOL.md` §20.4).
    Copy,
}

/// Fault of a segment of LES that cannot be written: its key is not here, the way to the end is not known yet, or the header has no
/// form that is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StaysUnwritten;

/// Keys of header zones that clients have granted to this PEP.
pub(super) trait HeaderKeys {
    /// Opens the header zone of a datagram; the payload zone is a part of it.
    fn open(&mut self, now: Instant, datagram: &Bytes) -> Result<OpenedPacket, StaysClosed>;

    /// Appends a packet of this PEP to `out`, with this header, and this payload zone, which is bound to the association with the SPI.
    fn write(
        &mut self,
        now: Instant,
        pair: (&Scope, Toward),
        parts: (&[u8], Option<(Spi, &[u8])>),
        out: &mut BytesMut,
    ) -> Result<(), StaysUnwritten>;

    /// Says whether the pair has keys here, but none of the association with the SPI: not yet, or no more.
    fn lacks(&self, pair: (&Scope, Toward), spi: Spi) -> bool;

    /// Says whether a key of the pair is here, if only for last words.
    fn holds(&self, scope: &Scope) -> bool;

    /// Says whether a key of the pair is here, and not about to go.
    fn stays(&self, scope: &Scope) -> bool;
}

/// No keys: nobody has granted any.
pub(super) struct NoKeys;

impl HeaderKeys for NoKeys {
    fn open(&mut self, _: Instant, _: &Bytes) -> Result<OpenedPacket, StaysClosed> {
        Err(StaysClosed::NoKey)
    }

    fn write(
        &mut self,
        _: Instant,
        _: (&Scope, Toward),
        _: (&[u8], Option<(Spi, &[u8])>),
        _: &mut BytesMut,
    ) -> Result<(), StaysUnwritten> {
        Err(StaysUnwritten)
    }

    fn lacks(&self, _: (&Scope, Toward), _: Spi) -> bool {
        false
    }

    fn holds(&self, _: &Scope) -> bool {
        false
    }

    fn stays(&self, _: &Scope) -> bool {
        false
    }
}

/// Pair of ends whose packets have passed.
struct KnownPair {
    /// Side of A.
    client: Side,
    /// IP and UDP header of the last packet toward B, and toward A.
    outer: [Option<Bytes>; 2],
}

impl KnownPair {
    /// Direction to the end on `side`.
    fn toward(&self, side: Side) -> Toward {
        match side == self.client {
            true => Toward::A,
            false => Toward::B,
        }
    }
}

/// Segment of a flow of LES.
#[derive(Debug)]
pub(super) struct LayeredSegment {
    pub(super) name: FlowName,
    pub(super) segment: Segment,
    /// An earlier process may have relayed flows of its pair.
    pub(super) renewed: bool,
}

/// Keys, and the pairs of ends that are known: those of which a key is here.
pub(super) struct Layers {
    keys: Box<dyn HeaderKeys>,
    pairs: HashMap<Scope, KnownPair>,
}

impl Layers {
    /// No pair is known yet.
    pub(super) fn new(keys: Box<dyn HeaderKeys>) -> Self {
        Self {
            keys,
            pairs: HashMap::new(),
        }
    }

    /// Opens a packet that came from `side`.
    pub(super) fn open(
        &mut self,
        now: Instant,
        side: Side,
        packet: &Bytes,
    ) -> Result<LayeredSegment, StaysClosed> {
        let header = Header::parse(packet).filter(|it| it.protocol == UDP && !it.fragment);
        let start = header.map_or(packet.len(), |header| header.offset + UDP_HEADER);
        if start > packet.len() {
            return Err(StaysClosed::NoKey);
        }
        let opened = self.keys.open(now, &packet.slice(start..))?;
        self.learn(side, &opened, packet.slice(..start));
        // UDP has no flows that a PEP relays.
        let headers = Headers::read(&opened.header).ok_or(StaysClosed::NoKey)?;
        let (lan, wan) = match side {
            Side::Lan => (headers.source, headers.destination),
            Side::Wan => (headers.destination, headers.source),
        };
        Ok(LayeredSegment {
            name: FlowName {
                scope: opened.scope,
                lan,
                wan,
            },
            segment: Segment {
                zone: named(opened.spi, &opened.zone),
                ..headers.segment
            },
            renewed: opened.renewed,
        })
    }

    /// Says whether flows of the pair may be relayed: its keys are not about to go.
    pub(super) fn stays(&self, scope: &Scope) -> bool {
        self.keys.stays(scope)
    }

    /// Learns outer headers from a true packet, and on which side its ends are.
    fn learn(&mut self, side: Side, opened: &OpenedPacket, outer: Bytes) {
        if !self.pairs.contains_key(&opened.scope) {
            // As many as keys are granted for, which is bounded for each client of the list.
            let keys = &self.keys;
            self.pairs.retain(|scope, _| keys.holds(scope));
        }
        let client = match opened.toward {
            Toward::B => side,
            Toward::A => side.other(),
        };
        let known = self.pairs.entry(opened.scope).or_insert(KnownPair {
            client,
            outer: [None, None],
        });
        known.client = client;
        if opened.toward == Toward::B
            && let Some(back) = &mut known.outer[place(Toward::A)]
        {
            *back = readdressed(back, &outer);
        }
        known.outer[place(opened.toward)] = Some(outer);
    }

    /// Says whether this zone, as it travels between PEPs, cannot be written to the end on `side`: keys of the pair are here, but
    /// not the one of the association to which the zone is bound.
    pub(super) fn lack_key(&self, (name, side): (&FlowName, Side), zone: &[u8]) -> bool {
        let Some(known) = self.pairs.get(&name.scope) else {
            return false;
        };
        match unnamed(zone) {
            Ok(Some((spi, _))) => self.keys.lacks((&name.scope, known.toward(side)), spi),
            Ok(None) => false,
            Err(NamedWrong) => true,
        }
    }

    /// Packet of a segment to the end on `side`, in the other end's name.
    pub(super) fn write(
        &mut self,
        now: Instant,
        (name, side): (&FlowName, Side),
        segment: &Segment,
    ) -> Result<Bytes, StaysUnwritten> {
        let known = self.pairs.get(&name.scope).ok_or(StaysUnwritten)?;
        let toward = known.toward(side);
        let outer = known.outer[place(toward)].as_ref().ok_or(StaysUnwritten)?;
        let (from, to) = match side {
            Side::Lan => (name.wan, name.lan),
            Side::Wan => (name.lan, name.wan),
        };
        let mut header = BytesMut::with_capacity(60);
        if !Headers::write(from, to, segment, &mut header) {
            return Err(StaysUnwritten);
        }
        let mut out = BytesMut::from(&outer[..]);
        let zone = unnamed(&segment.zone).map_err(|_| StaysUnwritten)?;
        let pair = (&name.scope, toward);
        self.keys.write(now, pair, (&header, zone), &mut out)?;
        let finished = finish(&mut out, outer.len());
        finished.then(|| out.freeze()).ok_or(StaysUnwritten)
    }
}

/// Fault of a zone that has travelled: its association has a name that is reserved, of which nobody has a key.
#[derive(Debug)]
struct NamedWrong;

/// Zone as it travels between PEPs: behind the SPI of the association to which the end has bound it (`PROTOCOL.md` §20.9).
fn named(spi: Spi, zone: &[u8]) -> Bytes {
    if zone.is_empty() {
        return Bytes::new();
    }
    let mut out = BytesMut::with_capacity(size_of::<u32>() + zone.len());
    out.put_u32(spi.get());
    out.put_slice(zone);
    out.freeze()
}

/// SPI and payload zone of a zone that has travelled; `None`: there is none.
fn unnamed(zone: &[u8]) -> Result<Option<(Spi, &[u8])>, NamedWrong> {
    let Some((name, zone)) = zone.split_first_chunk() else {
        return Ok(None);
    };
    let spi = Spi::new(u32::from_be_bytes(*name)).ok_or(NamedWrong)?;
    Ok(Some((spi, zone)))
}

/// Outer headers toward A, at the address and port that A has now: those that its packet with these `outer` headers came from.
fn readdressed(back: &Bytes, outer: &Bytes) -> Bytes {
    if back.len() != outer.len() || back[0] >> 4 != outer[0] >> 4 {
        return back.clone();
    }
    let (source, length) = match outer[0] >> 4 {
        4 => (12, 4),
        _ => (8, 16),
    };
    let ports = outer.len() - UDP_HEADER;
    let (address, port) = (source + length, ports + 2);
    if back[address..address + length] == outer[source..address]
        && back[port..port + 2] == outer[ports..port]
    {
        return back.clone();
    }
    let mut changed = BytesMut::from(&back[..]);
    changed[address..address + length].copy_from_slice(&outer[source..address]);
    changed[port..port + 2].copy_from_slice(&outer[ports..port]);
    changed.freeze()
}

/// Place of a direction in pairs.
const fn place(toward: Toward) -> usize {
    match toward {
        Toward::B => 0,
        Toward::A => 1,
    }
}

/// Writes lengths and checksums of a packet whose first `head` bytes are those of another one. False: it would be too long.
fn finish(packet: &mut [u8], head: usize) -> bool {
    let both = [packet.len(), packet.len() - head + UDP_HEADER].map(u16::try_from);
    let [Ok(whole), Ok(udp)] = both else {
        return false;
    };
    if packet[0] >> 4 == 4 {
        packet[2..4].copy_from_slice(&whole.to_be_bytes());
        // Never cut, so that the identification means nothing (RFC 6864 §4.1).
        packet[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
    } else {
        packet[4..6].copy_from_slice(&whole.saturating_sub(40).to_be_bytes());
    }
    packet[head - 4..head - 2].copy_from_slice(&udp.to_be_bytes());
    write_checksums(packet)
}

#[cfg(test)]
mod tests;
