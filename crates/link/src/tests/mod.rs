//! Links in virtual time: the pipe, the general link, scenarios, and a model of TCP across them.

mod adaptive;
mod bursts;
mod common;
mod constant;
mod docs;
mod drops;
mod errors;
mod forward;
mod presets;
mod scenario;
mod schedule;
mod space;
mod timing;

use std::time::Instant;

use crate::{Files, Link, PacketHeader, Port, Scenario, TerminalId};
use bentpipe_units::ByteCount;

pub(crate) fn read(text: &str) -> Scenario {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn made(text: &str, start: Instant) -> Link<u32> {
    let model = read(text).build(&Files::new());
    Link::new(&model.unwrap_or_else(|error| panic!("{error}")), start)
}

pub(crate) fn header(size: u64, dscp: u8) -> PacketHeader {
    PacketHeader {
        size: ByteCount::new(size),
        dscp,
        train: None,
    }
}

pub(crate) const fn gateway(terminal: usize) -> Port {
    Port::Gateway {
        terminal: TerminalId::new(terminal),
    }
}

/// Everything that arrives until the link is empty, waking only when it asks to be woken.
pub(crate) fn drain(link: &mut Link<u32>) -> Vec<(Instant, Port, u32)> {
    let mut arrived = Vec::new();
    while let Some(wakeup) = link.poll_timeout() {
        while let Some(delivery) = link.poll_output(wakeup) {
            assert_eq!(delivery.at, wakeup, "the timeout announces the arrival");
            arrived.push((delivery.at, delivery.to, delivery.packet));
        }
    }
    arrived
}
