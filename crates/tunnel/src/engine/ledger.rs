//! What the bytes on the link are for: satellite bytes are metered, and their owner wants to know.
//!
//! Every datagram is entered once, when it is built or has been read, by the frames that quinn counts in it. What a datagram of
//! data holds is split by what was written into streams; the rest is headers and, as far as quinn has declared packets lost,
//! retransmissions. So the accounts always add up to the bytes that crossed.

use std::net::SocketAddr;
use std::ops::AddAssign;

use quinn_proto::FrameStats;
use serde::{Deserialize, Serialize};

use super::settings::headers;
use crate::transport::Carried;

/// Bytes of a lost packet that are not sent again, about: short header, tag and STREAM header.
const OVERHEAD: u64 = 32;

/// Bytes by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Account of what this side sent.
    pub sent: Account,
    /// Account of what this side received.
    pub received: Account,
}

/// Bytes of one direction: UDP payload, but for the last entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Payload of flows, with OPEN and REPLY.
    pub streams: u64,
    /// DNS messages.
    pub dns: u64,
    /// IP packets, as they cross in DATAGRAM frames.
    pub packets: u64,
    /// Control frames of the tunnel.
    pub control: u64,
    /// Bytes that were sent again because they were lost; a receiver cannot tell.
    pub retransmissions: u64,
    /// Repairs, and datagrams that left, or came, a second time as a precaution.
    pub repair: u64,
    /// Datagrams that only acknowledge.
    pub acks: u64,
    /// Trains, keep-alives, and probes of path, address and packet size.
    pub probes: u64,
    /// Everything until the handshake is complete, attempts that nobody answered included, and TLS after that.
    pub handshake: u64,
    /// Datagrams of no connection: first ones, stateless resets and what brought them about.
    pub stateless: u64,
    /// Headers and tags of datagrams with data, acknowledgements in them, and what was received twice.
    pub headers: u64,
    /// IP and UDP headers.
    pub ip_headers: u64,
}

impl Account {
    /// UDP payload.
    #[must_use]
    pub fn udp(&self) -> u64 {
        let payload = self.streams + self.dns + self.packets + self.control;
        let again = self.retransmissions + self.repair;
        let upkeep = self.acks + self.probes + self.handshake + self.stateless;
        payload + again + upkeep + self.headers
    }

    /// Whole packets.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.udp() + self.ip_headers
    }

    /// A datagram that belongs to no connection, from or to `other`.
    pub(super) fn enter_stray(&mut self, other: SocketAddr, size: usize) {
        self.stateless += size as u64;
        self.ip_headers += headers(other.ip().to_canonical().is_ipv6());
    }
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.streams += other.streams;
        self.dns += other.dns;
        self.packets += other.packets;
        self.control += other.control;
        self.retransmissions += other.retransmissions;
        self.repair += other.repair;
        self.acks += other.acks;
        self.probes += other.probes;
        self.handshake += other.handshake;
        self.stateless += other.stateless;
        self.headers += other.headers;
        self.ip_headers += other.ip_headers;
    }
}

impl AddAssign for Ledger {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

impl Ledger {
    /// Whole packets, both directions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sent.total() + self.received.total()
    }
}

/// Datagrams of one direction, by the kind of what is in them.
#[derive(Debug, Default)]
struct Datagrams {
    seen: FrameStats,
    data: u64,
    acks: u64,
    probes: u64,
    handshake: u64,
    repair: u64,
    ip_headers: u64,
}

/// The books of one connection.
#[derive(Debug, Default)]
pub(super) struct Books {
    sent: Datagrams,
    received: Datagrams,
}

impl Books {
    /// `size` bytes in `count` datagrams leave; `frames` is what quinn has sent so far, `headers` what IP and UDP add to
    /// each. `handshake`: it is not complete yet.
    pub(super) fn on_sent(
        &mut self,
        frames: FrameStats,
        size: u64,
        count: u64,
        headers: u64,
        handshake: bool,
    ) {
        self.sent.enter(frames, size, count * headers, handshake);
    }

    /// As [`Self::on_sent`], for one that has come.
    pub(super) fn on_received(
        &mut self,
        frames: FrameStats,
        size: u64,
        headers: u64,
        handshake: bool,
    ) {
        self.received.enter(frames, size, headers, handshake);
    }

    /// The accounts, given what streams have carried and what quinn has declared lost.
    pub(super) fn close(
        &self,
        sent: Carried,
        received: Carried,
        lost_bytes: u64,
        lost_packets: u64,
    ) -> Ledger {
        let again = lost_bytes.saturating_sub(lost_packets * OVERHEAD);
        // Of what was lost, only the part of streams is sent again.
        let streams = sent.control + sent.dns + sent.flows;
        let all = streams + sent.packets + sent.repairs + sent.trains;
        let again = u128::from(again) * u128::from(streams) / u128::from(all.max(1));
        let again = u64::try_from(again).unwrap_or(u64::MAX);
        Ledger {
            sent: self.sent.account(sent, again),
            received: self.received.account(received, 0),
        }
    }
}

