//! Packets of the devices: which are segments that a table is shown, and which pass without a look.

use std::time::Instant;

use bentpipe_proto::packets::{Header, is_true_tcp, tidy_syn, write_checksums};
use bentpipe_segments::{Flags, FlowName, Form, Headers, Side, Verdict};
use bytes::{Bytes, BytesMut};

use super::counts::Passed;
use super::les::StaysClosed;
use super::relays::SegmentRelays;
use crate::config::PepConfig;

/// Number of UDP among IP protocols.
const UDP: u8 = 17;

/// Judge of the packets that the devices bring: segments go to the relays, all else passes.
pub(super) struct SegmentIntake {
    clear: bool,
    /// UDP port of LES, if its packets are taken.
    les: Option<u16>,
    passed: Passed,
}

impl SegmentIntake {
    /// Judge by what `config` wants to have relayed.
    pub(super) fn new(config: &PepConfig) -> Self {
        Self {
            clear: config.clear.is_some(),
            les: config.les.as_ref().map(|les| les.port),
            passed: Passed::default(),
        }
    }

    /// Packets that passed untouched, by cause.
    pub(super) const fn counts(&self) -> Passed {
        self.passed
    }

    /// Takes a packet that came from `side`.
    pub(super) fn take(
        &mut self,
        now: Instant,
        side: Side,
        packet: Bytes,
        relays: &mut SegmentRelays,
    ) {
        if self.is_les(&packet) {
            return self.take_layered(now, side, packet, relays);
        }
        let headers = Headers::read(&packet).filter(|_| self.clear);
        let whole = |headers: &Headers| {
            packet.len() == headers.length + usize::from(headers.segment.length)
        };
        let Some(headers) = headers.filter(whole) else {
            self.passed.other += 1;
            return relays.pass(side, packet);
        };
        // The PEP would acknowledge what its end has never sent.
        if !is_true_tcp(&packet) {
            self.passed.damaged += 1;
            return relays.pass(side, packet);
        }
        let flags = headers.segment.flags;
        let first = flags.has(Flags::SYN) && !flags.has(Flags::ACK);
        let usable = first && relays.usable().is_some();
        // A SYN without timestamps and ECN is not answered with them.
        let (packet, mut headers) = match usable {
            true => tidy(packet, headers),
            false => (packet, headers),
        };
        if first && !usable {
            self.passed.no_tunnel += 1;
        }
        headers.segment.zone = packet.slice(headers.length..);
        let name = match side {
            Side::Lan => name(headers.source, headers.destination),
            Side::Wan => name(headers.destination, headers.source),
        };
        let renewed = relays.was_relayed(&name, first, false);
        let flow = (Form::Clear, &name);
        match relays.on_segment(now, flow, side, &headers.segment, renewed) {
            Verdict::Forward => relays.pass(side, packet),
            Verdict::Taken => {}
        }
    }

    /// Takes a packet of LES that came from `side`.
    fn take_layered(
        &mut self,
        now: Instant,
        side: Side,
        packet: Bytes,
        relays: &mut SegmentRelays,
    ) {
        let opened = match relays.open(now, side, &packet) {
            Ok(opened) => opened,
            Err(StaysClosed::NoKey) => {
                self.passed.no_key += 1;
                return relays.pass(side, packet);
            }
            Err(StaysClosed::Copy) => return,
        };
        let flags = opened.segment.flags;
        let first = flags.has(Flags::SYN) && !flags.has(Flags::ACK);
        let renewed = relays.was_relayed(&opened.name, first, opened.renewed);
        let flow = (Form::Zones, &opened.name);
        match relays.on_segment(now, flow, side, &opened.segment, renewed) {
            Verdict::Forward => relays.pass(side, packet),
            Verdict::Taken => {}
        }
    }

    fn is_les(&self, packet: &[u8]) -> bool {
        self.les.is_some_and(|port| {
            let header = Header::parse(packet).filter(|header| header.protocol == UDP);
            let ports = header.and_then(|header| header.ports);
            ports.is_some_and(|(from, to)| from == port || to == port)
        })
    }
}

/// Flow in clear between these ends.
fn name(lan: (std::net::IpAddr, u16), wan: (std::net::IpAddr, u16)) -> FlowName {
    FlowName {
        scope: [0; 16],
        lan,
        wan,
    }
}

/// Takes from a SYN what a PEP could not keep.
fn tidy(packet: Bytes, headers: Headers) -> (Bytes, Headers) {
    let ip = match headers.source.0 {
        std::net::IpAddr::V4(_) => 20,
        std::net::IpAddr::V6(_) => 40,
    };
    let mut changed = BytesMut::from(&packet[..]);
    let tidied = tidy_syn(&mut changed[ip..headers.length], u16::MAX);
    match Headers::read(&changed).filter(|_| tidied && write_checksums(&mut changed)) {
        Some(headers) => (changed.freeze(), headers),
        None => (packet, headers),
    }
}
