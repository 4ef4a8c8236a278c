//! Which class of link the tunnel crosses: as configured, or with `auto` as remembered, else as measured.
//!
//! A connection's timers, windows and ACKs are chosen before its first packet, so what is measured in one connection is
//! remembered for the next over the same path (`links.json`): the class costs no round trip. The first connection ever
//! makes do with values that suit every class. `learned.rs` feeds the meter and keeps the file.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::config;
use crate::status;
use bentpipe_tunnel::engine::{self, Profile};

/// RTTs are compared by the smallest of each such window: a satellite stays for as long, and few packets wait all along.
const WINDOW: Duration = Duration::from_secs(15);
/// Differences from one window to the next that are looked at, and which of them counts, from the largest: a transfer may
/// fill a queue in one window and leave it in another, new satellites come in all of them.
const DIFFERENCES: usize = 8;
const COUNTS: usize = 2;
/// Nothing on earth answers later.
const LONGEST: Duration = Duration::from_secs(30);

/// Figures that are remembered of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Smallest RTT, in microseconds.
    rtt_us: u64,
    /// Variation of the round-trip time, in microseconds, if that was watched for long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variation_us: Option<u64>,
}

impl Seen {
    fn rtt(self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    fn class(self) -> Profile {
        Profile::measured(self.rtt(), self.variation_us.map(Duration::from_micros))
    }

    /// Too little has changed to be worth a write.
    fn is_like(self, other: Self) -> bool {
        self.class() == other.class() && self.rtt_us.abs_diff(other.rtt_us) <= other.rtt_us / 8
    }
}

/// Facts that a connection was begun with, and their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    configured: Profile,
    /// For the engine.
    pub(super) link: engine::Link,
    remembered: Option<Seen>,
}

impl Choice {
    /// The choice for a link configured as `config` of which `remembered` is known.
    pub(super) fn new(config: &config::Link, remembered: Option<Seen>) -> Self {
        let remembered = remembered.filter(|seen| {
            config.profile == Profile::Auto
                && (1..=LONGEST.as_micros()).contains(&seen.rtt_us.into())
        });
        Self {
            configured: config.profile,
            link: engine::Link {
                profile: remembered.map_or(config.profile, Seen::class),
                rtt: remembered.map(Seen::rtt),
                forward_ack_packets: config.forward.ack_ratio(),
            },
            remembered,
        }
    }

    /// Figures to be remembered instead of `known` now that `measured` was seen; `None` if that is no news, or nobody asked.
    pub(super) fn news(&self, measured: Seen, known: Option<Seen>) -> Option<Seen> {
        let fresh = Seen {
            // It takes minutes to see.
            variation_us: measured
                .variation_us
                .or(known.and_then(|known| known.variation_us)),
            ..measured
        };
        let known = known.is_some_and(|known| fresh.is_like(known));
        (self.configured == Profile::Auto && !known).then_some(fresh)
    }

    /// As `status` tells it.
    pub(super) fn report(&self, measured: Option<Seen>) -> status::LinkClass {
        let (class, source, rtt) = match (self.configured, self.remembered, measured) {
            (Profile::Auto, Some(seen), _) => {
                (seen.class(), status::ClassSource::Remembered, Some(seen))
            }
            (Profile::Auto, None, Some(seen)) => {
                (seen.class(), status::ClassSource::Measured, Some(seen))
            }
            (Profile::Auto, None, None) => (Profile::Auto, status::ClassSource::Unknown, None),
            (configured, ..) => (configured, status::ClassSource::Configured, measured),
        };
        let other = measured.map(Seen::class).filter(|other| *other != class);
        status::LinkClass {
            profile: self.configured,
            class,
            source,
            rtt_ms: rtt.map(|seen| status::milliseconds(seen.rtt())),
            next_class: other.filter(|_| self.configured == Profile::Auto),
        }
    }
}

/// Watches the RTT of one connection.
#[derive(Debug, Default)]
pub(super) struct LinkMeter {
    least: Option<Duration>,
    /// The last value shown: an idle connection shows the same again and again.
    shown: Option<Duration>,
    /// The window's beginning and smallest value.
    window: Option<(Instant, Duration)>,
    /// The smallest value of the last one.
    last: Option<Duration>,
    differences: VecDeque<Duration>,
}

impl LinkMeter {
    /// Takes a look at the connection's smallest and smoothed RTT.
    pub(super) fn look(&mut self, now: Instant, least: Duration, smoothed: Duration) {
        self.least = Some(least);
        if self.shown.replace(smoothed) == Some(smoothed) {
            return;
        }
        let (began, smallest) = self.window.get_or_insert((now, smoothed));
        *smallest = smoothed.min(*smallest);
        if now.saturating_duration_since(*began) < WINDOW {
            return;
        }
        let ended = *smallest;
        self.window = None;
        if let Some(before) = self.last.replace(ended) {
            self.differences.push_back(before.abs_diff(ended));
            if self.differences.len() > DIFFERENCES {
                self.differences.pop_front();
            }
        }
    }