impl Datagrams {
    fn enter(&mut self, frames: FrameStats, size: u64, ip_headers: u64, handshake: bool) {
        let place = match DatagramUse::of(&self.seen, &frames) {
            // Streams may begin before it is complete, and their bytes are taken from `data`.
            DatagramUse::Data => &mut self.data,
            DatagramUse::Handshake => &mut self.handshake,
            _ if handshake => &mut self.handshake,
            DatagramUse::Acks => &mut self.acks,
            DatagramUse::Probe => &mut self.probes,
            DatagramUse::Copy => &mut self.repair,
        };
        *place += size;
        self.ip_headers += ip_headers;
        self.seen = frames;
    }

    fn account(&self, carried: Carried, again: u64) -> Account {
        // What was written and has not left yet is nowhere on the link.
        let mut rest = self.data;
        let mut take = |bytes: u64| {
            let taken = bytes.min(rest);
            rest -= taken;
            taken
        };
        Account {
            control: take(carried.control),
            dns: take(carried.dns),
            streams: take(carried.flows),
            packets: take(carried.packets),
            repair: take(carried.repairs) + self.repair,
            probes: take(carried.trains) + self.probes,
            retransmissions: take(again),
            headers: rest,
            acks: self.acks,
            handshake: self.handshake,
            stateless: 0,
            ip_headers: self.ip_headers,
        }
    }
}

/// Use of a datagram.
enum DatagramUse {
    Data,
    Acks,
    Probe,
    Handshake,
    /// quinn has not counted anything in it.
    Copy,
}

impl DatagramUse {
    fn of(before: &FrameStats, after: &FrameStats) -> Self {
        let more = |count: fn(&FrameStats) -> u64| count(after) > count(before);
        let data = |frames: &FrameStats| {
            let flow_control = frames.max_data + frames.max_stream_data + frames.max_streams_bidi;
            let blocked = frames.data_blocked + frames.stream_data_blocked;
            let ends = frames.reset_stream + frames.stop_sending + frames.connection_close;
            frames.stream + frames.datagram + flow_control + blocked + ends
        };
        let handshake = |frames: &FrameStats| {
            let ids = frames.new_connection_id + frames.retire_connection_id + frames.new_token;
            frames.crypto + ids + u64::from(frames.handshake_done)
        };
        let probe = |frames: &FrameStats| {
            let path = frames.path_challenge + frames.path_response;
            let acks = frames.ack_frequency + frames.immediate_ack;
            frames.ping + path + acks
        };
        if more(data) {
            Self::Data
        } else if more(handshake) {
            Self::Handshake
        } else if more(probe) {
            Self::Probe
        } else if more(|frames| frames.acks) {
            Self::Acks
        } else {
            Self::Copy
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(stream: u64, acks: u64, ping: u64) -> FrameStats {
        let mut frames = FrameStats::default();
        (frames.stream, frames.acks, frames.ping) = (stream, acks, ping);
        frames
    }

    #[test]
    fn every_byte_has_one_place_and_the_accounts_add_up() {
        let mut books = Books::default();
        books.on_sent(frames(1, 0, 0), 1500, 1, 28, false);
        books.on_sent(frames(1, 1, 0), 40, 1, 28, false);
        books.on_sent(frames(1, 1, 1), 30, 1, 28, false);
        books.on_sent(frames(1, 1, 1), 1500, 1, 28, false);
        books.on_sent(frames(11, 1, 1), 15_000, 10, 28, false);
        let carried = Carried {
            flows: 14_000,
            dns: 300,
            control: 100,
            ..Carried::default()
        };
        let sent = books.close(carried, Carried::default(), 1500, 1).sent;
        let expected = Account {
            streams: 14_000,
            dns: 300,
            packets: 0,
            control: 100,
            retransmissions: 1468,
            repair: 1500,
            acks: 40,
            probes: 30,
            handshake: 0,
            stateless: 0,
            headers: 632,
            ip_headers: 14 * 28,
        };
        assert_eq!(sent, expected);
        assert_eq!(sent.udp(), 1500 + 40 + 30 + 1500 + 15_000);
        // Written, but not on the link yet.
        let much = Carried {
            flows: 1 << 40,
            ..carried
        };
        let sent = books.close(much, Carried::default(), 0, 0).sent;
        assert_eq!(sent.udp(), 1500 + 40 + 30 + 1500 + 15_000);
    }
}
