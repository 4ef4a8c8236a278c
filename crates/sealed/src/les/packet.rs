//! Packets: the front in clear, the header zone under K2, and the payload zone, which stays closed
//! here (`PROTOCOL.md` §20.3).

use std::collections::BTreeMap;
use std::fmt;

use bytes::{BufMut as _, BytesMut};

use super::fault::ZoneFault;
use super::segment::{Layout, MAX_HEADER, MTU, Transport};
use super::{Discarded, FlowId, HeaderRoot, Spi, Toward, Unwritten, Writer};
use crate::counted_key::{CountedKey, TAG};
use crate::window::Window;

/// Bytes that LES adds to an inner packet with payload, outer IP and UDP headers aside.
pub const OVERHEAD: usize = FRONT + TAG + PSN + TAG;

/// Highest number of a packet or payload; the association is renewed before.
pub const MAX_NUMBER: u32 = 1 << 31;

/// Packets of one writer that a reader tells apart; older ones are discarded.
pub const WRITER_WINDOW: u64 = 4096;

/// Length of what stands in clear before the header zone.
const FRONT: usize = 12;
/// Length of the payload's number.
pub(super) const PSN: usize = 4;

const VERSION: u8 = 1;
/// A payload zone follows the header zone.
const ZONE: u8 = 1;
/// The inner packet is UDP.
const NOT_TCP: u8 = 2;

/// Bytes in clear before the header zone; the tag of that covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Front {
    spi: Spi,
    zone: bool,
    transport: Transport,
    writer: Writer,
    /// Length of the header zone, a multiple of 4.
    header: usize,
    number: u32,
}

impl Front {
    fn encode(&self) -> [u8; FRONT] {
        let zone = if self.zone { ZONE } else { 0 };
        let udp = match self.transport {
            Transport::Tcp => 0,
            Transport::Udp => NOT_TCP,
        };
        let mut out = [0; FRONT];
        out[..4].copy_from_slice(&self.spi.get().to_be_bytes());
        out[4] = VERSION << 4 | zone | udp;
        out[5] = self.writer.get();
        out[6] = (self.header / 4) as u8;
        out[8..].copy_from_slice(&self.number.to_be_bytes());
        out
    }

    fn parse(bytes: &[u8; FRONT], own: Spi) -> Result<Self, Discarded> {
        let [a, b, c, d, form, writer, words, reserved, e, f, g, h] = *bytes;
        let spi = Spi::new(u32::from_be_bytes([a, b, c, d])).filter(|spi| *spi == own);
        let spi = spi.ok_or(Discarded::Spi(own))?;
        if form >> 4 != VERSION || form & 0x0f & !(ZONE | NOT_TCP) != 0 || reserved != 0 {
            return Err(Discarded::Form(form, words, reserved));
        }
        let header = usize::from(words) * 4;
        if header > MAX_HEADER {
            return Err(Discarded::Form(form, words, reserved));
        }
        let number = u32::from_be_bytes([e, f, g, h]);
        if !(1..=MAX_NUMBER).contains(&number) {
            return Err(Discarded::Number(number));
        }
        Ok(Self {
            spi,
            zone: form & ZONE != 0,
            transport: if form & NOT_TCP == 0 {
                Transport::Tcp
            } else {
                Transport::Udp
            },
            writer: Writer::new(writer),
            header,
            number,
        })
    }
}

/// Association that `datagram` names, believed by nobody yet. `None`: this is no packet.
#[must_use]
pub fn spi_of(datagram: &[u8]) -> Option<Spi> {
    datagram
        .first_chunk()
        .and_then(|bytes| Spi::new(u32::from_be_bytes(*bytes)))
}

/// One writer's half of a direction: writes header zones, under numbers of its own.
pub struct HeaderWriter {
    spi: Spi,
    writer: Writer,
    key: CountedKey,
    next: u32,
}

