//! Processor time for links in pages that clients of an origin ask for: a share for each of them, and one for all.
//!
//! Pure: `now` is an argument.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use super::guests::GuestPeer;
use crate::reading::ReadingTime;

/// Shares that there are; peers have one each, which two of them rarely have in common.
const SHARES: usize = 1024;

/// Shares of an origin's peers.
pub(super) struct ReadingShares {
    /// Key of the hash that shares are found by: no peer can tell whose share is whose.
    secret: RandomState,
    shares: RefCell<Vec<ReadingTime>>,
    all: RefCell<ReadingTime>,
}

impl Default for ReadingShares {
    fn default() -> Self {
        let shares = std::iter::repeat_with(ReadingTime::default);
        Self {
            secret: RandomState::new(),
            shares: RefCell::new(shares.take(SHARES).collect()),
            all: RefCell::new(ReadingTime::of_all()),
        }
    }
}

impl ReadingShares {
    /// True if some time is left for pages of `peer`.
    pub(super) fn is_left(&self, peer: GuestPeer, now: Instant) -> bool {
        self.shares.borrow_mut()[self.place(peer)].is_left(now)
            && self.all.borrow_mut().is_left(now)
    }

    /// A page of `peer` took so much.
    pub(super) fn spend(&self, peer: GuestPeer, took: Duration) {
        self.shares.borrow_mut()[self.place(peer)].spend(took);
        self.all.borrow_mut().spend(took);
    }

    fn place(&self, peer: GuestPeer) -> usize {
        let hash = self.secret.hash_one(peer) % SHARES as u64;
        usize::try_from(hash).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts that have a share each.
    fn peers(shares: &ReadingShares, count: usize) -> Vec<GuestPeer> {
        let mut places = std::collections::HashSet::new();
        let all =
            (0..u32::MAX).map(|number| GuestPeer::at(std::net::Ipv4Addr::from(number).into()));
        let apart = all.filter(|peer| places.insert(shares.place(*peer)));
        apart.take(count).collect()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn who_has_had_its_share_takes_none_of_others_and_all_have_an_end() {
        let (shares, start) = (ReadingShares::default(), Instant::now());
        let peers = peers(&shares, 12);
        let at = |seconds| start + Duration::from_secs(seconds);
        shares.spend(peers[0], Duration::from_millis(600));
        assert!(!shares.is_left(peers[0], at(0)));
        assert!(shares.is_left(peers[1], at(0)));
        // Nobody has had much, and all of them too much.
        for peer in &peers[1..] {
            shares.spend(*peer, Duration::from_millis(100));
        }
        assert!(peers.iter().all(|peer| !shares.is_left(*peer, at(0))));
        assert!(shares.is_left(peers[1], at(2)));
        assert!(shares.is_left(peers[0], at(60)));
    }
}
