//! RS: what one ACK frame says of the path, as the model and the phases read it.

use std::time::{Duration, Instant};

use super::super::AtSend;

/// RS: what one ACK frame says, in bytes and bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Instant,
    pub(super) newly_acked: u64,
    pub(super) rtt: Option<Duration>,
    pub(super) in_flight: u64,
    /// Delivery rate; 0 if there is none.
    pub(super) rate: u64,
    /// Delivered in the sample's interval, and before it.
    pub(super) delivered: u64,
    pub(super) prior_delivered: Option<u64>,
    pub(super) at_send: Option<AtSend>,
    pub(super) app_limited: bool,
}

impl Sample {
    /// Bytes that were delivered in the sample's interval, and those that had to be in flight meanwhile to wait for the ACK frame.
    pub(super) fn volume(&self) -> u64 {
        self.delivered + self.newly_acked
    }
}
