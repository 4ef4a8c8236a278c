//! T*: how long a transfer takes at the physical limit of its link.
//!
//! One round trip (half of one for an upload), and the payload at the rate of the link as it was meanwhile, in packets
//! as large as the run's own, with the share of packets lost that was lost. Nothing faster exists: a transfer that
//! beats it shows a fault of the simulator or of this page.

use std::time::Duration;

use bentpipe_link::{LinkConfig, PipeStats};
use bentpipe_units::ByteCount;

/// Bytes of a full packet that are no payload: IPv4 and UDP, then first byte, two bytes of packet number, tag, and a
/// STREAM frame's type, stream and offset (RFC 9000 §17.3.1, §19.8); the connection ID comes on top.
const OVERHEAD: u64 = 28 + 1 + 2 + 16 + 6;

/// Bytes of the connection ID in packets of the forward and of the return link.
const CONNECTION_ID: [u64; 2] = [4, 8];

/// Index of the forward link.
pub const DOWN: usize = 0;
/// Index of the return link.
pub const UP: usize = 1;

/// Transfer that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// [`DOWN`] or [`UP`].
    pub direction: usize,
    /// Counted from the link's `start`.
    pub began: Duration,
    /// Bytes of payload.
    pub payload: u64,
    /// The largest IP packet of the run.
    pub packet: u64,
    /// Share of packets that the channel lost meanwhile.
    pub loss: f64,
}

/// Payload per byte of a full packet.
pub fn efficiency(direction: usize, packet: u64) -> f64 {
    1.0 - (OVERHEAD + CONNECTION_ID[direction]) as f64 / packet as f64
}

/// Time at which `transfer` would have ended at the limit, counted from the link's `start`; `None` if never.
pub fn earliest(link: &LinkConfig, transfer: &Transfer) -> Option<Duration> {
    let share = efficiency(transfer.direction, transfer.packet) * (1.0 - transfer.loss);
    let wire = ByteCount::new((transfer.payload as f64 / share) as u64);
    let (from, data) = if transfer.direction == DOWN {
        // The request has to arrive first.
        let asked = transfer.began + link.return_link.one_way_delay_at(transfer.began);
        (asked, &link.forward_link)
    } else {
        (transfer.began, &link.return_link)
    };
    let left = data.sent_by(from, wire)?;
    Some(left + data.one_way_delay_at(left))
}

/// The share of packets that the channel lost of those that it carried between two looks at the counters.
pub fn realised_loss(before: &PipeStats, after: &PipeStats) -> f64 {
    let lost = after.dropped_loss - before.dropped_loss;
    let kept = after.delivered - before.delivered;
    if lost == 0 {
        return 0.0;
    }
    lost as f64 / (lost + kept) as f64
}
