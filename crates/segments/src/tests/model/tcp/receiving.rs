//! Segments that an end takes: in its window, at the very byte, and with the bytes that the other
//! end wrote.

use crate::{Flags, Segment};

use super::{Micros, State, Tcp, place};

impl Tcp {
    pub(super) fn on_words(&mut self, now: Micros, segment: &Segment) {
        let at = place(self.peer, segment.number, self.rcv);
        let end = at + segment.span();
        let fits = at < self.told && end > self.rcv;
        let acceptable = at == self.rcv || fits || end == at && (self.rcv..self.told).contains(&at);
        if segment.flags.has(Flags::RST) {
            if at == self.rcv {
                self.state = State::Reset;
                self.due = None;
            } else if acceptable {
                self.ack();
            }
            return;
        }
        if !acceptable || segment.flags.has(Flags::SYN) {
            self.ack();
            return;
        }
        let acknowledged = place(self.script.initial, segment.acknowledgement, self.una);
        if acknowledged > self.max {
            self.ack();
            return;
        }
        if self.state == State::SynReceived {
            if acknowledged == 0 {
                return;
            }
            self.open(now);
        }
        self.on_ack(now, at, acknowledged, segment);
        if segment.span() > 0 {
            self.take(at, segment);
            self.ack();
        }
    }

    /// Takes payload within the window; every byte must be the one that the other end wrote.
    fn take(&mut self, at: u64, segment: &Segment) {
        let length = u64::from(segment.length);
        let fin = segment.flags.has(Flags::FIN);
        let mut payload = &segment.zone[..];
        if self.other.zones {
            assert_eq!(
                payload.len() as u64,
                length + 24,
                "a zone was cut or merged"
            );
            assert_eq!(payload[..4], (at as u32).to_be_bytes(), "a zone has moved");
            assert_eq!(payload[payload.len() - 1], u8::from(fin));
            payload = &payload[8..payload.len() - 16];
        }
        assert_eq!(payload.len() as u64, length);
        for (index, byte) in payload.iter().enumerate() {
            assert_eq!(
                *byte,
                self.other.byte(at - 1 + index as u64),
                "a byte was changed"
            );
        }
        let (from, end) = (at.max(self.rcv), (at + length).min(self.told));
        if fin && at + length <= self.told {
            assert_eq!(at + length, 1 + self.other.total, "the end has moved");
            self.fin = Some(at + length);
        }
        if from < end {
            let reached = self.early.entry(from).or_default();
            *reached = end.max(*reached);
        }
        let before = self.rcv;
        while let Some((&start, &end)) = self.early.first_key_value()
            && start <= self.rcv
        {
            self.early.remove(&start);
            self.rcv = self.rcv.max(end);
        }
        self.unread += self.rcv - before;
        if self.fin == Some(self.rcv) {
            self.rcv += 1;
        }
        self.raise();
    }

    pub(super) fn raise(&mut self) -> bool {
        let edge = self.rcv + (self.script.room.saturating_sub(self.unread));
        let worth = u64::from(self.script.mss).min(self.script.room / 2);
        let rises = edge >= self.told + worth;
        if rises {
            self.told = edge;
        }
        self.told = self.told.max(self.rcv);
        rises
    }
}
