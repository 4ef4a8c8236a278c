//! The load of terminals that are not modelled one by one: packets at random instants, which nobody receives.
//!
//! They are made only while packets that somebody waits for are underway, and for a second before: an idle link costs
//! nothing, and what it did an hour ago is of no importance.

use std::time::{Duration, Instant};

use bentpipe_units::{BitRate, ByteCount, Seed};

use crate::random::Random;

/// The history that the queue has when somebody comes after a pause.
const HISTORY: Duration = Duration::from_secs(1);

/// Other people's packets in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackgroundModel {
    /// On average, IP-layer.
    pub(crate) rate: BitRate,
    /// Size of the packets.
    pub(crate) packet: ByteCount,
    /// For how many terminals this load counts where capacity is shared.
    pub(crate) terminals: u16,
}

#[derive(Debug)]
pub(crate) struct BackgroundSource {
    model: BackgroundModel,
    random: Random,
    next: Instant,
}

impl BackgroundSource {
    pub(crate) fn new(model: BackgroundModel, seed: Seed, start: Instant) -> Self {
        let mut background = Self {
            model,
            random: Random::new(seed.stream("background")),
            next: start,
        };
        background.draw();
        background
    }

    pub(crate) const fn packet(&self) -> ByteCount {
        self.model.packet
    }

    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// The packet of [`BackgroundSource::next`] has come.
    pub(crate) fn draw(&mut self) {
        let mean = self.model.rate.transmit_time(self.model.packet);
        let gap = self.random.exponential(mean.as_secs_f64());
        self.next += Duration::try_from_secs_f64(gap).unwrap_or(HISTORY);
    }

    /// Forgets what is too long ago to matter at `now`.
    pub(crate) fn skip_to(&mut self, now: Instant) {
        if let Some(since) = now.checked_sub(HISTORY) {
            self.next = self.next.max(since);
        }
    }
}