impl HeaderWriter {
    /// Writer with the keys of one direction. Only one may exist for each writer's number and
    /// direction of an association: its numbers begin with 1.
    #[must_use]
    pub fn new(root: &HeaderRoot, spi: Spi, toward: Toward, writer: Writer) -> Self {
        Self {
            spi,
            writer,
            key: root.key(toward, writer),
            next: 1,
        }
    }

    /// Name of the direction.
    #[must_use]
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// Number of the next packet.
    #[must_use]
    pub fn next_number(&self) -> u32 {
        self.next
    }

    /// Appends the packet of a PEP to `out`: `header` anew, and the payload zone as it came.
    ///
    /// # Errors
    /// [`Unwritten`]: the header has no form that is carried, asks for a zone that is not there, or
    /// no number is left. `out` is as it was.
    pub fn write(
        &mut self,
        header: &[u8],
        zone: Option<&[u8]>,
        out: &mut BytesMut,
    ) -> Result<(), Unwritten> {
        let payload = payload_of(zone)?;
        let layout = Layout::of_header(header, payload)?;
        if zone.is_none() && layout.needs_zone(header) {
            return Err(ZoneFault::Missing.into());
        }
        self.put(layout, header, zone.is_some(), out)?;
        out.put_slice(zone.unwrap_or_default());
        Ok(())
    }

    /// Appends front, header zone and tag.
    pub(super) fn put(
        &mut self,
        layout: Layout,
        header: &[u8],
        zone: bool,
        out: &mut BytesMut,
    ) -> Result<(), Unwritten> {
        if self.next > MAX_NUMBER {
            return Err(Unwritten::Spent);
        }
        let front = Front {
            spi: self.spi,
            zone,
            transport: layout.transport,
            writer: self.writer,
            header: header.len(),
            number: self.next,
        };
        let front = front.encode();
        out.put_slice(&front);
        let start = out.len();
        out.put_slice(header);
        layout.clear_checksums(&mut out[start..]);
        let tag = self.key.seal(self.next.into(), &front, &mut out[start..]);
        out.put_slice(&tag);
        self.next += 1;
        Ok(())
    }

    /// Leaves so many numbers.
    #[cfg(test)]
    pub(super) fn spend_all_but(&mut self, left: u32) {
        self.next = MAX_NUMBER + 1 - left;
    }
}

impl fmt::Debug for HeaderWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HeaderWriter({}, {:?}, at {}, …)",
            self.spi, self.writer, self.next
        )
    }
}

/// Packet whose header zone has been opened, and whose payload zone has not.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderOpened<'a> {
    writer: Writer,
    bytes: [u8; MAX_HEADER],
    pub(super) layout: Layout,
    zone: Option<&'a [u8]>,
}

impl<'a> HeaderOpened<'a> {
    /// Writer of the packet. Holders of K2 cannot be told apart: each can write in another's name.
    #[must_use]
    pub fn writer(&self) -> Writer {
        self.writer
    }

    /// IP and TCP or UDP header; the checksums are 0.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.bytes[..self.layout.header]
    }

    /// Payload zone: its number, the sealed payload, its tag. `None`: the packet has none, and
    /// counts as an acknowledgement alone, or as an RST of a PEP.
    #[must_use]
    pub fn zone(&self) -> Option<&'a [u8]> {
        self.zone
    }

    /// Length of the payload, bytes.
    #[must_use]
    pub fn payload(&self) -> usize {
        self.layout.payload
    }

    /// Addresses and ports. `None`: the packet is UDP.
    #[must_use]
    pub fn flow(&self) -> Option<FlowId> {
        let tcp = self.layout.transport == Transport::Tcp;
        tcp.then(|| self.layout.flow(self.header()))
    }
}

impl fmt::Debug for HeaderOpened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderOpened({:?}, {:?}, …)", self.writer, self.layout)
    }
}

/// Writer's key, with the numbers that it has used.
struct Heard {
    key: CountedKey,
    window: Window<WRITER_WINDOW>,
}

/// Receiver's half of a direction, as far as K2 goes: opens header zones, each once.
///
/// There is a window of [`WRITER_WINDOW`] numbers for each writer from whom a true packet has come:
/// 512 bytes each, for 255 writers at most.
pub struct HeaderReader {
    spi: Spi,
    toward: Toward,
    root: HeaderRoot,
    heard: BTreeMap<Writer, Heard>,
}

