//! What goes on from one table to the next: counts of what the rules have decided on, and the addresses that were learned.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bentpipe_sys::command::run;

use crate::firewall::{CLIENT_TABLE, Family};

/// An address that counts as a rule's name's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedAddress {
    /// The rule's number; it has [`learned`](super::Rule::learned).
    pub rule: usize,
    /// The address.
    pub address: IpAddr,
    /// For how long it counts, and for a day after it was last used.
    pub time: Duration,
}

/// Count of what a rule has decided on since it was installed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets, of the direction that the rule names.
    pub packets: u64,
    /// Bytes of the packets, from the IP header on.
    pub bytes: u64,
}

/// The name of a rule's set of learned addresses.
pub(super) fn set_name(rule: usize, family: Family) -> String {
    format!("learned{rule}_{}", family.digit())
}

/// Counts and lessons that go on from one table to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Counts, by rule.
    pub(super) counts: Vec<Count>,
    /// Lessons, with the time for which they still count.
    pub(super) learned: Vec<LearnedAddress>,
}

impl Kept {
    /// The counter of one rule.
    pub(super) fn counter(&self, rule: usize) -> String {
        let Count { packets, bytes } = self.counts.get(rule).copied().unwrap_or_default();
        format!("  counter rule{rule} {{\n    packets {packets} bytes {bytes}\n  }}\n")
    }

    /// Elements of one rule's set.
    pub(super) fn elements(&self, rule: usize, family: Family) -> impl Iterator<Item = String> {
        let own = self.learned.iter();
        let own = own.filter(move |one| one.rule == rule && family == Family::of(one.address));
        own.map(LearnedAddress::element)
    }
}

impl LearnedAddress {
    fn element(&self) -> String {
        format!("{} timeout {}s", self.address, self.time.as_secs().max(1))
    }
}

/// Text that teaches the table `name` all of it in one step.
pub(super) fn teaching(name: &str, lessons: &[LearnedAddress]) -> String {
    let mut text = String::new();
    for lesson in lessons {
        let set = set_name(lesson.rule, Family::of(lesson.address));
        // What is there already would keep its time, and only what is there can be deleted.
        for (verb, element) in [
            ("add", lesson.element()),
            ("delete", lesson.address.to_string()),
            ("add", lesson.element()),
        ] {
            let _ = writeln!(text, "{verb} element inet {name} {set} {{ {element} }}");
        }
    }
    text
}

/// Reads the elements of one set from what `nft list set` prints of it.
pub(super) fn elements(listing: &str, rule: usize) -> Vec<LearnedAddress> {
    let Some((_, elements)) = listing.split_once("elements = {") else {
        return Vec::new();
    };
    let element = |text: &str| {
        let mut words = text.split_whitespace();
        let address = words.next()?.parse().ok()?;
        let time = time(words.skip_while(|word| *word != "expires").nth(1)?)?;
        Some(LearnedAddress {
            rule,
            address,
            time,
        })
    };
    let list = elements.split('}').next().unwrap_or_default();
    list.split(',').filter_map(element).collect()
}

/// A time as nft prints it: `1d2h3m4s5ms`.
fn time(text: &str) -> Option<Duration> {
    let mut left = text;
    let mut sum = Duration::ZERO;
    while let Some(end) = left.find(|c: char| !c.is_ascii_digit()) {
        let number: u32 = left[..end].parse().ok()?;
        let unit = &left[end..];
        let unit = &unit[..unit
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit.len())];
        let one = match unit {
            "d" => Duration::from_secs(24 * 3600),
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => return None,
        };
        sum += one * number;
        left = &left[end + unit.len()..];
    }
    left.is_empty().then_some(sum)
}

/// Content of the sets of `rules` now.
pub(super) fn learned(rules: &[bool]) -> io::Result<Vec<LearnedAddress>> {
    let mut all = Vec::new();
    for (rule, _) in rules.iter().enumerate().filter(|(_, learned)| **learned) {
        for family in Family::BOTH {
            let name = set_name(rule, family);
            let listing = run("nft", &["list", "set", "inet", CLIENT_TABLE, &name])?;
            all.extend(elements(&listing, rule));
        }
    }
    Ok(all)
}

/// Reads what `nft list counters` prints of rules `0..number`.
pub(super) fn counts(listing: &str, number: usize) -> Vec<Count> {
    let mut counts = vec![Count::default(); number];
    for part in listing.split("counter rule").skip(1) {
        let mut words = part.split_whitespace();
        let index = words.next().and_then(|word| word.parse::<usize>().ok());
        let mut figure = |name| {
            words.by_ref().find(|word| *word == name)?;
            words.next()?.parse().ok()
        };
        let count = Count {
            packets: figure("packets").unwrap_or_default(),
            bytes: figure("bytes").unwrap_or_default(),
        };
        if let Some(slot) = index.and_then(|index| counts.get_mut(index)) {
            *slot = count;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_back_with_the_time_that_is_left() {
        let listing = "table inet t {\n\tset learned2_4 {\n\t\ttype ipv4_addr\n\t\tsize 65535\n\t\tflags dynamic,timeout\n\t\t\
             elements = { 192.0.2.1 timeout 1h expires 59m58s312ms, 192.0.2.2 timeout 1d expires 23h,\n\t\t\t     \
             192.0.2.3 timeout 5s expires 17ms }\n\t}\n}\n";
        let read: Vec<_> = elements(listing, 2)
            .iter()
            .map(LearnedAddress::element)
            .collect();
        assert_eq!(
            read,
            [
                "192.0.2.1 timeout 3598s",
                "192.0.2.2 timeout 82800s",
                "192.0.2.3 timeout 1s"
            ]
        );
        assert_eq!(elements("set learned2_4 {\n}\n", 2), []);
    }
}
