//! Names that rules go by: the addresses that the DNS here has told hosts of count as destinations of the rule.
//!
//! An answer is given out only when the kernel knows its addresses, so that the first packet is judged rightly.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bentpipe_proto::dns::Learned;

use crate::config::{Domain, FrontEnds};

/// Least time for which an address counts: hosts hold on to what they were told, and a page is open for longer than its TTL.
const AT_LEAST: Duration = Duration::from_secs(3600);

/// And at least if it is told again: then it is in use. Not less than the kernel gives what it sees in use, which would be
/// taken back.
const AGAIN: Duration = Duration::from_secs(24 * 3600);

/// Hosts look at their clocks later than they should.
const GRACE: Duration = Duration::from_secs(300);

/// No TTL is believed beyond.
const MAX_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Addresses of one rule; the kernel's sets have room for more, which they keep for longer.
pub(super) const MAX_ADDRESSES: usize = 16_384;

/// Address that the kernel is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lesson {
    /// Number of the rule among [`FrontEnds::actions`].
    pub(super) rule: usize,
    pub(super) address: IpAddr,
    pub(super) time: Duration,
}

/// A rule cannot take in any more addresses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    /// Number of the rule among [`FrontEnds::actions`].
    pub(super) rule: usize,
}

/// A rule with domains.
struct Named {
    rule: usize,
    domains: Vec<Domain>,
    known: RefCell<HashMap<IpAddr, Instant>>,
}

/// Knowledge of all rules' names.
pub(super) struct Names(Vec<Named>);

impl Names {
    pub(super) fn new(config: &FrontEnds) -> Self {
        let rules = config.actions().enumerate();
        let named = rules.map(|(rule, (_, said, _))| Named {
            rule,
            domains: said.domains.clone(),
            known: RefCell::default(),
        });
        Self(named.filter(|one| !one.domains.is_empty()).collect())
    }

    /// True if no rule goes by names.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `address` counts as one of rule number `rule`.
    pub(super) fn know(&self, now: Instant, rule: usize, address: IpAddr) -> bool {
        let mut named = self.0.iter().filter(|one| one.rule == rule);
        let until = named.find_map(|one| one.known.borrow().get(&address).copied());
        until.is_some_and(|until| now < until)
    }

    /// Lessons to be told before an answer with these addresses may be given out.
    pub(super) fn lessons(&self, now: Instant, told: &Learned) -> Result<Vec<Lesson>, NoRoom> {
        let ttl = told.ttl.min(MAX_TTL) + GRACE;
        let mut lessons = Vec::new();
        for one in &self.0 {
            if !one.domains.iter().any(|domain| domain.covers(&told.name)) {
                continue;
            }
            let mut known = one.known.borrow_mut();
            for address in told.addresses.iter().map(IpAddr::to_canonical) {
                let least = match known.get(&address) {
                    Some(&until) if until >= now + ttl => continue,
                    Some(_) => AGAIN,
                    None if known.len() + lessons.len() >= MAX_ADDRESSES => {
                        known.retain(|_, until| *until > now);
                        if known.len() + lessons.len() >= MAX_ADDRESSES {
                            return Err(NoRoom { rule: one.rule });
                        }
                        AT_LEAST
                    }
                    None => AT_LEAST,
                };
                lessons.push(Lesson {
                    rule: one.rule,
                    address,
                    time: ttl.max(least),
                });
            }
        }
        Ok(lessons)
    }

    /// The kernel was told before `now`.
    pub(super) fn told(&self, now: Instant, lessons: &[Lesson]) {
        for lesson in lessons {
            if let Some(one) = self.0.iter().find(|one| one.rule == lesson.rule) {
                let mut known = one.known.borrow_mut();
                known.insert(lesson.address, now + lesson.time);
            }
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn names() -> Names {
        Names::new(&FrontEnds::of_rules(&[
            "ports = [22]\noptimistic = false",
            "ports = [80]\naction = \"block\"",
            "domains = [\"example.com\"]\naction = \"direct\"",
            "domains = [\"www.example.com\", \"example.net\"]\naction = \"block\"",
        ]))
    }

    fn told(name: &str, addresses: &[&str], ttl: u64) -> Learned {
        Learned {
            name: name.into(),
            addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
            ttl: Duration::from_secs(ttl),
        }
    }

    #[test]
    fn every_rule_that_covers_the_name_learns_its_addresses_until_they_are_old() {
        let (names, start) = (names(), Instant::now());
        let answer = told("www.example.com", &["2001:db8::1", "::ffff:192.0.2.1"], 60);
        let lessons = names.lessons(start, &answer).unwrap();
        let rules: Vec<_> = lessons.iter().map(|one| (one.rule, one.address)).collect();
        let [six, four] = ["2001:db8::1", "192.0.2.1"].map(|one| one.parse().unwrap());
        assert_eq!(rules, [(1, six), (1, four), (2, six), (2, four)]);
        assert!(!names.know(start, 1, four), "until the kernel was told");
        names.told(start, &lessons);
        assert!(names.know(start, 1, four) && names.know(start, 2, six));
        assert!(!names.know(start, 0, four));
        assert_eq!(names.lessons(start, &answer), Ok(Vec::new()));
        // A host may use an answer for as long as it says, whenever it was given.
        let late = start + AT_LEAST - GRACE;
        let again = names.lessons(late, &answer).unwrap();
        assert_eq!((again.len(), again[0].time), (4, AGAIN));
        assert!(!names.know(start + AT_LEAST, 1, four));
        let other = told("example.org", &["192.0.2.9"], 60);
        assert_eq!(names.lessons(start, &other), Ok(Vec::new()));
    }

    #[test]
    fn a_long_ttl_counts_and_a_longer_one_is_cut() {
        let (names, start) = (names(), Instant::now());
        for (ttl, days) in [(2, 2), (1000, 7)] {
            let answer = told("example.net", &["192.0.2.1"], ttl * 24 * 3600);
            let lessons = names.lessons(start, &answer).unwrap();
            let time = Duration::from_secs(days * 24 * 3600) + GRACE;
            assert_eq!(lessons[0].time, time);
        }
    }

    #[test]
    fn the_addresses_of_a_rule_are_bounded() {
        let (names, start) = (names(), Instant::now());
        let answer = |number: usize| Learned {
            name: "example.net".into(),
            addresses: vec![Ipv4Addr::from(u32::try_from(number).unwrap()).into()],
            ttl: Duration::from_secs(60),
        };
        for number in 0..MAX_ADDRESSES {
            let lessons = names.lessons(start, &answer(number)).unwrap();
            names.told(start, &lessons);
        }
        let more = answer(MAX_ADDRESSES);
        assert_eq!(names.lessons(start, &more), Err(NoRoom { rule: 2 }));
        assert_eq!(names.lessons(start, &answer(0)), Ok(Vec::new()));
        let later = start + 2 * AT_LEAST;
        assert_eq!(names.lessons(later, &more).unwrap().len(), 1);
    }
}
