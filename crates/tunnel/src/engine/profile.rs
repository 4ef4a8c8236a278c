//! What is known of a link before anything crosses it: its class, an RTT remembered, and what follows for timers, first
//! windows and acknowledgements.
//!
//! quinn takes these when a connection begins and not again: a server therefore learns them from the client's first
//! connection ID ([`Link::hint`], `PROTOCOL.md` §2). It does not measure; `client/memory.rs` remembers.

use std::fmt;
use std::time::Duration;

use bentpipe_proto::tunnel::Acks;
use serde::{Deserialize, Serialize};

/// Bytes of the first connection ID that carry hints.
pub(super) const HINTS: usize = 3;
/// Unit of the RTT in a hint.
const HINT_UNIT: Duration = Duration::from_millis(4);

/// Most packets that one ACK may answer. Holes need ranges, 64 of which fit into an ACK: 200 packets are 16 / loss at 8 %,
/// the heaviest loss for which the tunnel is made. quinn takes one value for the life of a connection, so it is this one;
/// below 8 % more would be possible, and save 50 kbit/s of ACKs at 250 Mbit/s.
pub const MAX_ACK_PACKETS: u8 = 200;
/// ACKs in a round trip: 16 take 13 kbit/s of the return link at 50 Mbit/s and 650 ms, 26 at 1 % loss. Against 8 of them a
/// download of 30 MB ends 1.5 % sooner on a cold tunnel, and 3 % with that loss; 25 bring no more.
const ACKS_PER_ROUND: u32 = 16;
/// Bounds of the time between them.
pub(super) const ACK_DELAY: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];
/// ACK delay where the ratio is fixed, so that time does not answer before it: quinn asks for no more than one RTT.
const NO_DELAY_BOUND: Duration = Duration::from_secs(1);

/// Kind of link, which decides timers before anything was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Geostationary: 500 ms and more.
    Geo,
    /// Low orbit: tens of milliseconds.
    Leo,
    /// Low orbit with a new satellite every 15 s.
    Starlink,
    /// Not known: start as for a geostationary link, let measurements decide.
    #[default]
    Auto,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Geo => "geo",
            Self::Leo => "leo",
            Self::Starlink => "starlink",
            Self::Auto => "auto",
        })
    }
}

impl Profile {
    /// From here on a round trip is taken for one over a geostationary (or higher) orbit; medium orbits begin at 125 ms
    /// and are treated alike, for their windows are closer to these.
    const GEO_RTT: Duration = Duration::from_millis(125);
    /// Variation of the RTT from which a low orbit is taken for one whose satellites change every few seconds.
    const STARLINK_VARIATION: Duration = Duration::from_millis(4);

    /// The class of a link with this smallest RTT and this variation of it.
    pub fn measured(rtt: Duration, variation: Option<Duration>) -> Self {
        if rtt >= Self::GEO_RTT {
            Self::Geo
        } else if variation.is_some_and(|variation| variation >= Self::STARLINK_VARIATION) {
            Self::Starlink
        } else {
            Self::Leo
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Auto => 0,
            Self::Geo => 1,
            Self::Leo => 2,
            Self::Starlink => 3,
        }
    }

    fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Geo,
            2 => Self::Leo,
            3 => Self::Starlink,
            _ => Self::Auto,
        }
    }
}

/// Facts of a link that are known when a connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Class of the link.
    pub profile: Profile,
    /// The smallest RTT remembered of it.
    pub rtt: Option<Duration>,
    /// Fixed number of packets per ACK on the forward link, 1 to [`MAX_ACK_PACKETS`]; `None`: [`AckPolicy`] decides.
    pub forward_ack_packets: Option<u8>,
}

impl From<Profile> for Link {
    fn from(profile: Profile) -> Self {
        Self {
            profile,
            ..Self::default()
        }
    }
}

impl Link {
    /// RTT assumed until the first sample: below the true one the first flight is sent twice.
    pub(super) fn initial_rtt(self) -> Duration {
        self.rtt.unwrap_or(match self.profile {
            Profile::Geo | Profile::Auto => Duration::from_millis(700),
            Profile::Leo => Duration::from_millis(120),
            // 20 to 50 ms, and 100 more when the terminal's own queue is full.
            Profile::Starlink => Duration::from_millis(150),
        })
    }

    /// First window in packets. Paced over a round trip, so a GEO link can take many at once.
    pub(super) fn initial_window(self) -> u64 {
        match self.profile {
            Profile::Geo | Profile::Starlink | Profile::Auto => 64,
            Profile::Leo => 32,
        }
    }

    /// The first bytes of the client's first destination connection ID.
    pub(super) fn hint(self) -> [u8; HINTS] {
        let steps = |rtt: Duration| {
            let steps = rtt.as_nanos().div_ceil(HINT_UNIT.as_nanos());
            u8::try_from(steps).unwrap_or(u8::MAX).max(1)
        };
        [
            self.profile.number(),
            self.forward_ack_packets.unwrap_or(0),
            self.rtt.map_or(0, steps),
        ]
    }

