//! Fuzz targets: every parser that reads bytes of a stranger, as `fn(&[u8])`, the shape that any fuzzer can drive.
//!
//! A target panics when its parser panics or breaks a promise (what it reads, it can write and read again). It also
//! names seeds, valid inputs from which [`driver`] makes almost valid ones.
//!
//! A new target: `mod NAME;` with `pub fn NAME(data: &[u8])` and `pub fn seeds()`, and one line in [`TARGETS`].
//! `cargo test` runs all of them for seconds, always the same inputs: seeds, mutations of them, and the corpus, which holds
//! one input for each way through the code that coverage has found. `make fuzz-long` (`long.sh`) goes on from there with
//! libFuzzer and counters in the program; `cargo run --release -- NAME ROUNDS SEED` goes on with blind mutations.

mod dns;
pub mod driver;
mod dssl;
mod fec;
mod les;
mod les_sa;
mod nat;
mod packets;
mod paths;
mod plot;
mod proxy;
mod scenario;
mod segments;
mod sle;
mod stream;
mod tunnel;
mod web;

use std::fs;
use std::path::Path;
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

impl Target {
    /// Inputs that coverage has found: the lines of `corpus/NAME.hex`; none before the first `make fuzz-long`.
    ///
    /// # Panics
    /// A line is not hexadecimal.
    #[must_use]
    pub fn corpus(&self) -> Vec<Vec<u8>> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(self.name)
            .with_extension("hex");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let inputs = text.lines().map(bytes);
        inputs
            .collect::<Option<_>>()
            .unwrap_or_else(|| panic!("{} is not hexadecimal", file.display()))
    }
}

/// What `hex` stands for.
#[must_use]
pub fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = hex.chars().map(|c| c.to_digit(16)).collect();
    digits?
        .chunks(2)
        .map(|pair| u8::try_from(pair.first()? << 4 | pair.get(1)?).ok())
        .collect()
}

/// Every target, by name.
pub const TARGETS: &[Target] = &[
    Target {
        name: "control",
        run: tunnel::control,
        seeds: tunnel::control_seeds,
    },
    Target {
        name: "tls_wire",
        run: stream::tls_wire,
        seeds: stream::tls_wire_seeds,
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
        name: "segments",
        run: tunnel::segments,
        seeds: tunnel::segments_seeds,
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
        name: "les_packet",
        run: les::packet,
        seeds: les::packet_seeds,
    },
    Target {
        name: "dssl_frames",
        run: dssl::frames,
        seeds: dssl::frame_seeds,
    },
    Target {
        name: "les_sa",
        run: les_sa::sa,
        seeds: les_sa::sa_seeds,
    },
    Target {
        name: "bulk",
        run: packets::bulk,
        seeds: packets::bulk_seeds,
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
    Target {
        name: "segment_relay",
        run: segments::relay,
        seeds: segments::seeds,
    },
    Target {
        name: "sle_record",
        run: sle::record,
        seeds: sle::record_seeds,
    },
    Target {
        name: "sle_conn",
        run: sle::conn,
        seeds: sle::conn_seeds,
    },
    Target {
        name: "web_frames",
        run: web::frames,
        seeds: web::frame_seeds,
    },
    Target {
        name: "html_links",
        run: web::links,
        seeds: web::link_seeds,
    },
    Target {
        name: "page_content",
        run: web::content,
        seeds: web::content_seeds,
    },
    Target {
        name: "web_answer",
        run: web::answer,
        seeds: web::answer_seeds,
    },
    Target {
        name: "web_incoming",
        run: web::incoming,
        seeds: web::incoming_seeds,
    },
];
