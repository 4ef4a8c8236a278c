//! What physics allows: the least time that anything could take over a link, whatever carries it.
//!
//! Counted are propagation, the link's rate, and what no proxy can take away: a request goes up before its answer comes
//! down, and TLS between browser and web takes a round trip on the first connection to a host. Counted as free are TCP's
//! handshakes, congestion control, queues, the way between gateway and web, and all computing.

use std::collections::HashMap;
use std::time::Duration;

use bentpipe_link::LinkConfig;
use bentpipe_units::{BitRate, ByteCount};

use super::page::Page;
use super::shape::Kind;

/// The most content that fits into a packet of 1500 bytes, as a share: 1446 bytes in QUIC over IPv4, which is 28 bytes
/// for IP and UDP, 3 for the short header, 16 for the tag and 7 for a stream frame. TCP's share is the same to 0.2 %.
pub const PAYLOAD_EFFICIENCY: f64 = 1446.0 / 1500.0;

/// Round trips that TLS between browser and web takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshakes {
    /// Of one handshake.
    pub round_trips: u32,
    /// True if each object has one, or each host.
    pub each: bool,
}

impl Handshakes {
    /// Handshakes of browsers: TLS 1.3 (RFC 8446 §2), once for each host.
    pub const TLS13: Self = Self {
        round_trips: 1,
        each: false,
    };
}

/// The bounds of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLimit {
    rtt: Duration,
    content_rate: BitRate,
}

impl LinkLimit {
    /// The bounds for content that comes down `link`'s forward link.
    #[must_use]
    pub fn new(link: &LinkConfig) -> Self {
        let rtt = link.forward_link.one_way_delay + link.return_link.one_way_delay;
        Self::of(rtt, link.forward_link.rate, 0.0)
    }

    /// The bounds for content that crosses a link of this rate, and of which this share is lost and must cross again.
    #[must_use]
    pub fn of(rtt: Duration, rate: BitRate, lost: f64) -> Self {
        let rate = rate.as_u64() as f64 * PAYLOAD_EFFICIENCY * (1.0 - lost);
        Self {
            rtt,
            // Rounded up: a bound must not exceed what is possible. Where nothing arrives, it does not bound.
            content_rate: BitRate::bits_per_second(rate.ceil().max(1.0) as u64),
        }
    }

    /// One object of `length` bytes over plain HTTP: request up, content down.
    #[must_use]
    pub fn object(&self, length: u64) -> Duration {
        self.rtt + self.transmit(length)
    }

    /// A stream of `length` bytes that nobody has to ask for, from its first byte.
    #[must_use]
    pub fn stream(&self, length: u64) -> Duration {
        self.transmit(length)
    }

    /// A whole page over HTTPS, or in clear.
    ///
    /// Earliest starts follow from the dependencies as if each object had the link to itself and hosts took any number
    /// of requests at once. What starts at an instant or later must pass the link after it: the worst instant counts.
    #[must_use]
    pub fn page(&self, page: &Page, handshakes: Handshakes) -> Duration {
        let starts = self.earliest_starts(page, handshakes);
        let after = |start: Duration| {
            let later = starts.iter().zip(page.objects());
            let bytes = later
                .filter(|(other, _)| **other >= start)
                .map(|(_, object)| object.length)
                .sum();
            start + self.transmit(bytes)
        };
        starts
            .iter()
            .map(|start| after(*start))
            .max()
            .unwrap_or_default()
    }

    /// Times at which the first byte of each object could arrive.
    fn earliest_starts(&self, page: &Page, handshakes: Handshakes) -> Vec<Duration> {
        let objects = page.objects();
        let mut starts = vec![Duration::ZERO; objects.len()];
        let mut tls_done: HashMap<u8, Duration> = HashMap::new();
        let mut found = vec![(Duration::ZERO, 0)];
        // In order of time, so that whoever is first on a host is met first.
        while let Some(next) = found.iter().min().copied() {
            found.retain(|other| *other != next);
            let (now, index) = next;
            let object = &objects[index];
            let done = now + self.rtt * handshakes.round_trips;
            let tls = match handshakes.each {
                true => done,
                false => *tls_done.entry(object.host).or_insert(done),
            };
            starts[index] = tls.max(now) + self.rtt;
            // A document is read as it comes, a script when it is whole.
            let read = match object.kind {
                Kind::Document => starts[index],
                _ => starts[index] + self.transmit(object.length),
            };
            found.extend(page.children(index).map(|child| (read, child)));
        }
        starts
    }

    fn transmit(&self, bytes: u64) -> Duration {
        self.content_rate.transmit_time(ByteCount::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_emulator::scenario::preset;
    use bentpipe_units::Seed;

    use super::*;
    use crate::workload::Shape;

    #[test]
    fn the_bounds_are_those_of_the_link() {
        let limit = LinkLimit::new(&preset("geo").unwrap().link_config().unwrap());
        // 10 MB at 10 Mbit/s: 8 s of content, 3.7 % more for headers, and a round trip.
        assert_eq!(limit.object(10_000_000).as_millis(), 8798);
        assert_eq!(limit.object(1000).as_millis(), 500);
        // At least TLS and request of the document, request of the next level, TLS and request of the last.
        for seed in 1..20 {
            let page = limit.page(
                &Page::new(&Shape::USUAL, Seed::new(seed)),
                Handshakes::TLS13,
            );
            let transmit = limit.transmit(2_000_000);
            assert!(page > Duration::from_millis(2500), "{page:?}");
            assert!(page < Duration::from_millis(3000) + transmit, "{page:?}");
            // Two levels more, on hosts that are known by then.
            let deep = limit.page(&Page::new(&Shape::DEEP, Seed::new(seed)), Handshakes::TLS13);
            assert!(deep > Duration::from_millis(3500), "{deep:?}");
            assert!(deep < Duration::from_millis(4000) + transmit, "{deep:?}");
        }
    }
}