impl HeaderReader {
    /// Reader of one direction of an association.
    #[must_use]
    pub fn new(root: HeaderRoot, spi: Spi, toward: Toward) -> Self {
        Self {
            spi,
            toward,
            root,
            heard: BTreeMap::new(),
        }
    }

    /// Name of the direction.
    #[must_use]
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// End that the packets go to.
    pub(super) fn toward(&self) -> Toward {
        self.toward
    }

    /// Highest number that a true packet has had.
    pub(super) fn newest_number(&self) -> u32 {
        let all = self.heard.values().filter_map(|it| it.window.highest());
        all.max()
            .map_or(0, |number| number.try_into().unwrap_or(u32::MAX))
    }

    /// Opens the header zone of `datagram`.
    ///
    /// # Errors
    /// [`Discarded`]: the packet is forged, altered, a copy, or of a form that is not carried.
    pub fn open<'a>(&mut self, datagram: &'a [u8]) -> Result<HeaderOpened<'a>, Discarded> {
        let size = Discarded::Size(datagram.len());
        let (front, rest) = datagram.split_first_chunk().ok_or(size)?;
        let own = Front::parse(front, self.spi)?;
        if datagram.len() > OVERHEAD + MTU {
            return Err(size);
        }
        if !own.writer.writes(self.toward) {
            return Err(Discarded::Writer(own.writer));
        }
        let (sealed, rest) = rest.split_at_checked(own.header).ok_or(size)?;
        let (tag, rest) = rest.split_first_chunk::<TAG>().ok_or(size)?;
        let mut bytes = [0; MAX_HEADER];
        self.authenticate(&own, front, (sealed, tag), &mut bytes[..own.header])?;
        let zone = match (own.zone, rest) {
            (true, zone) => Some(zone),
            (false, []) => None,
            (false, _) => return Err(size),
        };
        let header = &bytes[..own.header];
        let layout = Layout::of_header(header, payload_of(zone)?)?;
        if layout.transport != own.transport {
            return Err(Discarded::Form(front[4], front[6], front[7]));
        }
        if zone.is_none() && layout.needs_zone(header) {
            return Err(ZoneFault::Missing.into());
        }
        Ok(HeaderOpened {
            writer: own.writer,
            bytes,
            layout,
            zone,
        })
    }

    /// Opens the zone into `text`, and uses the packet's number.
    fn authenticate(
        &mut self,
        own: &Front,
        front: &[u8; FRONT],
        (sealed, tag): (&[u8], &[u8; TAG]),
        text: &mut [u8],
    ) -> Result<(), Discarded> {
        let number = u64::from(own.number);
        if let Some(heard) = self.heard.get_mut(&own.writer) {
            // Whose packet this is only the tag tells: a copy of one client's is not what another made up.
            if !heard.key.open(own.number.into(), front, sealed, tag, text) {
                return Err(Discarded::HeaderTag);
            }
            return heard.window.insert(number).map_err(Discarded::Packet);
        }
        // Anybody can name a writer: only a true packet is worth a window.
        let key = self.root.key(self.toward, own.writer);
        if !key.open(own.number.into(), front, sealed, tag, text) {
            return Err(Discarded::HeaderTag);
        }
        let mut window = Window::default();
        window.insert(number).map_err(Discarded::Packet)?;
        self.heard.insert(own.writer, Heard { key, window });
        Ok(())
    }
}

impl fmt::Debug for HeaderReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HeaderReader({}, {} writers, …)",
            self.spi,
            self.heard.len()
        )
    }
}

/// Length of the payload in a payload zone.
fn payload_of(zone: Option<&[u8]>) -> Result<usize, ZoneFault> {
    zone.map_or(Ok(0), |zone| {
        let payload = zone.len().checked_sub(PSN + TAG);
        payload.ok_or(ZoneFault::Short(zone.len()))
    })
}
