//! Segments of relayed flows on their way to the ends.

use std::time::Instant;

use bentpipe_proto::packets::write_checksums;
use bentpipe_segments::{FlowName, Form, Headers, Segment, Side, Table};
use bytes::{Bytes, BytesMut};

use super::super::les::{Layers, StaysUnwritten};
use super::Member;

/// Packets that leave for the devices, each with the side that it goes to.
pub(super) struct SegmentOutlet {
    packets: Vec<(Side, Bytes)>,
}

impl SegmentOutlet {
    /// Nothing leaves.
    pub(super) fn new() -> Self {
        Self {
            packets: Vec::new(),
        }
    }

    /// Hands on a packet that came from `side`.
    pub(super) fn pass(&mut self, side: Side, packet: Bytes) {
        self.packets.push((side.other(), packet));
    }

    /// Packets that leave now.
    pub(super) fn take(&mut self) -> Vec<(Side, Bytes)> {
        std::mem::take(&mut self.packets)
    }

    /// Sends segments of a flow of `table` to its ends.
    pub(super) fn send(
        &mut self,
        now: Instant,
        member: Member,
        (table, layers): (&mut Table, &mut Layers),
    ) {
        while let Some((side, segment)) = table.poll_segment(now, member.id) {
            let Some(name) = table.name(member.id) else {
                break;
            };
            let packet = match member.form {
                Form::Clear => packet(name, side, &segment).ok_or(StaysUnwritten),
                Form::Zones => layers.write(now, (name, side), &segment),
            };
            // Without one the end hears nothing, and payload is sent again.
            if let Ok(packet) = packet {
                self.packets.push((side, packet));
            }
        }
    }
}

/// IP packet of a segment to the end on `side`, in the other end's name.
fn packet(name: &FlowName, side: Side, segment: &Segment) -> Option<Bytes> {
    let (from, to) = match side {
        Side::Lan => (name.wan, name.lan),
        Side::Wan => (name.lan, name.wan),
    };
    let mut out = BytesMut::with_capacity(60 + segment.zone.len());
    if !Headers::write(from, to, segment, &mut out) {
        return None;
    }
    out.extend_from_slice(&segment.zone);
    write_checksums(&mut out).then(|| out.freeze())
}
