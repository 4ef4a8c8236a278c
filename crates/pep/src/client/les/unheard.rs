//! Signs that UDP of LES does not pass: the tunnel goes over TLS, or packets leave and none comes.

use std::time::{Duration, Instant};

use super::Layering;
use crate::process;
use bentpipe_tunnel::engine::Connection;

/// Time for which packets leave, and none comes, until that is told.
const UNHEARD: Duration = Duration::from_secs(10);

/// Looks in that time which must find that packets have left: the last word of a connection has no answer, and the first of the
/// next one may have left just before the look.
const LOOKS: u32 = 3;

/// Silence after which packets that leave have nothing to do with those before: TCP that waits for an answer repeats sooner.
const SILENCE: Duration = Duration::from_secs(30);

/// What has become of packets since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HearingNews {
    /// Nothing that is to be told.
    None,
    /// Packets have left for [`UNHEARD`], and none has come.
    Unheard,
    /// A packet has come after that.
    Heard,
}

/// Packets that leave, and none comes.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// Instants of the first look and the last at which more had left than before.
    first: Instant,
    last: Instant,
    /// Number of such looks.
    looks: u32,
}

impl Leaving {
    /// More packets have left before the look at `now`.
    fn on_leave(before: Option<Self>, now: Instant) -> Self {
        let goes_on = |it: &Self| now.saturating_duration_since(it.last) <= SILENCE;
        let Self { first, looks, .. } = before.filter(goes_on).unwrap_or(Self {
            first: now,
            last: now,
            looks: 0,
        });
        Self {
            first,
            last: now,
            looks: looks + 1,
        }
    }

    /// Says whether somebody waits for answers.
    fn is_long(self) -> bool {
        self.looks >= LOOKS && self.last.saturating_duration_since(self.first) >= UNHEARD
    }
}

/// Watch over the count of packets: a state machine without a clock.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    sent: u64,
    received: u64,
    /// Packets that have left since one came.
    leaving: Option<Leaving>,
    told: bool,
}

impl Unheard {
    /// Looks at the packets `sent` and `received` so far.
    fn look(&mut self, now: Instant, (sent, received): (u64, u64)) -> HearingNews {
        let (leave, come) = (sent > self.sent, received > self.received);
        (self.sent, self.received) = (sent, received);
        if come {
            self.leaving = None;
            return match std::mem::take(&mut self.told) {
                true => HearingNews::Heard,
                false => HearingNews::None,
            };
        }
        if leave {
            self.leaving = Some(Leaving::on_leave(self.leaving, now));
        }
        let long = self.leaving.is_some_and(Leaving::is_long);
        match long && !std::mem::replace(&mut self.told, true) {
            true => HearingNews::Unheard,
            false => HearingNews::None,
        }
    }

    /// Says whether packets leave and none comes.
    pub(super) const fn is_unheard(&self) -> bool {
        self.told
    }
}

impl Layering {
    /// Looks by which wire the tunnel goes. True: the prefixes are to be led another way from now on.
    pub(super) fn look_at_wire(&self) -> bool {
        let reliable = |connection: &Connection| Some(connection.is_on_reliable_wire());
        let Some(over_tls) = self.tunnels.look(reliable) else {
            return false;
        };
        let led = self.leads();
        if self.over_tls.replace(over_tls) != over_tls && self.road.borrow().leads() {
            if over_tls {
                tracing::warn!(
                    "the tunnel goes over TLS, and LES needs UDP: TCP of its `destinations` goes through the tunnel until UDP is in use again"
                );
            } else {
                tracing::info!("the tunnel goes over UDP: TCP of `destinations` goes by LES again");
            }
        }
        led != self.leads()
    }

    /// Looks whether packets that leave are answered.
    pub(super) fn look_for_answers(&self) {
        let news = {
            let figures = self.traffic.borrow().packets();
            self.unheard.borrow_mut().look(process::now(), figures)
        };
        match news {
            HearingNews::None => {}
            HearingNews::Heard => tracing::info!("packets of LES come in again"),
            HearingNews::Unheard => tracing::warn!("{}", self.unheard_text()),
        }
    }

    /// Line for the log and `status` about packets that are not answered.
    pub(super) fn unheard_text(&self) -> String {
        format!(
            "packets of LES have left for {} s and none has come: something on the way may drop UDP port {}; open it there, or take [les] out",
            UNHEARD.as_secs(),
            self.config.port
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// News of looks once a second, at these counts.
    fn news(counts: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, HearingNews)> {
        let (mut unheard, start) = (Unheard::default(), process::now());
        let looks = (0..).zip(counts);
        let news = looks.map(|(second, counts)| {
            let now = start + Duration::from_secs(second);
            (second, unheard.look(now, counts))
        });
        news.filter(|(_, news)| *news != HearingNews::None)
            .collect()
    }

    #[test]
    fn packets_that_leave_into_silence_are_told_once_and_the_first_that_comes_too() {
        let counts = (0..60).map(|second| (second + 1, u64::saturating_sub(second, 29)));
        let told = [(10, HearingNews::Unheard), (30, HearingNews::Heard)];
        assert_eq!(news(counts), told);
    }

    #[test]
    fn a_road_that_is_answered_or_silent_is_not_told() {
        // One answer in nine seconds.
        assert_eq!(news((0..100).map(|second| (second, second / 9))), []);
        // Words that are not repeated: nobody waits.
        assert_eq!(news((0..100).map(|second| (second.min(5), 0))), []);
        // Connections every 20 s: first word, answer, last word.
        let times = |second: u64, at: u64| (second + 20 - at) / 20;
        let connections = |second| (times(second, 0) + times(second, 2), times(second, 1));
        assert_eq!(news((0..200).map(connections)), []);
        // An hour in which nobody speaks, between a last word and an answer that takes three seconds.
        let idle = |second: u64| (1 + second.saturating_sub(3599).min(3), second / 3603);
        assert_eq!(news((0..3700).map(idle)), []);
        // Attempts of TCP, 0, 1, 3, 7 and 15 s after the first.
        let attempts = |second| [0, 1, 3, 7, 15].iter().filter(|at| **at <= second).count() as u64;
        let told = news((0..100).map(|second| (attempts(second), 0)));
        assert_eq!(told, [(15, HearingNews::Unheard)]);
    }
}
