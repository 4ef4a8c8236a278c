//! Tokens of the responder: who may transfer past the tunnel, for how long, and how much.
//!
//! Pure but for the random numbers of the tokens: `now` is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time that a token is good for.
pub(super) const LIFETIME: Duration = Duration::from_secs(600);

/// Tokens that are good at the same time.
const MOST: usize = 64;

/// Tokens that were given and are still good. The map's keyed hash, and not a comparison of secrets byte by byte, decides.
#[derive(Debug, Default)]
pub(super) struct Grants(HashMap<String, Grant>);

#[derive(Debug)]
struct Grant {
    ends: Instant,
    /// Bytes that are left.
    left: u64,
}

impl Grants {
    /// A new token for `budget` bytes; none while there are too many.
    pub(super) fn issue(&mut self, now: Instant, budget: u64) -> Option<String> {
        self.0.retain(|_, grant| grant.ends > now);
        if self.0.len() >= MOST {
            return None;
        }
        let mut bytes = [0; 16];
        bentpipe_tunnel::engine::random(&mut bytes);
        let token = format!("{:032x}", u128::from_le_bytes(bytes));
        let grant = Grant {
            ends: now + LIFETIME,
            left: budget,
        };
        self.0.insert(token.clone(), grant);
        Some(token)
    }

    /// True if `token` is good for `bytes` more; they are then taken from it.
    pub(super) fn spend(&mut self, token: &str, bytes: u64, now: Instant) -> bool {
        let Some(grant) = self.0.get_mut(token) else {
            return false;
        };
        if grant.ends <= now || grant.left < bytes {
            return false;
        }
        grant.left -= bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn a_token_ends_with_its_bytes_and_with_its_time() {
        let start = Instant::now();
        let mut grants = Grants::default();
        let token = grants.issue(start, 100).expect("a token");
        assert!(!grants.spend("", 0, start));
        assert!(!grants.spend(&token[1..], 0, start));
        assert!(grants.spend(&token, 60, start));
        assert!(!grants.spend(&token, 41, start));
        assert!(grants.spend(&token, 40, start));
        assert!(!grants.spend(&token, 1, start));
        let other = grants.issue(start, 100).expect("a token");
        assert_ne!(token, other);
        let last = start + LIFETIME - Duration::from_nanos(1);
        assert!(grants.spend(&other, 1, last));
        assert!(!grants.spend(&other, 1, start + LIFETIME));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn tokens_are_as_many_as_there_may_be_until_some_end() {
        let start = Instant::now();
        let mut grants = Grants::default();
        let issued = (0..1000).filter_map(|_| grants.issue(start, 1)).count();
        assert_eq!(issued, MOST);
        assert!(grants.issue(start + LIFETIME, 1).is_some());
    }
}
