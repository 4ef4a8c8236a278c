//! A round-trip time that stays where it is although less and less is in flight: the path became longer.
//!
//! A queue of ours would shrink, and one that somebody else fills would grow or shrink with what we leave. Asked at every ACK,
//! where paths change their length: each round trip of doubt costs a part of it. `long_queue.rs` asks the same of long queues
//! at the end of each round, and whose they are else. It only watches.

use std::time::Duration;

use super::super::time_of;

/// Round-trip times that differ by no more, and by twice the path's noise, are the same.
const SAME: Duration = Duration::from_millis(2);
/// The least queue that must have been taken away before anything is concluded, and the part of it that a path may show
/// which had a short queue as well.
const LEAST: Duration = Duration::from_millis(15);
const PART: u32 = 5;

/// A round-trip time being watched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stuck {
    since: Option<Since>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    rtt: Duration,
    /// The most that was in flight when a packet left that took this long.
    in_flight: u64,
}

impl Stuck {
    /// The queue is short.
    pub(super) fn reset(&mut self) {
        self.since = None;
    }

    /// What looks like a queue is there.
    pub(super) fn is_watching(&self) -> bool {
        self.since.is_some()
    }

    /// A packet that left behind `in_flight` bytes took `rtt`, seemingly behind a queue, on a path of `rate` bytes per
    /// second. True if that cannot be one, since `enough` of it was taken away; the watch begins anew then.
    pub(super) fn on_ack(
        &mut self,
        rtt: Duration,
        in_flight: u64,
        enough: Duration,
        rate: u64,
        noise: Duration,
    ) -> bool {
        let apart = SAME + noise * 2;
        let Some(since) = self.since.as_mut().filter(|since| rtt <= since.rtt + apart) else {
            self.since = Some(Since { rtt, in_flight });
            return false;
        };
        since.in_flight = since.in_flight.max(in_flight);
        let removed = time_of(since.in_flight - in_flight, rate);
        let shorter = since.rtt.saturating_sub(rtt);
        if shorter > apart + removed / PART {
            self.since = Some(Since { rtt, in_flight });
            return false;
        }
        let stuck = removed >= enough.max(LEAST).max(apart * 2);
        if stuck {
            self.reset();
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACKs until the verdict on a path of 50 ms and 1000 bytes a millisecond, with the round-trip time and the bytes in
    /// flight of each, in milliseconds and thousands.
    fn acks(each: impl Fn(u64) -> (u64, u64)) -> Option<u64> {
        let mut stuck = Stuck::default();
        (0..100).find(|ack| {
            let (rtt, in_flight) = each(*ack);
            let rtt = Duration::from_millis(rtt);
            let noise = Duration::from_millis(1);
            stuck.on_ack(rtt, in_flight * 1000, LEAST, 1_000_000, noise)
        })
    }

    #[test]
    fn what_does_not_move_is_the_path() {
        assert_eq!(acks(|ack| (80, 80 - 2 * ack.min(30))), Some(8));
        assert_eq!(acks(|ack| (78 + 4 * (ack % 2), 80 - ack.min(30))), Some(15));
        assert_eq!(acks(|_| (80, 80)), None, "nothing was taken away");
    }

    #[test]
    fn what_shrinks_or_grows_is_a_queue() {
        assert_eq!(acks(|ack| (150 - ack, 150 - ack)), None);
        assert_eq!(acks(|ack| (80 + ack, 80 - ack / 2)), None);
    }
}
