//! Names that all parts of a link share: directions, terminals, packets, and causes of their loss.

use bentpipe_units::ByteCount;
use serde::{Deserialize, Serialize};

/// A direction of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Gateway to terminal.
    Forward,
    /// Terminal to gateway.
    Return,
}

impl Way {
    /// Name of the table of this direction in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Return => "return",
        }
    }

    /// Opposite direction.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Forward => Self::Return,
            Self::Return => Self::Forward,
        }
    }
}

/// Number of a terminal, from 0, in the order of the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TerminalId(usize);

impl TerminalId {
    /// Makes the number of the terminal at place `index`.
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// Place of the terminal in lists of terminals.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Facts of a packet that the link has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// IP-layer size.
    pub size: ByteCount,
    /// Differentiated-services code point (RFC 2474), six bits.
    pub dscp: u8,
    /// Number that all packets share which a kernel hands on in one piece (segmentation offload); `None` if the packet came alone.
    pub train: Option<u64>,
}

/// Cause of the loss of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropCause {
    /// The queue was full.
    QueueFull,
    /// CoDel took it.
    Codel,
    /// The channel destroyed it, or a part of it.
    Channel,
    /// The satellite was gone: no way through space, or a handover.
    Outage,
}
