//! Result of the last look at something in the kernel, for as long as no notice says that it may be otherwise.
//!
//! A dump of a full routing table or a run of `nft` is dear, and the guardian looks every two seconds for ever.

use std::io;
use std::time::{Duration, Instant};

use crate::process;

/// After so long one looks without a notice: notices may be lost.
const AGE: Duration = Duration::from_secs(60);

/// Looks take at most one part in so many of the time, however many notices come; but none is put off for longer than [`AGE`], for
/// repairs wait for it.
const SHARE: u32 = 200;

/// Result of the last look at something that others change.
#[derive(Debug)]
pub(crate) struct LastLook<T> {
    seen: Option<T>,
    /// Time of the look, and time that it took.
    at: Option<(Instant, Duration)>,
    stale: bool,
}

impl<T> Default for LastLook<T> {
    fn default() -> Self {
        Self {
            seen: None,
            at: None,
            stale: true,
        }
    }
}

impl<T> LastLook<T> {
    /// Notes that others may have changed what was seen: the next look is a new one, unless looks are dear.
    pub(crate) fn spoil(&mut self) {
        self.stale = true;
    }

    /// Notes that this process has changed what was seen: the next look is a new one at any price.
    pub(crate) fn forget(&mut self) {
        self.seen = None;
    }

    /// True if it is time for a look at `now`.
    fn is_due(&self, now: Instant) -> bool {
        match (&self.seen, self.at) {
            (Some(_), Some((at, took))) => {
                let passed = now.saturating_duration_since(at);
                let rested = passed >= took.saturating_mul(SHARE).min(AGE);
                rested && (self.stale || passed >= AGE)
            }
            _ => true,
        }
    }

    /// Result of a `look` now if one is due, and of the last one if not.
    ///
    /// # Errors
    /// `look` failed; the next call looks again.
    pub(crate) fn see(
        &mut self,
        now: Instant,
        look: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<&T> {
        if self.is_due(now) {
            self.seen = None;
            // By the clock: most of it is spent in the kernel or by other programs.
            let began = process::now();
            let seen = look()?;
            self.at = Some((now, process::now().saturating_duration_since(began)));
            self.stale = false;
            self.seen = Some(seen);
        }
        self.seen
            .as_ref()
            .ok_or_else(|| io::Error::other("nothing was seen"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_looks_when_told_of_a_change_and_now_and_then_and_never_all_the_time() {
        let (mut last, now) = (LastLook::default(), process::now());
        let mut looks = 0;
        let mut see = |last: &mut LastLook<()>, after: u64| {
            let look = || {
                looks += 1;
                Ok(())
            };
            last.see(now + Duration::from_secs(after), look)
                .expect("a look");
            looks
        };
        assert_eq!(see(&mut last, 0), 1);
        assert_eq!(see(&mut last, 59), 1, "nothing was changed");
        assert_eq!(see(&mut last, 60), 2, "a notice may be lost");
        last.spoil();
        last.at = Some((now, Duration::from_secs(1)));
        assert_eq!(see(&mut last, 59), 2, "the last look was dear");
        last.at = Some((now, Duration::from_secs(1)));
        last.forget();
        assert_eq!(see(&mut last, 1), 3, "a repair was made");
        last.spoil();
        last.at = Some((now, Duration::from_secs(1)));
        assert_eq!(see(&mut last, 200), 4);
        let failed = last.see(now + AGE * 9, || Err(io::Error::other("no answer")));
        assert!(failed.is_err());
        assert!(last.is_due(now), "it is tried again");
    }
}
