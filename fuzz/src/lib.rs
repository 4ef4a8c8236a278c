//! Fuzz targets: every parser that reads bytes of a stranger, as `fn(&[u8])`, the shape that any fuzzer can drive.
//!
//! A target panics when its parser panics or breaks a promise (what it reads, it can write and read again). It also
//! names seeds, valid inputs from which [`driver`] makes almost valid ones.
//!
//! A new target: `mod NAME;` with `pub fn NAME(data: &[u8])` and `pub fn seeds()`, and one line in [`TARGETS`].
//! `cargo test` runs all of them for seconds, always the same inputs; `cargo run --release -- NAME ROUNDS SEED` longer.

mod dns;
pub mod driver;
mod fec;
mod nat;
mod packets;
mod paths;
mod plot;
mod proxy;
mod scenario;
mod tunnel;

use std::time::Instant;

/// When virtual time begins.
#[expect(
    clippy::disallowed_methods,
    reason = "an arbitrary origin; all else is virtual"
)]
fn origin() -> Instant {
    Instant::now()
}

/// One parser under test.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Reads the input; panics if something is wrong with the parser, not with the input.
    pub run: fn(&[u8]),
    /// Valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target, by name.
pub const TARGETS: &[Target] = &[
    Target {
        name: "control",
        run: tunnel::control,
        seeds: tunnel::control_seeds,
    },
    Target {
        name: "hello",
        run: tunnel::hello,
        seeds: tunnel::hello_seeds,
    },
    Target {
        name: "open",
        run: tunnel::open,
        seeds: tunnel::open_seeds,
    },
    Target {
        name: "inbound",
        run: tunnel::inbound,
        seeds: tunnel::inbound_seeds,
    },
    Target {
        name: "reply",
        run: tunnel::reply,
        seeds: tunnel::reply_seeds,
    },
    Target {
        name: "train",
        run: tunnel::train,
        seeds: tunnel::train_seeds,
    },
    Target {
        name: "silence",
        run: tunnel::silence,
        seeds: tunnel::silence_seeds,
    },
    Target {
        name: "repair",
        run: fec::repair,
        seeds: fec::seeds,
    },
    Target {
        name: "destination",
        run: tunnel::destination,
        seeds: tunnel::destination_seeds,
    },
    Target {
        name: "opening",
        run: proxy::opening,
        seeds: proxy::opening_seeds,
    },
    Target {
        name: "socks5",
        run: proxy::socks5,
        seeds: proxy::socks5_seeds,
    },
    Target {
        name: "connect",
        run: proxy::connect,
        seeds: proxy::connect_seeds,
    },
    Target {
        name: "dns_query",
        run: dns::query,
        seeds: dns::query_seeds,
    },
    Target {
        name: "dns_answer",
        run: dns::answer,
        seeds: dns::answer_seeds,
    },
    Target {
        name: "frames",
        run: packets::frames,
        seeds: packets::frame_seeds,
    },
    Target {
        name: "nat",
        run: nat::exchange,
        seeds: nat::seeds,
    },
    Target {
        name: "packet",
        run: packets::packet,
        seeds: packets::packet_seeds,
    },
    Target {
        name: "paths",
        run: paths::paths,
        seeds: paths::seeds,
    },
    Target {
        name: "plot",
        run: plot::plot,
        seeds: plot::seeds,
    },
    Target {
        name: "scenario",
        run: scenario::scenario,
        seeds: scenario::seeds,
    },
];
