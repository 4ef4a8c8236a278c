//! Ends: the only holders of K1. A sender seals inner packets, a receiver opens them.

use std::fmt;

use bentpipe_proto::packets::write_checksums;
use bytes::{BufMut as _, BytesMut};

use super::packet::PSN;
use super::replay::Place;
use super::segment::{Layout, MAX_HEADER, Transport};
use super::{
    Discarded, Flows, HeaderOpened, HeaderReader, HeaderWriter, MAX_NUMBER, Spi, Toward, Unwritten,
};
use crate::counted_key::{CountedKey, TAG};
use crate::window::Window;

/// Payloads that count once, and are told apart.
const ONCE: u64 = 65_536;

/// Sender of one end, for one association.
pub struct EndSender {
    headers: HeaderWriter,
    payload: CountedKey,
    /// Number of the next payload.
    next: u32,
}

impl EndSender {
    pub(super) fn new(headers: HeaderWriter, payload: CountedKey) -> Self {
        Self {
            headers,
            payload,
            next: 1,
        }
    }

    /// Numbers that the sender has used: of packets, of which no more payloads have one.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.headers.next_number() - 1
    }

    /// Appends the packet that carries the inner `packet` to `out`. Timestamps and ECN are taken out
    /// of a SYN, and its MSS is bounded.
    ///
    /// # Errors
    /// [`Unwritten`]: the inner packet has a form that is not carried, or no number is left. `out`
    /// is as it was.
    pub fn seal(&mut self, packet: &[u8], out: &mut BytesMut) -> Result<(), Unwritten> {
        let layout = Layout::of_packet(packet)?;
        if self.next > MAX_NUMBER {
            return Err(Unwritten::Spent);
        }
        let (own, payload) = packet.split_at(layout.header);
        let mut bytes = [0; MAX_HEADER];
        let header = &mut bytes[..layout.header];
        header.copy_from_slice(own);
        layout.tidy_syn(header);
        let zone = layout.is_end_to_end(header);
        self.headers.put(layout, header, zone, out)?;
        if zone {
            out.put_u32(self.next);
            let start = out.len();
            out.put_slice(payload);
            let bound = layout.bound(header, self.headers.spi(), self.next);
            let tag = self
                .payload
                .seal(self.next.into(), bound.as_ref(), &mut out[start..]);
            out.put_slice(&tag);
            self.next += 1;
        }
        Ok(())
    }

    /// Leaves so many numbers of packets and of payloads.
    #[cfg(test)]
    pub(super) fn spend_all_but(&mut self, packets: u32, payloads: u32) {
        self.headers.spend_all_but(packets);
        self.next = MAX_NUMBER + 1 - payloads;
    }
}

impl fmt::Debug for EndSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndSender({:?}, payload {}, …)", self.headers, self.next)
    }
}

/// Packet that an end has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The packet is one of the other end, or an acknowledgement of a PEP.
    Packet,
    /// The packet is an RST that does not come from the other end: a PEP has given the connection
    /// up. That is an abort, never an end.
    GaveUp,
}

/// Receiver of one end, for one association.
pub struct EndReceiver {
    headers: HeaderReader,
    payload: CountedKey,
    association: u32,
    once: Window<ONCE>,
}

impl EndReceiver {
    pub(super) fn new(headers: HeaderReader, payload: CountedKey, association: u32) -> Self {
        Self {
            headers,
            payload,
            association,
            once: Window::default(),
        }
    }

    /// Name of the direction.
    #[must_use]
    pub fn spi(&self) -> Spi {
        self.headers.spi()
    }

    /// End that the packets go to: this one.
    pub(super) fn toward(&self) -> Toward {
        self.headers.toward()
    }

    /// Highest number that a packet has had.
    pub(super) fn newest_number(&self) -> u32 {
        self.headers.newest_number()
    }

    /// Opens `datagram`, and replaces what is in `out` by the inner packet, with its checksums.
    /// `flows` are those of the direction, over all associations of the tunnel.
    ///
    /// # Errors
    /// [`Discarded`]: the packet is forged, altered, a copy, or of a form that is not carried;
    /// `out` says nothing then.
    pub fn open(
        &mut self,
        datagram: &[u8],
        flows: &mut Flows,
        out: &mut Vec<u8>,
    ) -> Result<Delivered, Discarded> {
        let opened = self.headers.open(datagram)?;
        out.clear();
        out.extend_from_slice(opened.header());
        let mut delivered = Delivered::Packet;
        match opened.zone() {
            Some(zone) => self.open_payload(&opened, zone, flows, out)?,
            None if opened.layout.is_rst(opened.header()) => delivered = Delivered::GaveUp,
            None => {}
        }
        let written = write_checksums(out);
        debug_assert!(written, "the layout has been checked");
        Ok(delivered)
    }

    /// Appends the payload to `out`, if it is true and no copy that must not pass.
    fn open_payload(
        &mut self,
        opened: &HeaderOpened<'_>,
        zone: &[u8],
        flows: &mut Flows,
        out: &mut Vec<u8>,
    ) -> Result<(), Discarded> {
        let (layout, header) = (opened.layout, opened.header());
        let fault = Discarded::PayloadTag;
        let (psn, rest) = zone.split_first_chunk::<PSN>().ok_or(fault)?;
        let (sealed, tag) = rest.split_last_chunk::<TAG>().ok_or(fault)?;
        let psn = u32::from_be_bytes(*psn);
        let start = out.len();
        out.resize(start + sealed.len(), 0);
        let bound = layout.bound(header, self.spi(), psn);
        let text = &mut out[start..];
        if !self
            .payload
            .open(psn.into(), bound.as_ref(), sealed, tag, text)
        {
            return Err(fault);
        }
        self.admit(layout, header, psn, flows)
    }

    /// Sorts out copies.
    fn admit(
        &mut self,
        layout: Layout,
        header: &[u8],
        psn: u32,
        flows: &mut Flows,
    ) -> Result<(), Discarded> {
        let at = Place {
            association: self.association,
            psn,
        };
        let syn = layout.is_syn(header);
        if syn || layout.transport == Transport::Udp {
            let once = self.once.insert(u64::from(psn));
            once.map_err(Discarded::Payload)?;
            if syn {
                flows.on_syn(layout.flow(header), at);
            }
            return Ok(());
        }
        if flows.on_payload(layout.flow(header), at) {
            Ok(())
        } else {
            Err(Discarded::OldPayload(psn, super::FLOW_REACH))
        }
    }
}

impl fmt::Debug for EndReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "EndReceiver({}, {:?}, …)",
            self.association, self.headers
        )
    }
}
