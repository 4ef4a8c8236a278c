//! Names that a resolver of the site answers: zones that the operator names, and what the router's own name server knows.

use std::net::SocketAddr;

use super::query::Query;
use super::{rtype, special};

/// Longest name, characters (RFC 1035 §2.3.4, without the root's dot).
const MAX_NAME: usize = 253;

/// Longest label, bytes.
const MAX_LABEL: usize = 63;

/// Top-level names that routers and companies use for themselves and that the public root does not delegate.
const PRIVATE: [&[u8]; 9] = [
    b"lan",
    b"home",
    b"localdomain",
    b"internal",
    b"intranet",
    b"private",
    b"corp",
    b"domain",
    b"test",
];

/// A name together with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffix {
    /// Lower case, the first label first.
    labels: Vec<Vec<u8>>,
}

impl Suffix {
    /// Reads `example.com`, with or without a dot at its end; `.` is the root. `None` if it is no name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return (text == ".").then(|| Self { labels: Vec::new() });
        }
        let labels: Vec<_> = name
            .split('.')
            .map(|label| label.to_ascii_lowercase().into_bytes())
            .collect();
        let usable = |label: &Vec<u8>| {
            (1..=MAX_LABEL).contains(&label.len()) && label.iter().all(u8::is_ascii_graphic)
        };
        (name.len() <= MAX_NAME && labels.iter().all(usable)).then_some(Self { labels })
    }

    /// True if the name of `labels`, in lower case, is this one or below it.
    fn covers(&self, labels: &[Vec<u8>]) -> bool {
        labels.ends_with(&self.labels)
    }
}

/// Zones, and the name server of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones(Vec<(Suffix, SocketAddr)>);

impl Zones {
    /// Zones in any order: the longest that covers a name counts.
    #[must_use]
    pub fn new(zones: Vec<(Suffix, SocketAddr)>) -> Self {
        Self(zones)
    }

    /// The name server for a question; `None` if no zone covers its name.
    pub(super) fn server(&self, query: &Query) -> Option<SocketAddr> {
        if self.0.is_empty() {
            return None;
        }
        let labels = lower(query);
        let covering = self.0.iter().filter(|(zone, _)| zone.covers(&labels));
        let longest = covering.max_by_key(|(zone, _)| zone.labels.len());
        longest.map(|(_, server)| *server)
    }
}

/// True if one of `suffixes` covers the name that is asked for.
pub(super) fn covered(suffixes: &[Suffix], query: &Query) -> bool {
    if suffixes.is_empty() {
        return false;
    }
    let labels = lower(query);
    suffixes.iter().any(|suffix| suffix.covers(&labels))
}

/// True if a name means something at this site alone: a bare host name, one below a private top-level name, or the
/// reverse of a private address. The public DNS knows none of them.
pub(super) fn is_private(query: &Query) -> bool {
    let labels = lower(query);
    let Some((top, rest)) = labels.split_last() else {
        return false;
    };
    if top == b"arpa" {
        let home = rest.last().is_some_and(|label| label == b"home");
        return home || special::is_reverse_of_private(&labels);
    }
    // `localhost`, `invalid` and `local` are answered without a resolver.
    let special = [&b"localhost"[..], b"invalid", b"local"].contains(&top.as_slice());
    // Of bare names the addresses alone: `com DNSKEY` is a question to the public DNS.
    let bare = rest.is_empty() && matches!(query.rtype(), rtype::A | rtype::AAAA);
    !special && (bare || PRIVATE.contains(&top.as_slice()))
}

fn lower(query: &Query) -> Vec<Vec<u8>> {
    query.labels().map(<[u8]>::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str) -> Query {
        let mut bytes = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0".to_vec();
        for label in name.split('.').filter(|label| !label.is_empty()) {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.extend_from_slice(b"\0\0\x01\0\x01");
        Query::decode(&bytes).unwrap()
    }

    #[test]
    fn the_longest_zone_counts_and_whole_labels_alone() {
        let server = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let zone = |text: &str, port| (Suffix::parse(text).unwrap(), server(port));
        let zones = Zones::new(vec![
            zone("Lan", 1),
            zone("b.lan.", 2),
            zone("1.10.in-addr.arpa", 3),
        ]);
        for (name, port) in [
            ("lan", Some(1)),
            ("A.LAN", Some(1)),
            ("b.lan", Some(2)),
            ("x.B.lan", Some(2)),
            ("bb.lan", Some(1)),
            ("wlan", None),
            ("lan.example", None),
            ("7.0.1.10.in-addr.arpa", Some(3)),
            ("7.0.2.10.in-addr.arpa", None),
            (".", None),
        ] {
            assert_eq!(zones.server(&query(name)), port.map(server), "{name}");
        }
        let all = Zones::new(vec![zone(".", 9)]);
        assert_eq!(all.server(&query("example.com")), Some(server(9)));
        for bad in ["", "..", "a..b", "a b", &"x".repeat(64)] {
            assert_eq!(Suffix::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn private_names_are_those_that_the_public_dns_does_not_know() {
        for name in [
            "printer",
            "printer.lan",
            "a.b.Internal",
            "nas.home.arpa",
            "7.0.1.10.in-addr.arpa",
            "1.0.0.d.f.ip6.arpa",
        ] {
            assert!(is_private(&query(name)), "{name}");
        }
        for name in [
            ".",
            "example.com",
            "lan.example",
            "localhost",
            "a.local",
            "8.8.8.8.in-addr.arpa",
            "com.arpa",
        ] {
            assert!(!is_private(&query(name)), "{name}");
        }
    }
}
