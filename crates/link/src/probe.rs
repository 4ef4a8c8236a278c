//! Snapshots of a link: what a measuring instrument at each of its points would show.

use bentpipe_units::{BitRate, ByteCount, Decibel, TimeSpan};
use serde::Serialize;

/// A snapshot of the whole link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probe {
    /// Each terminal, in the order of their numbers.
    pub terminals: Vec<TerminalProbe>,
    /// Events that nobody collected in time.
    pub events_forgotten: u64,
}

/// One terminal's part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TerminalProbe {
    /// Name of the terminal.
    pub name: String,
    /// Gateway to terminal.
    #[serde(rename = "forward")]
    pub forward_link: ChannelProbe,
    /// Terminal to gateway.
    #[serde(rename = "return")]
    pub return_link: ChannelProbe,
}

/// One direction of one terminal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChannelProbe {
    /// Carrier to noise of what is received now; absent where the standard has no use for it.
    pub cn: Option<Decibel>,
    /// The MODCOD or waveform in use.
    pub modcod: Option<u8>,
    /// Modulation and code rate of that.
    pub modcod_name: Option<String>,
    /// Rate that the terminal would get alone: IP-layer bit/s for constant rates, bits of frame payload for standards.
    pub capacity: BitRate,
    /// Of what leaves now.
    pub one_way_delay: TimeSpan,
    /// Queues with what waits in them, in the order of priority.
    pub queues: Vec<QueueProbe>,
    /// Since the start.
    pub counters: Counters,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueProbe {
    /// Class of the queue.
    pub name: String,
    /// Bytes waiting.
    pub bytes: ByteCount,
    /// Packets waiting.
    pub packets: usize,
    /// Time for which the first of them has waited.
    pub sojourn: TimeSpan,
}

/// Counts of a terminal's packets in one direction.
///
/// `offered` is the sum of those dropped, those delivered and those still inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Packets given to the link.
    pub offered: u64,
    /// Bytes of the offered packets.
    pub offered_bytes: ByteCount,
    /// Packets that found their queue full.
    pub dropped_queue: u64,
    /// Packets that CoDel took.
    pub dropped_codel: u64,
    /// Packets that the channel destroyed; counted when they are sent.
    pub dropped_channel: u64,
    /// Packets that were sent while the satellite was gone.
    pub dropped_outage: u64,
    /// Packets that have arrived.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: ByteCount,
}

impl std::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            offered: sum.offered + one.offered,
            offered_bytes: sum.offered_bytes + one.offered_bytes,
            dropped_queue: sum.dropped_queue + one.dropped_queue,
            dropped_codel: sum.dropped_codel + one.dropped_codel,
            dropped_channel: sum.dropped_channel + one.dropped_channel,
            dropped_outage: sum.dropped_outage + one.dropped_outage,
            delivered: sum.delivered + one.delivered,
            delivered_bytes: sum.delivered_bytes + one.delivered_bytes,
        })
    }
}
