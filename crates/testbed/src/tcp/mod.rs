//! A TCP sender and receiver: the traffic that shares a bottleneck with what is being tested.
//!
//! ```text
//!  Sender ── Segment ──► (pipes) ──► Receiver
//!         ◄─── Ack ──── (pipes) ◄──
//! ```
//!
//! Bulk data in full segments over a connection that is open already: CUBIC (RFC 9438) with HyStart++ (RFC 9406) or
//! without, or NewReno (RFC 5681), loss recovery with selective acknowledgements (RFC 2018, RFC 6675; what was sent
//! after it tells when a segment is lost, as in RFC 8985), delayed ACKs, RTO (RFC 6298), ECN (RFC 3168) if wanted.
//! Sequence numbers count segments. It has no pacing, no handshake, no small segments and no limits of the receiver: it is
//! as greedy as a kernel is, and carries nobody's data.

mod cubic;
mod hystart;
mod ranges;
mod receiver;
mod reno;
mod sender;
mod window;

use std::ops::Range;
use std::time::{Duration, Instant};

use bentpipe_units::ByteCount;

pub use receiver::Receiver;
pub use sender::{Sender, SenderStats};

/// IP-layer size of a data segment.
pub const SEGMENT: ByteCount = ByteCount::new(1500);
/// IP-layer size of an acknowledgement, options included.
pub const ACK: ByteCount = ByteCount::new(64);
/// Bytes of its user's data that a segment carries: all but IP and TCP headers with timestamps.
pub const PAYLOAD: ByteCount = ByteCount::new(1448);

/// Law by which a sender's window moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// CUBIC (RFC 9438).
    Cubic {
        /// Leave slow start when the RTT rises (RFC 9406), as kernels do.
        hystart: bool,
    },
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
}

/// Settings of a sender.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Segments before the first ACK; ten in every kernel (RFC 6928).
    pub initial_window: u32,
    /// Segments that the receiver has room for.
    pub receive_window: u64,
    /// Segments to send; `None`: without end.
    pub limit: Option<u64>,
    /// Segments can be marked instead of dropped.
    pub ecn: bool,
}

impl Config {
    /// A bulk sender as a kernel has it.
    pub const fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            initial_window: 10,
            receive_window: 1 << 20,
            limit: None,
            ecn: false,
        }
    }
}

/// A data segment, of [`SEGMENT`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Place of the segment in the stream, in segments.
    pub sequence: u64,
    /// The how-manieth transmission of the connection this is: what the timestamp option is for.
    pub transmission: u64,
    /// Instant at which it left.
    pub sent: Instant,
    /// The segment may be marked.
    pub ecn: bool,
    /// The segment was marked "congestion experienced".
    pub marked: bool,
}

/// An acknowledgement, of [`ACK`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// Everything before this has arrived.
    pub cumulative: u64,
    /// Ranges that have arrived besides, the newest first; at most three, as many as fit beside timestamps.
    pub selective: Vec<Range<u64>>,
    /// [`Segment::transmission`] of the newest segment that arrived.
    pub transmission: u64,
    /// [`Segment::sent`] of that segment.
    pub sent: Instant,
    /// A marked segment arrived since the last acknowledgement.
    pub marked: bool,
}

/// An ACK as a window algorithm sees it. Windows count segments.
#[derive(Debug, Clone, Copy)]
struct Acked {
    now: Instant,
    /// Segments that arrived, as this ACK shows for the first time.
    count: u64,
    rtt: Duration,
    smoothed_rtt: Duration,
    /// Transmissions so far.
    sent: u64,
    /// The newest transmission that this ACK is for.
    newest: u64,
}
