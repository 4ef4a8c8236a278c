//! Handshake of a flow, read while its segments pass untouched from end to end; and how far each
//! end is when the relay begins.

use crate::reset::{Notice, Side};
use crate::segment::{Flags, Numbers, Segment, SynOptions};
use crate::sender::Reception;

/// Largest segment of an end that names none (RFC 9293 §3.7.1), bytes.
const UNNAMED: u16 = 536;

/// Bytes that a segment may reach beyond the window that was seen: one more segment.
const SLACK: u64 = 65_535;

/// SYN, or SYN-ACK, of one end.
#[derive(Clone, Copy, Debug)]
struct Syn {
    numbers: Numbers,
    options: SynOptions,
}

/// How far one end is. Places are offsets.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    /// Place in the other end's numbers that it has acknowledged.
    acknowledged: u64,
    /// End of what it has sent, and of the bytes thereof, without a FIN.
    passed: u64,
    bytes: u64,
    /// Place in the other end's numbers up to which it permits to send.
    edge: u64,
    /// Place of the segment that said so.
    edge_from: u64,
}

/// Handshake of one flow, and what has passed since.
#[derive(Debug)]
pub(crate) struct Handshake {
    initiator: Side,
    syn: Syn,
    answer: Option<Syn>,
    lan: Reached,
    wan: Reached,
    /// A FIN or RST has passed, or something that a PEP should keep out of.
    barred: bool,
    /// The near end has reset the connection, by an RST that the far end would take.
    reset: bool,
}

impl Handshake {
    /// Handshake that begins with this SYN from `initiator`.
    pub(crate) fn new(initiator: Side, segment: &Segment) -> Self {
        let syn = Syn {
            numbers: Numbers::new(segment.number),
            options: segment.options,
        };
        let mut own = Self {
            initiator,
            syn,
            answer: None,
            lan: Reached::default(),
            wan: Reached::default(),
            barred: segment.flags.has(Flags::FIN | Flags::RST),
            reset: false,
        };
        let reached = own.reached(initiator);
        reached.passed = segment.span();
        reached.bytes = 1 + u64::from(segment.length);
        reached.edge = 1 + u64::from(segment.window);
        own
    }

    fn reached(&mut self, side: Side) -> &mut Reached {
        match side {
            Side::Lan => &mut self.lan,
            Side::Wan => &mut self.wan,
        }
    }

    fn syn_of(&self, side: Side) -> Option<Syn> {
        if side == self.initiator {
            Some(self.syn)
        } else {
            self.answer
        }
    }

    /// Numbers of the end on this `side`, once its SYN was seen.
    pub(crate) fn numbers(&self, side: Side) -> Option<Numbers> {
        self.syn_of(side).map(|syn| syn.numbers)
    }

    /// Side of the end that sent the SYN.
    pub(crate) fn initiator(&self) -> Side {
        self.initiator
    }

    /// Sequence numbers of SYN and SYN-ACK.
    pub(crate) fn initial(&self) -> Option<[u32; 2]> {
        let answer = self.answer?.numbers.initial();
        Some([self.syn.numbers.initial(), answer])
    }

    /// Says whether a PEP may step into this connection.
    pub(crate) fn may_relay(&self) -> bool {
        !self.barred
    }

    /// Says whether the near end has reset the connection.
    pub(crate) fn is_reset(&self) -> bool {
        self.reset
    }

    /// Says whether the initiator has acknowledged the SYN-ACK.
    pub(crate) fn is_established(&self) -> bool {
        let reached = match self.initiator {
            Side::Lan => self.lan,
            Side::Wan => self.wan,
        };
        self.answer.is_some() && reached.acknowledged > 0
    }

    /// Shift of the windows of the end on this `side`: none unless both ends offer it.
    fn shift(&self, side: Side) -> u8 {
        let both = [Some(self.syn), self.answer].map(|syn| syn.and_then(|syn| syn.options.scale));
        match (both, self.syn_of(side)) {
            ([Some(_), Some(_)], Some(own)) => own.options.scale.unwrap_or(0).min(14),
            _ => 0,
        }
    }

