//! What is remembered of paths from one tunnel to the next, and between processes (Careful Resume, RFC 9959).
//!
//! ```text
//!   controller.saved() ─► learn ─► Paths ─► choose ─► controller.resume()
//!                                  │   ▲
//!                            encode│   │decode        a file; reading and writing it is the shell's
//! ```
//!
//! A path is a peer and the network that it is reached from. An entry counts in full for a day, for half its rate after
//! that, and for nothing after a week. How fast a controller goes on the strength of it is the controller's business.
//! `now` is an argument, the time since 1970: entries outlive the process and its monotonic clock.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bentpipe_units::{BitRate, Ratio};
use serde::{Deserialize, Serialize};

use crate::Saved;

/// Most entries; beyond that the one learned longest ago goes.
pub const MAX_PATHS: usize = 4096;
/// More bytes than a full file has; a larger one is not read.
pub const MAX_FILE: u64 = 2 << 20;
/// From this age on a rate counts for half.
const FULL: Duration = Duration::from_secs(24 * 3600);
/// From this age on an entry counts for nothing.
const EXPIRED: Duration = Duration::from_secs(7 * 24 * 3600);
/// An entry from the future is the work of a clock that was set: its age is not known.
const SKEW: Duration = Duration::from_secs(600);
/// Longest name of a peer; that of a public key in base64 is 44 bytes.
const MAX_PEER: usize = 64;
/// Bounds of what is believed of a path.
const MAX_RATE: u64 = 400_000_000_000;
const MAX_RTT: Duration = Duration::from_secs(30);
/// The first words of a file, and the version of its form.
const FORMAT: &str = "bentpipe paths 1";

/// Names a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathKey {
    peer: String,
    network: IpAddr,
}

impl PathKey {
    /// The path to or from `peer` by way of the network that holds `address`: its /24, or /48 with IPv6.
    pub fn new(peer: &str, address: IpAddr) -> Self {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & (!0 << 8)).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (!0 << 80)).into(),
        };
        let peer = peer.chars().take(MAX_PEER).collect();
        Self { peer, network }
    }
}

impl fmt::Display for PathKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.peer, self.network)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    rate: BitRate,
    rtt: Duration,
    loss: Ratio,
    /// When it was observed, since 1970.
    seen: Duration,
}

/// Every path that is remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paths(HashMap<PathKey, Entry>);

/// The bytes are not those of a file of paths.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON of that form.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Another program's, or another version's.
    #[error("its format is not `{FORMAT}`")]
    Format,
    /// More than a file of ours ever holds.
    #[error("it holds more than {MAX_PATHS} paths or {MAX_FILE} bytes")]
    TooLarge,
    /// A figure or name that cannot be.
    #[error("path {0} holds what cannot be")]
    Entry(usize),
}

impl Paths {
    /// Takes in what a controller says of a path; true if that is news.
    pub fn learn(&mut self, key: PathKey, saved: &Saved, now: Duration) -> bool {
        let entry = Entry {
            rate: saved.rate,
            rtt: saved.rtt,
            loss: saved.loss,
            seen: now.saturating_sub(saved.age),
        };
        if !entry.is_sane() || key.peer.is_empty() {
            return false;
        }
        // An idle tunnel says the same again and again. The form on disk has whole seconds.
        let old = self.0.get(&key);
        if old.is_some_and(|old| old.seen.abs_diff(entry.seen) < Duration::from_secs(1)) {
            return false;
        }
        self.0.insert(key, entry);
        while self.0.len() > MAX_PATHS {
            let oldest = self.0.iter().min_by_key(|(key, entry)| (entry.seen, *key));
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            self.0.remove(&oldest);
        }
        true
    }

