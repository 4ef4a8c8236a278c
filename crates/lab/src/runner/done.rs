//! What came of doing a task.

use std::time::Duration;

use crate::workload::{Call, Exchange, Load};

/// Result of a task that was done.
pub(super) enum Done {
    /// Seconds of each figure.
    Measured(Vec<f64>),
    /// Pages that a real browser loaded.
    Loaded(Vec<Load>),
    /// Datagrams of a call, or echoes, that were heard.
    Spoken(Call),
    /// Transactions of a session, in order.
    Conversed(Vec<Exchange>),
    /// Patience ended first.
    Unfinished,
}

/// Cost of a contender's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) time: Duration,
    /// Bytes that have crossed the client's end of the link, both ways.
    pub(super) bytes: u64,
}

impl Done {
    /// With what was spent before the first figure added to it.
    pub(super) fn after(mut self, start: Spent) -> Self {
        let spent = start.time;
        match &mut self {
            Self::Measured(seconds) => {
                if let Some(first) = seconds.first_mut() {
                    *first += spent.as_secs_f64();
                }
            }
            Self::Loaded(loads) => {
                if let Some(first) = loads.first_mut() {
                    first.load_ms += spent.as_secs_f64() * 1e3;
                    first.paint_ms = first.paint_ms.map(|ms| ms + spent.as_secs_f64() * 1e3);
                }
            }
            Self::Conversed(exchanges) => {
                for exchange in exchanges.iter_mut() {
                    exchange.ended += spent;
                }
                if let Some(first) = exchanges.first_mut() {
                    first.took += spent;
                    first.bytes += start.bytes;
                }
            }
            Self::Spoken(_) | Self::Unfinished => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_with_the_first_transaction_and_delays_all() {
        let exchange = |ended| Exchange {
            took: Duration::from_secs(1),
            ended: Duration::from_secs(ended),
            bytes: 10,
        };
        let done = Done::Conversed(vec![exchange(1), exchange(2)]);
        let Done::Conversed(exchanges) = done.after(Spent {
            time: Duration::from_secs(5),
            bytes: 100,
        }) else {
            unreachable!("it was a session")
        };
        let found = exchanges
            .iter()
            .map(|one| (one.took.as_secs(), one.ended.as_secs(), one.bytes));
        assert_eq!(found.collect::<Vec<_>>(), [(6, 6, 110), (1, 7, 10)]);
    }
}