    /// Notes a segment that passes from `side`. True: it was the first SYN-ACK.
    pub(crate) fn on_pass(&mut self, side: Side, segment: &Segment) -> bool {
        self.barred |= segment.flags.has(Flags::FIN | Flags::RST);
        if segment.flags.has(Flags::SYN) {
            return self.on_syn(side, segment);
        }
        let (Some(own), Some(other)) = (self.numbers(side), self.numbers(side.other())) else {
            return false;
        };
        let shift = self.shift(side);
        let (sent, allowed) = (self.reached(side.other()).passed, {
            self.reached(side.other()).edge
        });
        let reached = self.reached(side);
        let Some(place) = own.offset(segment.number, reached.passed) else {
            return false;
        };
        let lan = side == Side::Lan;
        let resets = lan && segment.flags.has(Flags::RST) && place == reached.passed;
        let end = place + segment.span();
        // Who does not see the path guesses numbers: what the windows rule out does not count.
        if end > allowed + SLACK {
            return false;
        }
        reached.passed = reached.passed.max(end);
        reached.bytes = reached.bytes.max(place + u64::from(segment.length));
        let acknowledged = other.offset(segment.acknowledgement, reached.acknowledged);
        if let Some(acknowledged) =
            acknowledged.filter(|it| (reached.acknowledged..=sent).contains(it))
            && segment.flags.has(Flags::ACK)
        {
            reached.acknowledged = acknowledged;
            if place >= reached.edge_from {
                reached.edge_from = place;
                reached.edge = acknowledged + (u64::from(segment.window) << shift);
            }
        }
        self.reset |= resets;
        false
    }

    fn on_syn(&mut self, side: Side, segment: &Segment) -> bool {
        if side == self.initiator {
            self.barred |= segment.number != self.syn.numbers.initial();
            return false;
        }
        if let Some(answer) = self.answer {
            self.barred |= segment.number != answer.numbers.initial();
            return false;
        }
        let acknowledged = self.syn.numbers.offset(segment.acknowledgement, 1);
        let sent = self.reached(self.initiator).passed;
        let acknowledged = acknowledged.filter(|it| (1..=sent).contains(it));
        let (true, Some(acknowledged)) = (segment.flags.has(Flags::ACK), acknowledged) else {
            // Both ends begin, or the answer is for an earlier SYN.
            self.barred = true;
            return false;
        };
        // An option is in force if the answer has it.
        self.barred |= segment.options.foreign || segment.flags.has(Flags::ECN);
        self.answer = Some(Syn {
            numbers: Numbers::new(segment.number),
            options: segment.options,
        });
        *self.reached(side) = Reached {
            acknowledged,
            passed: segment.span(),
            bytes: 1 + u64::from(segment.length),
            edge: acknowledged + u64::from(segment.window),
            edge_from: 0,
        };
        true
    }

    /// How far the near end is, for a sender towards it.
    pub(crate) fn reception(&self) -> Reception {
        let named = self.syn_of(Side::Lan).and_then(|syn| syn.options.largest);
        Reception {
            acknowledged: self.lan.acknowledged.max(1),
            passed: self.wan.passed,
            edge: self.lan.edge,
            edge_from: self.lan.edge_from,
            shift: self.shift(Side::Lan),
            largest: named.unwrap_or(UNNAMED),
        }
    }

    /// Place in the near end's numbers that the far end has acknowledged; end of the bytes that have
    /// passed, without a FIN; and the shift of windows that are told in the far end's name.
    pub(crate) fn far_reception(&self) -> (u64, u64, u8) {
        let acknowledged = self.wan.acknowledged.max(1);
        (acknowledged, self.lan.bytes, self.shift(Side::Wan))
    }
}

/// Notice to the end on `side`, which probably expects the byte with `number`, and has sent bytes up
/// to about `sent`.
pub(crate) fn notice(side: Side, number: u32, sent: u32) -> Notice {
    /// Half of what a window may have at most (RFC 7323 §2.3), so that no end expects it.
    const LONG_AGO: u32 = 1 << 30;
    Notice {
        side,
        number,
        old: number.wrapping_sub(LONG_AGO),
        acknowledgement: sent.wrapping_sub(LONG_AGO),
    }
}
