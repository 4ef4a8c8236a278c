//! Companions: questions that hosts ask soon after another one. Asked along with it, they save a page a round trip for each
//! name that its objects bring.
//!
//! ```text
//!   host: A … B … C   (a burst)   ─►  A leads B, C
//!   host: A again, later          ─►  B and C are asked for beside it
//! ```
//!
//! What was learned stays in memory, within bounds, and is gone with the process.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::query::Key;
use super::share::Host;

/// Time without a question after which a host's next question leads another burst: a page over a satellite asks for the names of
/// its objects within two or three round trips of 0.6 s.
const QUIET: Duration = Duration::from_secs(5);

/// Longest burst: whoever asks without pause asks for something else by then.
const LONGEST: Duration = Duration::from_secs(20);

/// Companions of one question: the pages of the HTTP Archive have objects of some ten hosts in the median, each with two or three
/// record types.
const MOST_COMPANIONS: usize = 24;

/// Questions whose companions are remembered.
const MOST_LEADERS: usize = 256;

/// Hosts whose bursts are followed.
const MOST_HOSTS: usize = 64;

/// Bursts in a row that a companion may miss. Hosts have caches of their own, so that one miss says little.
const MISSES: u8 = 3;

/// Names that follow each name.
#[derive(Debug, Default)]
pub(super) struct Companions {
    leaders: HashMap<Key, Leader>,
    /// Leaders by when they last led, the least recent first.
    recent: BTreeMap<u64, Key>,
    bursts: HashMap<Host, Burst>,
    /// Leads so far.
    turn: u64,
}

#[derive(Debug)]
struct Leader {
    companions: Vec<Companion>,
    /// Place of the leader in `recent`.
    turn: u64,
}

#[derive(Debug)]
struct Companion {
    key: Key,
    /// Bursts since a host last asked for it.
    missed: u8,
}

/// Questions of one host without a pause.
#[derive(Debug)]
struct Burst {
    leader: Key,
    followers: Vec<Key>,
    begun: Instant,
    last: Instant,
}

impl Companions {
    /// A host asks `key`. Returns what is worth asking along with it.
    pub(super) fn on_question(&mut self, now: Instant, host: Host, key: &Key) -> Vec<Key> {
        if let Some(burst) = self.bursts.get_mut(&host)
            && now < burst.last + QUIET
            && now < burst.begun + LONGEST
        {
            burst.last = now;
            burst.follow(key);
            return Vec::new();
        }
        self.begin(now, host, key);
        let leader = self.leaders.get(key);
        let companions = leader.into_iter().flat_map(|leader| &leader.companions);
        companions.map(|one| one.key.clone()).collect()
    }

    /// The host's next burst, which `key` leads; what the last one showed is learned.
    fn begin(&mut self, now: Instant, host: Host, key: &Key) {
        if !self.bursts.contains_key(&host) && self.bursts.len() >= MOST_HOSTS {
            let oldest = self.bursts.iter().min_by_key(|(_, burst)| burst.last);
            if let Some(oldest) = oldest.map(|(host, _)| *host) {
                self.bursts.remove(&oldest);
            }
        }
        let burst = Burst {
            leader: key.clone(),
            followers: Vec::new(),
            begun: now,
            last: now,
        };
        if let Some(ended) = self.bursts.insert(host, burst) {
            self.learn(ended);
        }
    }

    fn learn(&mut self, burst: Burst) {
        let known = self.leaders.remove(&burst.leader);
        let mut companions = known.map_or_else(Vec::new, |leader| {
            self.recent.remove(&leader.turn);
            leader.companions
        });
        for companion in &mut companions {
            companion.missed += 1;
        }
        for key in burst.followers {
            match companions.iter_mut().find(|one| one.key == key) {
                Some(companion) => companion.missed = 0,
                None => companions.push(Companion { key, missed: 0 }),
            }
        }
        companions.retain(|one| one.missed < MISSES);
        // Those seen last are the surest; the order of questions stays within them.
        companions.sort_by_key(|one| one.missed);
        companions.truncate(MOST_COMPANIONS);
        if companions.is_empty() {
            return;
        }
        if self.leaders.len() >= MOST_LEADERS
            && let Some((_, least)) = self.recent.pop_first()
        {
            self.leaders.remove(&least);
        }
        self.turn += 1;
        let turn = self.turn;
        self.recent.insert(turn, burst.leader.clone());
        self.leaders
            .insert(burst.leader, Leader { companions, turn });
    }
}

impl Burst {
    fn follow(&mut self, key: &Key) {
        let room = self.followers.len() < MOST_COMPANIONS;
        if room && *key != self.leader && !self.followers.contains(key) {
            self.followers.push(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::query::Query;
    use super::*;

    fn key(name: &str) -> Key {
        Query::for_addresses(name, false).expect("a name").key()
    }

    fn host(last: u8) -> Host {
        Host::of(Ipv4Addr::new(10, 0, 0, last).into())
    }

    /// A host that loads a page each minute, whose questions are half a second apart.
    struct Reader {
        companions: Companions,
        host: Host,
        now: Instant,
    }

    impl Reader {
        #[expect(clippy::disallowed_methods, reason = "the origin of virtual time")]
        fn new() -> Self {
            Self {
                companions: Companions::default(),
                host: host(1),
                now: Instant::now(),
            }
        }

        /// Loads a page; what was foretold when it began.
        fn load(&mut self, names: &[&str]) -> Vec<Key> {
            self.now += Duration::from_secs(60);
            let mut told = Vec::new();
            for (index, name) in names.iter().enumerate() {
                let more = self.companions.on_question(self.now, self.host, &key(name));
                assert!(index == 0 || more.is_empty(), "in the middle of a burst");
                told.extend(more);
                self.now += Duration::from_millis(500);
            }
            told
        }
    }

    #[test]
    fn what_followed_once_is_foretold() {
        let mut reader = Reader::new();
        let page = ["a.example", "b.example", "c.example", "b.example"];
        assert_eq!(reader.load(&page), []);
        assert_eq!(reader.load(&page), ["b.example", "c.example"].map(key));
        assert_eq!(reader.load(&["other.example"]), [], "of another page");
        reader.host = host(2);
        assert_eq!(
            reader.load(&page),
            ["b.example", "c.example"].map(key),
            "to another host of the LAN"
        );
    }

    #[test]
    fn what_follows_no_more_is_forgotten() {
        let mut reader = Reader::new();
        reader.load(&["a.example", "b.example", "c.example"]);
        for _ in 0..3 {
            assert_eq!(reader.load(&["a.example", "c.example"]).len(), 2);
        }
        assert_eq!(reader.load(&["a.example"]), [key("c.example")]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut reader = Reader::new();
        for page in 0..2_000 {
            let names: Vec<_> = (0..60).map(|n| format!("{n}.{page}.example")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            reader.host = host(u8::try_from(page % 250).expect("a byte"));
            reader.load(&names);
        }
        let companions = &reader.companions;
        assert!(companions.leaders.len() <= MOST_LEADERS);
        assert_eq!(companions.leaders.len(), companions.recent.len());
        assert!(companions.bursts.len() <= MOST_HOSTS);
        let most = companions.leaders.values().map(|one| one.companions.len());
        assert_eq!(most.max(), Some(MOST_COMPANIONS));
    }
}
