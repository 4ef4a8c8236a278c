//! Whose turn it is, of packets and flows.

/// Most that one of packets and flows may owe the other, in bytes.
const MOST_AHEAD: i64 = 64_000;

/// Next to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) enum Turn {
    Packets,
    Flows,
}

/// Rivals: the other flows that wait when a flow has its turn.
#[derive(Debug, Clone, Copy)]
pub(in crate::transport) struct Rivals {
    pub(in crate::transport) packets: bool,
    pub(in crate::transport) flows: bool,
    /// The flow itself has been served so much that others go first.
    pub(in crate::transport) bulk: bool,
}

/// Account of what packets and flows were served.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Bytes by which flows have been served more than packets while both waited.
    ahead: i64,
}

impl Turns {
    /// Chooses whose turn it is, if `packets` wait, `urgent` ones perhaps, and `flows`. While packets and flows both wait,
    /// each gets half of the bytes; but voice that does not take more than its share goes first.
    pub(super) fn next(&mut self, packets: bool, urgent: bool, flows: bool) -> Option<Turn> {
        if !(packets && flows) {
            self.ahead = 0;
        }
        self.ahead = self.ahead.clamp(-MOST_AHEAD, MOST_AHEAD);
        match (packets, flows) {
            (true, true) if urgent || self.ahead >= 0 => Some(Turn::Packets),
            (_, true) => Some(Turn::Flows),
            (true, false) => Some(Turn::Packets),
            (false, false) => None,
        }
    }

    pub(super) fn on_packets(&mut self, bytes: usize) {
        self.ahead -= bytes as i64;
    }

    pub(super) fn on_flows(&mut self, bytes: usize) {
        self.ahead += bytes as i64;
    }
}
