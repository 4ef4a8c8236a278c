//! Bytes on the link over all tunnels of this run: what they cost, and what happens when they are used up.

use super::session::Session;
use crate::config::AtCap;
use crate::engine::{ConnectionId, Engine, Ledger};
use crate::status;

impl Session {
    /// What the bytes were for, since the daemon started.
    pub(super) fn ledger(&self) -> Ledger {
        let mut ledger = self.past.get();
        ledger += self.shard.peek(Engine::strays);
        let current = self.ready.get().and_then(|id| self.ledger_of(id));
        ledger += current.unwrap_or_default();
        ledger
    }

    fn ledger_of(&self, id: ConnectionId) -> Option<Ledger> {
        self.shard.peek(|engine| Some(engine.peek(id)?.ledger()))
    }

    /// A tunnel has ended.
    pub(super) fn close_books(&self, id: ConnectionId) {
        let sampled = self.latest.borrow().ledger_bytes;
        let mut past = self.past.get();
        past += self.ledger_of(id).or(sampled).unwrap_or_default();
        self.past.set(past);
    }

    /// Warns or stops where the cap is reached.
    pub(super) fn meter_bytes(&self) {
        let metering = self.config.metering;
        let used = self.ledger().total();
        let reached = metering.cap.is_some_and(|cap| used >= cap.as_u64());
        if !reached || self.used_up.replace(true) {
            return;
        }
        match metering.at_cap {
            AtCap::Warn => {
                tracing::warn!(
                    "{used} bytes have crossed the link: `cap` of [metering] is reached"
                );
            }
            AtCap::Stop => {
                tracing::error!(
                    "{used} bytes have crossed the link: `cap` of [metering] is reached; nothing crosses any more until \
                     the client is restarted"
                );
                self.drain();
                self.close();
            }
        }
    }

    /// The figures of `status`.
    pub(super) fn metering(&self) -> Option<status::Metering> {
        let metering = self.config.metering;
        let used_bytes = self.ledger().total();
        (metering.cap.is_some() || metering.price_per_mb.is_some()).then(|| status::Metering {
            used_bytes,
            cap_bytes: metering.cap.map(|cap| cap.as_u64()),
            cost: metering
                .price_per_mb
                .map(|price| used_bytes as f64 / 1e6 * price),
            used_up: self.used_up.get(),
        })
    }
}
