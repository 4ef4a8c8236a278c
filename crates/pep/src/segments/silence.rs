//! Silence of the other PEP: when it is worth a word, and when it is over. Without a clock and sockets.
//!
//! The engine knows of an outage within a few round trips, and flows pass untouched from then on. People hear of it when it has
//! lasted longer than short gaps of a link do: once, and once more when it is over.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::process;
use bentpipe_tunnel::engine::Connection;

/// Interval at which the other PEP is asked for an answer, if it gives none by itself: a path that is blocked in one direction is
/// found out by nothing else, for what is heard says nothing of it.
pub(super) const ASKED_EVERY: Duration = Duration::from_secs(3);

/// Time without an answer after which a PEP that is heard all the same is called silent.
const UNANSWERED: Duration = Duration::from_secs(3);

/// Time without an answer after which a PEP that is not heard is called silent: in that time one that is heard has been.
const UNHEARD: Duration = Duration::from_secs(7);

/// Time for which a PEP that was heard counts as one that is: five questions of its own, of which some may be lost.
const LATELY: Duration = Duration::from_secs(15);

/// Observations of the tunnel at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunnelSight {
    /// Instant since which nothing that was sent is answered; `None`: there is an answer to everything.
    pub(super) unanswered: Option<Instant>,
    /// Instant at which the other PEP was last heard.
    pub(super) heard: Option<Instant>,
    /// Round-trip time.
    pub(super) rtt: Duration,
}

impl TunnelSight {
    /// State of a connection, and the address of its other end.
    pub(super) fn of(connection: &Connection) -> (Self, SocketAddr) {
        let sight = Self {
            unanswered: connection.unanswered_since(),
            heard: connection.heard(),
            rtt: connection.rtt().0,
        };
        (sight, process::canonical(connection.peer()))
    }

    /// Says whether the other PEP is heard `now` although it answers nothing: what arrives a round trip later has left later.
    pub(super) fn is_heard(&self, now: Instant) -> bool {
        let (Some(since), Some(heard)) = (self.unanswered, self.heard) else {
            return false;
        };
        heard > since + self.rtt && now < heard + LATELY
    }
}

/// Change that people are to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SilenceNews {
    /// The other PEP is silent; true if it is heard all the same.
    Begun(bool),
    /// The other PEP answers again, after this time.
    Over(Duration),
}

/// Silence of the other PEP.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Beginning of the silence that people were told of.
    told: Option<Instant>,
}

impl Silence {
    /// Takes what is seen `now`, and says what people are to hear of it.
    pub(super) fn look(&mut self, now: Instant, sight: TunnelSight) -> Option<SilenceNews> {
        match (self.told, sight.unanswered) {
            (None, Some(since)) => {
                let heard = sight.is_heard(now);
                let patience = if heard { UNANSWERED } else { UNHEARD };
                let lasted = now.saturating_duration_since(since);
                (lasted >= patience).then(|| {
                    self.told = Some(since);
                    SilenceNews::Begun(heard)
                })
            }
            (Some(since), None) => {
                self.told = None;
                Some(SilenceNews::Over(now.saturating_duration_since(since)))
            }
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// Beginning of the silence that people were told of, while it lasts.
    pub(super) const fn since(&self) -> Option<Instant> {
        self.told
    }

    /// Forgets the silence: its tunnel is no more.
    pub(super) const fn end(&mut self) {
        self.told = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_told_once_and_its_end_once() {
        let start = process::now();
        let rtt = Duration::from_millis(500);
        let at = |ms| start + Duration::from_millis(ms);
        for (heard, first) in [(false, 7), (true, 3)] {
            let mut silence = Silence::default();
            let mut told = Vec::new();
            for second in 0..60 {
                let now = at(second * 1000);
                let sight = TunnelSight {
                    unanswered: (second < 40).then_some(start),
                    // What was on the way when the silence began still arrives.
                    heard: Some(if heard { now } else { at(400) }),
                    rtt,
                };
                let news = silence.look(now, sight);
                told.extend(news.map(|news| (second, news)));
                assert_eq!(silence.since().is_some(), (first..40).contains(&second));
            }
            let over = SilenceNews::Over(Duration::from_secs(40));
            assert_eq!(told, [(first, SilenceNews::Begun(heard)), (40, over)]);
        }
    }

    #[test]
    fn who_was_heard_for_a_moment_longer_than_the_other_way_is_not_heard_for_ever() {
        let start = process::now();
        let at = |ms| start + Duration::from_millis(ms);
        let sight = TunnelSight {
            unanswered: Some(start),
            heard: Some(at(900)),
            rtt: Duration::from_millis(500),
        };
        assert!(sight.is_heard(at(10_000)));
        assert!(!sight.is_heard(at(15_900)));
    }

    #[test]
    fn a_short_gap_is_nobodys_business() {
        let start = process::now();
        let mut silence = Silence::default();
        for ms in (0..20_000).step_by(250) {
            let sight = TunnelSight {
                unanswered: (ms % 3000 < 2500)
                    .then(|| start + Duration::from_millis(ms / 3000 * 3000)),
                heard: None,
                rtt: Duration::from_millis(50),
            };
            assert_eq!(silence.look(start + Duration::from_millis(ms), sight), None);
        }
    }
}