    /// Figures that were measured so far.
    pub(super) fn seen(&self) -> Option<Seen> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut sorted: Vec<_> = self.differences.iter().copied().collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let enough = sorted.len() == DIFFERENCES;
        Some(Seen {
            rtt_us: micros(self.least?).max(1),
            variation_us: enough.then(|| micros(sorted[COUNTS])),
        })
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use super::*;
    use crate::status::ClassSource;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn auto() -> config::Link {
        config::Link::default()
    }

    fn seen(rtt: u64) -> Seen {
        Seen {
            rtt_us: rtt * 1000,
            variation_us: None,
        }
    }

    /// Figures of a meter over a link whose RTT is `rtt(second)`, after `seconds`.
    fn metered(seconds: u64, rtt: impl Fn(u64) -> Duration) -> Seen {
        let start = Instant::now();
        let mut meter = LinkMeter::default();
        let mut least = Duration::MAX;
        for second in 0..seconds {
            // Never twice the same, as it is while something is acknowledged.
            let smoothed = rtt(second) + Duration::from_micros(second % 7);
            least = least.min(smoothed);
            meter.look(start + Duration::from_secs(second), least, smoothed);
        }
        meter.seen().expect("it was looked at")
    }

    #[test]
    fn classes_are_told_apart() {
        assert_eq!(metered(1, |_| ms(612)).class(), Profile::Geo);
        assert_eq!(metered(300, |_| ms(612)).class(), Profile::Geo);
        assert_eq!(metered(1, |_| ms(40)).class(), Profile::Leo);
        assert_eq!(metered(300, |_| ms(40)).class(), Profile::Leo);
        let starlink = |second: u64| ms(30 + [0, 25, 8, 40, 15, 33, 4][(second / 15 % 7) as usize]);
        assert_eq!(metered(300, starlink).class(), Profile::Starlink);
        let transfer = |second: u64| ms(if (100..190).contains(&second) { 90 } else { 40 });
        assert_eq!(
            metered(300, transfer).class(),
            Profile::Leo,
            "a queue is no satellite"
        );
    }

    #[test]
    fn an_idle_connection_says_nothing_new() {
        let start = Instant::now();
        let mut meter = LinkMeter::default();
        for second in 0..1000 {
            meter.look(start + Duration::from_secs(second), ms(40), ms(41));
        }
        assert!(meter.differences.is_empty());
    }

    #[test]
    fn memory_decides_and_measurement_corrects_it() {
        let first = Choice::new(&auto(), None);
        assert_eq!(first.link, engine::Link::default());
        assert_eq!(first.report(None).source, ClassSource::Unknown);
        let report = first.report(Some(seen(612)));
        assert_eq!(
            (report.class, report.source),
            (Profile::Geo, ClassSource::Measured)
        );
        assert_eq!(report.to_string(), "auto: geo, measured 612 ms");
        let news = first.news(seen(612), None).expect("nothing was known");

        let second = Choice::new(&auto(), Some(news));
        assert_eq!(
            (second.link.profile, second.link.rtt),
            (Profile::Geo, Some(ms(612)))
        );
        let report = second.report(Some(seen(610)));
        assert_eq!(report.to_string(), "auto: geo, remembered 612 ms");
        assert_eq!(second.news(seen(610), Some(news)), None, "nothing new");
        assert_eq!(second.news(seen(500), Some(news)), Some(seen(500)));
        let varying = Seen {
            variation_us: Some(20_000),
            ..seen(40)
        };
        assert_eq!(varying.class(), Profile::Starlink);
        assert_eq!(
            second.news(seen(40), Some(varying)),
            None,
            "not watched for long enough"
        );
        let report = second.report(Some(seen(30)));
        assert_eq!(
            report.to_string(),
            "auto: geo, remembered 612 ms; from the next connection on leo"
        );
    }

    #[test]
    fn what_is_configured_is_not_guessed() {
        let config = config::Link {
            profile: Profile::Leo,
            ..config::Link::default()
        };
        let choice = Choice::new(&config, Some(seen(612)));
        assert_eq!((choice.link.profile, choice.link.rtt), (Profile::Leo, None));
        assert_eq!(
            choice.report(Some(seen(612))).to_string(),
            "leo, configured"
        );
        assert_eq!(choice.news(seen(612), None), None);
    }

    #[test]
    fn a_memory_that_cannot_be_is_none() {
        for rtt_us in [0, u64::MAX] {
            let damaged = Seen {
                rtt_us,
                variation_us: None,
            };
            assert_eq!(
                Choice::new(&auto(), Some(damaged)).link,
                engine::Link::default()
            );
        }
    }
}
