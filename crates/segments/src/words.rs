//! Words between a table and the shell around it.

use std::collections::BTreeMap;

use crate::wire::Cause;

/// Bounds of a table.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Flows that are known, relayed or not; of more, those that have been silent for longest and
    /// are not relayed are forgotten.
    pub known: usize,
    /// Flows that are relayed; more pass untouched.
    pub relayed: usize,
    /// Memory of one direction of a relayed flow, in bytes; a blob more may be held.
    pub room: usize,
}

/// Flow of one table; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub(crate) u64);

/// Fate of a segment that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Goes on as it came.
    Forward,
    /// Goes no further: the flow has it.
    Taken,
}

/// Word of the table to the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A stream to the other PEP is wanted, for this flow.
    Offer(FlowId),
    /// The flow may have segments or messages.
    Service(FlowId),
    /// The flow is forgotten.
    Gone(FlowId),
}

/// Numbers of flows since the start, by their fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Relayed.
    pub relayed: u64,
    /// Refused to, or by, the other PEP, by cause.
    pub refused: BTreeMap<Cause, u64>,
    /// Relayed, then reset, by cause.
    pub reset: BTreeMap<Cause, u64>,
    /// Segments of unknown flows that were answered with a reset.
    pub strays: u64,
}
