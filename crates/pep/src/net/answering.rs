//! Record of whether the resolvers that clients' names are asked of answer: the operator hears when they stop, and when they
//! go on.
//!
//! Pure but for the lock: `now` is an argument. Shared by all shards.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process;

/// Questions in a row that nobody answers before that is told: one name alone may have name servers that a resolver waits for
/// in vain.
const IN_A_ROW: u32 = 3;

/// Record of the resolvers' answers.
#[derive(Default)]
pub(crate) struct Answering(Mutex<Unanswered>);

/// Questions that nobody has answered since the last answer.
#[derive(Default)]
struct Unanswered {
    count: u32,
    since: Option<Instant>,
    told: bool,
}

/// ResolverNews of the resolvers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResolverNews {
    /// Resolvers answer nothing any more.
    Silent,
    /// A resolver answers again, after so long.
    Back(Duration),
}

impl Unanswered {
    /// A question was answered at `now`, a failure among the answers.
    fn on_answer(&mut self, now: Instant) -> Option<ResolverNews> {
        let silence = std::mem::take(self);
        let since = silence.since.filter(|_| silence.told)?;
        Some(ResolverNews::Back(now.saturating_duration_since(since)))
    }

    /// A question was given up at `now`.
    fn on_silence(&mut self, now: Instant) -> Option<ResolverNews> {
        self.since.get_or_insert(now);
        self.count = self.count.saturating_add(1);
        let tell = self.count >= IN_A_ROW && !self.told;
        self.told |= tell;
        tell.then_some(ResolverNews::Silent)
    }
}

impl Answering {
    /// Takes what became of a question to `servers`, and tells the operator if that is news.
    pub(crate) fn take(&self, now: Instant, answered: bool, servers: &[SocketAddr]) {
        let mut silence = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = match answered {
            true => silence.on_answer(now),
            false => silence.on_silence(now),
        };
        drop(silence);
        match news {
            Some(ResolverNews::Silent) if servers.is_empty() => tracing::warn!(
                "no resolver, and no name is found for clients: name one in [dns] `servers`, or in /etc/resolv.conf"
            ),
            Some(ResolverNews::Silent) => tracing::warn!(
                "no resolver answers, and no name is found for clients: nothing is heard from {}; name others in [dns] `servers`, or \
                 look for a firewall on the way there",
                process::join(servers)
            ),
            Some(ResolverNews::Back(silence)) => {
                tracing::info!("a resolver answers again after {} s", silence.as_secs());
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn silence_is_told_once_and_so_is_its_end() {
        let (mut silence, start) = (Unanswered::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        // One name that fails is no news, nor are many among others that are found.
        for second in 0..20 {
            assert_eq!(silence.on_silence(at(second)), None);
            assert_eq!(silence.on_silence(at(second)), None);
            assert_eq!(silence.on_answer(at(second)), None);
        }
        let told: Vec<_> = (20..40)
            .map(|second| silence.on_silence(at(second)))
            .collect();
        let first = told.iter().position(Option::is_some);
        assert_eq!(first, Some(2), "{told:?}");
        assert_eq!(told.iter().flatten().count(), 1, "{told:?}");
        let back = ResolverNews::Back(Duration::from_secs(30));
        assert_eq!(silence.on_answer(at(50)), Some(back));
        assert_eq!(silence.on_answer(at(51)), None);
        assert_eq!(silence.on_silence(at(52)), None);
    }
}