    /// Notes that the clock by which an entry was made stood so far behind.
    pub fn correct(&mut self, key: &PathKey, behind: Duration) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.seen = entry.seen.saturating_add(behind);
        }
    }

    /// What is known of a path, as far as it still counts.
    pub fn choose(&self, key: &PathKey, now: Duration) -> Option<Saved> {
        let entry = self.0.get(key)?;
        let age = if entry.seen > now.saturating_add(SKEW) {
            FULL
        } else {
            now.saturating_sub(entry.seen)
        };
        if age >= EXPIRED {
            return None;
        }
        let rate = entry.rate.as_u64();
        let rate = if age < FULL { rate } else { rate / 2 };
        Some(Saved {
            rate: BitRate::bits_per_second(rate.max(1)),
            rtt: entry.rtt,
            loss: entry.loss,
            age,
        })
    }

    /// Forgets what no longer counts.
    pub fn expire(&mut self, now: Duration) {
        self.0
            .retain(|_, entry| now.saturating_sub(entry.seen) < EXPIRED);
    }

    /// Number of paths that are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no path is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The file that holds all of it: JSON, a path in a line, the newest first.
    pub fn encode(&self) -> Vec<u8> {
        let mut paths: Vec<_> = self.0.iter().collect();
        paths.sort_unstable_by(|a, b| (b.1.seen, b.0).cmp(&(a.1.seen, a.0)));
        let lines = paths.into_iter().map(|(key, entry)| {
            let line = Line::new(key, entry);
            serde_json::to_string(&line).expect("text and numbers are JSON")
        });
        let lines: Vec<_> = lines.collect();
        let lines = lines.join(",\n");
        format!("{{\"format\": \"{FORMAT}\", \"paths\": [\n{lines}\n]}}\n").into_bytes()
    }

    /// Reads such a file; a single fault makes all of it worthless.
    ///
    /// # Errors
    /// [`DecodeError`] says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() as u64 > MAX_FILE {
            return Err(DecodeError::TooLarge);
        }
        let file: File = serde_json::from_slice(bytes)?;
        if file.format != FORMAT {
            return Err(DecodeError::Format);
        }
        if file.paths.len() > MAX_PATHS {
            return Err(DecodeError::TooLarge);
        }
        let mut paths = HashMap::with_capacity(file.paths.len());
        for (index, line) in file.paths.into_iter().enumerate() {
            let (key, entry) = line.read().ok_or(DecodeError::Entry(index))?;
            paths.insert(key, entry);
        }
        Ok(Self(paths))
    }
}

impl Entry {
    fn is_sane(&self) -> bool {
        (1..=MAX_RATE).contains(&self.rate.as_u64())
            && self.rtt > Duration::ZERO
            && self.rtt <= MAX_RTT
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    paths: Vec<Line>,
}

/// A path as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    peer: String,
    network: IpAddr,
    rate_bit_s: u64,
    rtt_us: u64,
    loss: Ratio,
    /// Seconds since 1970.
    seen: u64,
}

impl Line {
    fn new(key: &PathKey, entry: &Entry) -> Self {
        Self {
            peer: key.peer.clone(),
            network: key.network,
            rate_bit_s: entry.rate.as_u64(),
            rtt_us: u64::try_from(entry.rtt.as_micros()).unwrap_or(u64::MAX),
            loss: entry.loss,
            seen: entry.seen.as_secs(),
        }
    }

