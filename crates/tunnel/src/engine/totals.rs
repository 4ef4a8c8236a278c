//! Sums over all connections of an engine, ended ones included, and the allowance of bytes on the link.
//!
//! `status` shows one epoch, the start of the process, however often the tunnel was made anew; and a cap holds for attempts
//! that became no tunnel, too.

use std::ops::AddAssign;

use super::ledger::Ledger;
use crate::transport::{PacketStats, TunnelStats};

/// Figures of all connections since the engine began.
#[derive(Debug, Default, Clone, Copy)]
pub struct Totals {
    /// Purpose of the bytes on the link.
    pub ledger: Ledger,
    /// Flows and their bytes.
    pub flows: TunnelStats,
    /// IP packets.
    pub packets: PacketStats,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.ledger += other.ledger;
        self.flows += other.flows;
        self.packets += other.packets;
    }
}

/// Datagrams that may still leave once the allowance is used up, of connections that end: they tell the peer to stop sending.
const LAST_WORDS: u32 = 4;

/// Count of bytes on the link in both directions, IP packets whole, and the most there may be.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    crossed: u64,
    most: Option<u64>,
    last_words: u32,
    news: bool,
}

impl Allowance {
    /// Bytes that have crossed.
    pub(super) fn crossed(&self) -> u64 {
        self.crossed
    }

    /// `more` bytes may cross from now on; `None`: any number.
    pub(super) fn grant(&mut self, more: Option<u64>) {
        self.most = more.map(|more| self.crossed.saturating_add(more));
        self.last_words = LAST_WORDS;
        self.news = self.is_spent();
    }

    /// Enters what has crossed.
    pub(super) fn enter(&mut self, bytes: u64) {
        let spent = self.is_spent();
        self.crossed += bytes;
        self.news |= !spent && self.is_spent();
    }

    /// True if all that may cross has.
    pub(super) fn is_spent(&self) -> bool {
        self.most.is_some_and(|most| self.crossed >= most)
    }

    /// True if datagrams may be built now.
    pub(super) fn permits(&self) -> bool {
        !self.is_spent() || self.last_words > 0
    }

    /// Enters datagrams that leave, `bytes` together.
    pub(super) fn enter_sent(&mut self, bytes: u64) {
        if self.is_spent() {
            self.last_words = self.last_words.saturating_sub(1);
        }
        self.enter(bytes);
    }

    /// True once after the allowance was used up.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_ends_at_the_byte_and_can_be_renewed() {
        let mut allowance = Allowance::default();
        allowance.enter(1 << 40);
        assert!(!allowance.is_spent() && !allowance.take_news(), "no limit");
        allowance.grant(Some(100));
        allowance.enter(99);
        assert!(allowance.permits() && !allowance.take_news());
        allowance.enter(1);
        assert!(allowance.take_news() && !allowance.take_news(), "said once");
        for _ in 0..LAST_WORDS {
            assert!(allowance.permits());
            allowance.enter_sent(1);
        }
        assert!(!allowance.permits());
        allowance.grant(Some(1));
        assert!(allowance.permits());
        allowance.grant(Some(0));
        assert!(allowance.take_news(), "there was nothing left");
        allowance.grant(None);
        assert!(allowance.permits());
    }
}
