//! What the tests of the pipe share: a clean link, a time origin, a saturating sender.

use std::time::{Duration, Instant};

use crate::{LossModel, Outage, Pipe, PipeConfig, QueueLimit, Schedule};
use bentpipe_units::{BitRate, ByteCount};

mod origin;
pub(crate) use origin::{origin, seed};

/// A link without losses and with a large queue.
pub(crate) fn clean(rate: BitRate, one_way_delay: Duration) -> PipeConfig {
    PipeConfig {
        rate,
        one_way_delay,
        queue: QueueLimit::Packets(usize::MAX),
        loss: LossModel::None,
        outages: Vec::<Outage>::new(),
        schedule: Schedule::none(),
        policer: None,
    }
}

/// Offers `count` numbered packets at once and returns those that arrive, with their instants.
pub(crate) fn burst(
    pipe: &mut Pipe<u32>,
    now: Instant,
    count: u32,
    size: u64,
) -> Vec<(Instant, u32)> {
    for number in 0..count {
        pipe.handle_packet(now, ByteCount::new(size), number);
    }
    drain(pipe)
}

/// Runs the pipe until it is empty, waking only when it asks to be woken.
pub(crate) fn drain<P>(pipe: &mut Pipe<P>) -> Vec<(Instant, P)> {
    let mut arrived = Vec::new();
    while let Some(wakeup) = pipe.poll_timeout() {
        while let Some((arrival, packet)) = pipe.poll_output(wakeup) {
            assert_eq!(arrival, wakeup, "the timeout announces the arrival exactly");
            arrived.push((arrival, packet));
        }
    }
    arrived
}
