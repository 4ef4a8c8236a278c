//! States of BBRv3, and the gains in each.

use super::{STARTUP_GAIN, probe_rtt};

/// BBR.state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// § Summary of Control Behavior in the State Machine.
    pub(super) fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => STARTUP_GAIN,
            Self::Drain => 500,
            Self::Down => 900,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1000,
            Self::Up => 1250,
        }
    }

    pub(super) fn window_gain(self) -> u64 {
        match self {
            Self::Up => 2250,
            Self::ProbeRtt => probe_rtt::WINDOW_GAIN,
            _ => 2000,
        }
    }

    /// IsInAProbeBWState.
    pub(super) fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// IsProbingBW: losses are the answer to a question, not a change of the path.
    pub(super) fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}
