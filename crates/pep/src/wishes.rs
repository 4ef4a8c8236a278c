//! A direction of `[link]`, as the engine that sends in it and the peer that is asked to are told.

use bentpipe_proto::tunnel::Forward;
use bentpipe_tunnel::engine::Wishes;

use crate::config::Direction;

/// Settings that this side sends with.
pub(crate) fn own(direction: &Direction) -> Wishes {
    Wishes {
        controller: direction.controller.unwrap_or_default(),
        initial_window: direction.initial_window,
        max_rate: direction.max_rate,
        rate: direction.rate,
        ack_packets: direction.ack_ratio(),
        fec: direction.fec.unwrap_or_default(),
    }
}

/// Settings that the peer is asked to send with.
pub(crate) fn forward(direction: &Direction) -> Forward {
    Forward {
        controller: direction.controller.map(|kind| kind.name().to_owned()),
        max_rate: direction.max_rate,
        initial_window: direction.initial_window,
        rate: direction.rate,
        fec: direction.fec,
    }
}