    fn read(self) -> Option<(PathKey, Entry)> {
        let printable = self.peer.bytes().all(|byte| byte.is_ascii_graphic());
        let key = PathKey::new(&self.peer, self.network);
        let entry = Entry {
            rate: BitRate::bits_per_second(self.rate_bit_s),
            rtt: Duration::from_micros(self.rtt_us),
            loss: self.loss,
            seen: Duration::from_secs(self.seen),
        };
        let known = !self.peer.is_empty() && printable && key.peer == self.peer;
        (known && key.network == self.network && entry.is_sane()).then_some((key, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn key(peer: &str, address: &str) -> PathKey {
        PathKey::new(peer, address.parse().expect("an address"))
    }

    fn saved(mbit: u64, age: Duration) -> Saved {
        Saved {
            rate: BitRate::megabits_per_second(mbit),
            rtt: Duration::from_millis(602),
            loss: Ratio::new(0.01).expect("a ratio"),
            age,
        }
    }

    #[test]
    fn a_path_is_a_peer_and_a_network() {
        let mut paths = Paths::default();
        paths.learn(key("a", "192.0.2.77"), &saved(10, Duration::ZERO), NOW);
        for same in ["192.0.2.1", "::ffff:192.0.2.9"] {
            assert!(paths.choose(&key("a", same), NOW).is_some(), "{same}");
        }
        assert_eq!(paths.choose(&key("a", "192.0.3.77"), NOW), None);
        assert_eq!(paths.choose(&key("b", "192.0.2.77"), NOW), None);
        paths.learn(key("a", "2001:db8:1:2::3"), &saved(20, Duration::ZERO), NOW);
        assert!(paths.choose(&key("a", "2001:db8:1::1"), NOW).is_some());
        assert_eq!(paths.choose(&key("a", "2001:db8:2::1"), NOW), None);
    }

    #[test]
    fn age_halves_a_rate_and_then_ends_it() {
        let mut paths = Paths::default();
        let key = key("a", "192.0.2.1");
        paths.learn(key.clone(), &saved(10, HOUR), NOW);
        let rate = |paths: &Paths, later: Duration| {
            let saved = paths.choose(&key, NOW + later)?;
            Some((saved.rate.as_u64(), saved.age))
        };
        assert_eq!(rate(&paths, Duration::ZERO), Some((10_000_000, HOUR)));
        assert_eq!(rate(&paths, 22 * HOUR), Some((10_000_000, 23 * HOUR)));
        assert_eq!(rate(&paths, 23 * HOUR), Some((5_000_000, 24 * HOUR)));
        assert_eq!(rate(&paths, 7 * 24 * HOUR), None);
        // The clock was set back by a year: nobody knows how old the entry is.
        let before = NOW.saturating_sub(365 * 24 * HOUR);
        let known = paths.choose(&key, before).expect("it is kept");
        assert_eq!(known.rate.as_u64(), 5_000_000);
        paths.expire(NOW + 7 * 24 * HOUR);
        assert!(paths.is_empty());
    }

    #[test]
    fn what_was_learned_before_the_clock_was_set_counts_in_full() {
        let mut paths = Paths::default();
        let key = key("a", "192.0.2.1");
        paths.learn(
            key.clone(),
            &saved(10, Duration::ZERO),
            Duration::from_secs(100),
        );
        paths.correct(&key, NOW - Duration::from_secs(200));
        paths.expire(NOW);
        let known = paths.choose(&key, NOW).expect("it is young");
        assert_eq!(known.rate.as_u64(), 10_000_000);
        assert_eq!(known.age, Duration::from_secs(100));
    }

    #[test]
    fn an_idle_tunnel_is_no_news() {
        let mut paths = Paths::default();
        let key = key("a", "192.0.2.1");
        assert!(paths.learn(key.clone(), &saved(10, Duration::ZERO), NOW));
        assert!(!paths.learn(key.clone(), &saved(10, HOUR), NOW + HOUR));
        assert!(paths.learn(key, &saved(4, Duration::ZERO), NOW + HOUR));
    }

    #[test]
    fn the_oldest_goes() {
        let mut paths = Paths::default();
        for index in 0..MAX_PATHS as u64 + 2 {
            let name = format!("peer-{index}");
            let at = NOW + Duration::from_secs(10 * index);
            paths.learn(key(&name, "192.0.2.1"), &saved(10, Duration::ZERO), at);
        }
        assert_eq!(paths.len(), MAX_PATHS);
        let end = NOW + HOUR;
        assert_eq!(paths.choose(&key("peer-1", "192.0.2.1"), end), None);
        assert!(paths.choose(&key("peer-2", "192.0.2.1"), end).is_some());
        let bytes = paths.encode();
        assert!((bytes.len() as u64) < MAX_FILE, "{}", bytes.len());
        assert_eq!(Paths::decode(&bytes).expect("our own file"), paths);
    }

    #[test]
    fn the_file_has_this_form() {
        let mut paths = Paths::default();
        paths.learn(key("key=", "192.0.2.77"), &saved(10, Duration::ZERO), NOW);
        let text = "{\"format\": \"bentpipe paths 1\", \"paths\": [\n\
            {\"peer\":\"key=\",\"network\":\"192.0.2.0\",\"rate_bit_s\":10000000,\"rtt_us\":602000,\"loss\":0.01,\
            \"seen\":1800000000}\n]}\n";
        assert_eq!(String::from_utf8_lossy(&paths.encode()), text);
        assert_eq!(Paths::decode(text.as_bytes()).expect("our own file"), paths);
        let none = Paths::decode(&Paths::default().encode()).expect("our own file");
        assert!(none.is_empty());
    }

    #[test]
    fn a_file_with_a_fault_is_worthless() {
        let good = "{\"format\":\"bentpipe paths 1\",\"paths\":[{\"peer\":\"a\",\"network\":\"192.0.2.0\",\
            \"rate_bit_s\":1,\"rtt_us\":1,\"loss\":0,\"seen\":1}]}";
        assert!(Paths::decode(good.as_bytes()).is_ok());
        for (old, new) in [
            ("paths 1", "paths 2"),
            ("192.0.2.0", "192.0.2.1"),
            ("\"rate_bit_s\":1", "\"rate_bit_s\":0"),
            ("\"rate_bit_s\":1", "\"rate_bit_s\":500000000000"),
            ("\"rtt_us\":1", "\"rtt_us\":0"),
            ("\"rtt_us\":1", "\"rtt_us\":30000001"),
            ("\"loss\":0", "\"loss\":2"),
            ("\"peer\":\"a\"", "\"peer\":\"\""),
            ("\"peer\":\"a\"", "\"peer\":\"a b\""),
            ("\"seen\":1", "\"seen\":-1"),
            ("\"seen\":1", "\"seen\":1,\"more\":1"),
            ("]}", "]"),
        ] {
            let text = good.replacen(old, new, 1);
            assert_ne!(text, good, "{old}");
            assert!(Paths::decode(text.as_bytes()).is_err(), "{text}");
        }
        let long = good.replace("\"a\"", &format!("\"{}\"", "a".repeat(65)));
        assert!(Paths::decode(long.as_bytes()).is_err());
    }
}
