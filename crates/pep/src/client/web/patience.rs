//! Patience of a browser's request with an object that is promised: when it is asked for once more, as it would have been without a promise.

use std::time::Duration;

use tokio::time::Instant;

/// Time for which nothing may come of a page an object of which the server has promised and a request waits for. Most outages of a link are
/// shorter.
const PROMISED_SILENCE: Duration = Duration::from_secs(6);

/// Time for which none of a page's objects may begin or end while a request waits for one of which nothing has come. What stands in front of
/// it may go on for ever, as the picture of a camera does.
const PROMISED_TURN: Duration = Duration::from_secs(30);

/// Time that an object may take from its first byte on if its head does not say how long it is, for each of the objects that come at once. What a link of 64 kbit/s brings in this time
/// is more than most scripts and style sheets have; what is still under way then may be something that never ends.
const PROMISED_ENDLESS: Duration = Duration::from_secs(60);

/// Time for which nothing may come of an object that a hub has promised and a request waits for; then the page's own connection is asked.
const SEALED_SILENCE: Duration = Duration::from_secs(3);

/// Time for which a request waits for such an object at most: what is left of it comes sooner by the page's own connection.
const SEALED_PATIENCE: Duration = Duration::from_secs(30);

/// Patience of one request.
pub(super) struct Patience {
    silence: Duration,
    /// Moment at which the wait is over, whatever comes until then.
    end: Option<Instant>,
}

impl Patience {
    /// Patience from `now` on with an object of the server's, or with a `sealed` one of a hub's: a hub may promise and not deliver, a piece
    /// every now and then included.
    pub(super) fn new(now: Instant, sealed: bool) -> Self {
        match sealed {
            true => Self {
                silence: SEALED_SILENCE,
                end: Some(now + SEALED_PATIENCE),
            },
            false => Self {
                silence: PROMISED_SILENCE,
                end: None,
            },
        }
    }

    /// Moment at which the object is given up unless something changes: something of it came last when it `moved`, its turn came nearer when
    /// it `turned`, and since `endless` it comes without saying how long it is, as one of so many
    /// at once.
    pub(super) fn until(
        &self,
        (moved, turned): (Instant, Instant),
        endless: Option<(Instant, u32)>,
    ) -> Instant {
        let until = (moved + self.silence).min(turned + PROMISED_TURN);
        let endless = endless.map(|(began, abreast)| began + PROMISED_ENDLESS * abreast);
        let bounds = [endless, self.end];
        bounds.into_iter().flatten().fold(until, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_what_comes_and_not_for_ever() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let promised = Patience::new(now, false);
        let cases = [
            // Silence of the page, and of what may bring its turn nearer.
            ((10, 10), None, 16),
            ((40, 10), None, 40),
            // Large objects come for as long as they need.
            ((500, 500), None, 506),
            // What does not say how long it is does not.
            ((10, 10), Some((5, 1)), 16),
            ((64, 64), Some((5, 1)), 65),
            ((500, 500), Some((5, 1)), 65),
            // Several share the link.
            ((500, 500), Some((5, 3)), 185),
        ];
        for ((moved, turned), endless, until) in cases {
            let got = promised.until(
                (at(moved), at(turned)),
                endless.map(|(began, abreast)| (at(began), abreast)),
            );
            assert_eq!(got, at(until), "{moved} {turned} {endless:?}");
        }
        let sealed = Patience::new(now, true);
        assert_eq!(sealed.until((at(10), at(10)), None), at(13));
        assert_eq!(sealed.until((at(29), at(29)), None), at(30));
    }
}
