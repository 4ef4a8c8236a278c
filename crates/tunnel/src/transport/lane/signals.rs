//! What both ends of a lane say to each other: HELLO, how fast a train came, how to acknowledge, what to keep for repairs,
//! where flows wait after a silence.

use std::time::{Duration, Instant};

use bentpipe_congestion::Estimate;
use bentpipe_proto::fec::{Fec, Path};
use bentpipe_proto::tunnel::{Acks, Awaited, Control, Forward, MAX_AWAITED, capability};
use bentpipe_units::BitRate;
use bytes::Bytes;

use super::super::event::Fault;
use super::control::ControlStream;
use super::repair::Repairs;
use super::{FecStats, Lane, Streams, Tunnel};

impl Lane {
    fn send(&mut self, frame: &Control) {
        if let Some(control) = &mut self.control {
            control.send(frame);
        }
    }

    /// Server: answers the client's HELLO; `forward` is what it is granted.
    pub(crate) fn greet(&mut self, tunnel: &mut Tunnel, forward: Forward) {
        let mut hello = tunnel.greet(forward);
        Repairs::announce(&mut hello, tunnel.ceiling());
        self.send(&Control::Hello(hello));
    }

    pub(super) fn read_control(
        &mut self,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
    ) -> Result<(), Fault> {
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        let goes_on = control.read(quic)?;
        tunnel.stats_mut().received.control = control.taken();
        if !goes_on && !quic.is_closed() {
            return Err(Fault::Violation("the control stream ended"));
        }
        while let Some(frame) = self
            .control
            .as_mut()
            .map_or(Ok(None), ControlStream::next_frame)?
        {
            self.on_frame(tunnel, quic, frame)?;
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        tunnel: &mut Tunnel,
        quic: &mut Streams,
        frame: Control,
    ) -> Result<(), Fault> {
        if tunnel.agreement().remote().is_none() && !matches!(frame, Control::Hello(_)) {
            return Err(Fault::Violation("the first control frame is not HELLO"));
        }
        match frame {
            Control::Keep { bytes } => self.repairs.on_keep(bytes, tunnel.ceiling()),
            Control::Acks(acks) => self.ack_wish = Some(acks),
            Control::RateHint { rate, packets } => {
                if packets > 1 {
                    self.rate_hint = Some(rate);
                }
            }
            frame => tunnel.on_frame(quic, frame)?,
        }
        Ok(())
    }

    /// Rate at which the peer saw our train arrive (IP layer), if it has just said so.
    pub(crate) fn take_rate_hint(&mut self) -> Option<BitRate> {
        self.rate_hint.take()
    }

    /// The peer's train has come: the peer is told, and what the path brings is known before anything else came.
    pub(crate) fn on_train(&mut self, tunnel: &mut Tunnel, quic: &mut Streams, train: Estimate) {
        self.send(&Control::RateHint {
            rate: train.rate,
            packets: train.packets,
        });
        quic.on_train(train);
        tunnel.widen(quic);
    }

    /// Tells the peer when this side wants to be acknowledged (`PROTOCOL.md` §5.7).
    pub(crate) fn wish_acks(&mut self, acks: Acks) {
        self.send(&Control::Acks(acks));
    }

    /// Acknowledgements that the peer wants, if it has just said so.
    pub(crate) fn take_ack_wish(&mut self) -> Option<Acks> {
        self.ack_wish.take()
    }

    /// Has what this side sends repaired as `fec` says, if the peer can make use of that.
    pub(crate) fn set_fec(&mut self, tunnel: &Tunnel, fec: Fec) {
        let window = match tunnel.agreement().remote() {
            Some(hello) if hello.capabilities & capability::REPAIR != 0 => hello.repair_window,
            _ => 0,
        };
        self.repairs.configure(fec, window, tunnel.ceiling());
    }

    /// `bytes` leave over a path of which so much is known.
    pub(crate) fn on_path(&mut self, now: Instant, bytes: usize, path: &Path) {
        if let Some(bytes) = self.repairs.on_path(now, bytes, path) {
            self.send(&Control::Keep { bytes });
        }
    }

    /// Datagrams in which something stands alone are to leave twice.
    pub(crate) fn wants_copies(&self) -> bool {
        self.repairs.outgoing.wants_copies()
    }

    /// A copy of so many bytes is about to leave; false if that is too much.
    pub(crate) fn pay_copy(&mut self, bytes: usize) -> bool {
        self.repairs.outgoing.pay_copy(bytes)
    }

    /// `bytes` came over the path. True if the peer has begun to repair.
    pub(crate) fn on_path_received(&mut self, bytes: usize) -> bool {
        self.repairs.on_received(bytes)
    }

    /// Repairs wait to be decoded.
    pub(crate) fn has_repairs(&self) -> bool {
        self.repairs.incoming.has_work()
    }

    /// Decodes some of them, which [`Self::mend`] then gives to the flows. True if there are more.
    pub(crate) fn decode_repairs(&mut self, now: Instant) -> bool {
        self.repairs.incoming.work(now)
    }

    /// Counters of repairs.
    pub fn fec(&self) -> FecStats {
        self.repairs.stats()
    }

    /// Places at which flows wait, as content of a DATAGRAM frame of `size` bytes or more: of many flows some, and others the next
    /// time. `None`: nowhere.
    pub(crate) fn awaited(&mut self, tunnel: &Tunnel, size: usize) -> Option<Bytes> {
        let places = tunnel.places(self.resumption.listed(), MAX_AWAITED);
        (!places.is_empty()).then(|| Awaited { places }.encode(size).into())
    }

    /// No more than so many bytes of streams are not acknowledged.
    pub(crate) fn on_in_flight(&mut self, bytes: u64) {
        self.resumption.on_in_flight(bytes);
    }

    /// Places at which the peer has just said that it waits.
    pub(crate) fn take_asked(&mut self) -> Option<Awaited> {
        self.resumption.take_asked()
    }

    /// Bytes that the peer waits for, as DATAGRAM frames of at most `size` bytes, `most` together: once in a round trip, for an
    /// answer is under way for half of one.
    pub(crate) fn say_again(
        &mut self,
        tunnel: &mut Tunnel,
        (now, rtt): (Instant, Duration),
        awaited: &Awaited,
        (size, most): (usize, usize),
    ) -> Vec<Bytes> {
        let frames = self.resumption.say_again((now, rtt), awaited, size, most);
        tunnel.stats_mut().sent.repairs +=
            frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        frames
    }
}