    /// Reads what a first connection ID hints at; nothing if it is too short to do so.
    pub(super) fn from_hint(cid: &[u8]) -> Self {
        let Some(&[class, packets, rtt]) = cid.first_chunk::<HINTS>() else {
            return Self::default();
        };
        if cid.len() < super::cid::INITIAL_CID {
            return Self::default();
        }
        Self {
            profile: Profile::from_number(class),
            rtt: (rtt > 0).then(|| HINT_UNIT * u32::from(rtt)),
            forward_ack_packets: (1..=MAX_ACK_PACKETS).contains(&packets).then_some(packets),
        }
    }
}

/// A connection's path as it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) link: Link,
    pub(super) ipv6: bool,
    /// Acknowledgements that this side asks for.
    pub(super) asks: AckPolicy,
    /// Acknowledgements that the peer asks for, as far as can be told before its HELLO.
    pub(super) asked: AckPolicy,
}

impl Path {
    /// Bytes of an IP packet below QUIC.
    pub(super) const fn headers(&self) -> u64 {
        super::settings::headers(self.ipv6)
    }
}

/// Acknowledgements that a sender wants: it asks with ACK_FREQUENCY, once, for the life of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckPolicy {
    /// At the latest after so many packets.
    pub packets: u8,
    /// And after this time, or one RTT where that is less; quinn takes RTTs below 25 ms for 25 ms here.
    pub delay: Duration,
}

impl AckPolicy {
    /// The policy for a link of which `link` is known. Where that is nothing yet, 25 ms do for every class: an ACK or two
    /// per round trip in low orbit, which costs 3 % of a download, and 21 kbit/s of them over a geostationary link.
    pub fn of(link: Link, fixed: Option<u8>) -> Self {
        if let Some(packets) = fixed {
            return Self {
                packets,
                delay: NO_DELAY_BOUND,
            };
        }
        let [least, most] = ACK_DELAY;
        let delay = match (link.rtt, link.profile) {
            (Some(rtt), _) => (rtt / ACKS_PER_ROUND).clamp(least, most),
            (None, Profile::Geo) => Duration::from_millis(40),
            (None, Profile::Leo | Profile::Starlink) => least,
            (None, Profile::Auto) => Duration::from_millis(25),
        };
        Self {
            packets: MAX_ACK_PACKETS,
            delay,
        }
    }
}

impl AckPolicy {
    /// True if the operator has fixed the number of packets, and time plays no part.
    pub(super) fn is_fixed(self) -> bool {
        self.delay == NO_DELAY_BOUND
    }

    /// As HELLO tells it.
    pub(super) fn announced(self) -> Acks {
        Acks {
            packets: u64::from(self.packets),
            delay: self.delay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn hints_survive_the_wire() {
        for profile in [Profile::Auto, Profile::Geo, Profile::Leo, Profile::Starlink] {
            for forward_ack_packets in [None, Some(1), Some(200)] {
                for rtt in [None, Some(ms(4)), Some(ms(612)), Some(ms(1020))] {
                    let link = Link {
                        profile,
                        rtt,
                        forward_ack_packets,
                    };
                    let cid = super::super::cid::initial_cid(link.hint());
                    assert_eq!(Link::from_hint(&cid), link);
                }
            }
        }
        let rounded = |rtt| {
            let link = Link {
                rtt: Some(rtt),
                ..Link::default()
            };
            Link::from_hint(&super::super::cid::initial_cid(link.hint())).rtt
        };
        assert_eq!(rounded(ms(610)), Some(ms(612)));
        assert_eq!(rounded(Duration::from_micros(1)), Some(ms(4)));
        assert_eq!(rounded(Duration::from_secs(9)), Some(ms(1020)));
    }

    #[test]
    fn strange_connection_ids_hint_at_nothing() {
        assert_eq!(Link::from_hint(&[1, 5, 5]), Link::default());
        assert_eq!(Link::from_hint(&[1, 5, 5, 0, 0, 0, 0, 0]), Link::default());
        assert_eq!(
            Link::from_hint(&[9, 201, 0, 7, 7, 7, 7, 7, 7, 7, 7]),
            Link::default()
        );
    }

    #[test]
    fn acks_follow_the_round_trip() {
        let delay = |rtt| {
            let link = Link {
                rtt: Some(rtt),
                ..Link::default()
            };
            AckPolicy::of(link, None).delay
        };
        assert_eq!(delay(ms(640)), ms(40));
        assert_eq!(delay(ms(20)), ms(5));
        assert_eq!(delay(ms(4000)), ms(100));
        let fixed = AckPolicy::of(Profile::Geo.into(), Some(7));
        assert_eq!((fixed.packets, fixed.delay), (7, NO_DELAY_BOUND));
    }

    #[test]
    fn measurements_give_the_class() {
        for (rtt, variation, class) in [
            (612, None, Profile::Geo),
            (140, None, Profile::Geo),
            (25, None, Profile::Leo),
            (40, Some(1), Profile::Leo),
            (40, Some(8), Profile::Starlink),
            (500, Some(80), Profile::Geo),
        ] {
            assert_eq!(
                Profile::measured(ms(rtt), variation.map(ms)),
                class,
                "{rtt} {variation:?}"
            );
        }
    }
}
