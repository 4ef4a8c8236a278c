//! Handshakes that a server has taken and whose client has not proven its key: which are taken, which give way, which end.
//!
//! Whoever can send a datagram can begin a handshake, which costs memory, and CPU time for keys. So a source has a share: of
//! first packets, of handshakes begun in a second, and of handshakes under way. A *host* is an IPv4 address or an IPv6 /64,
//! a *network* an IPv4 /24 or an IPv6 /48, with four times a host's share. A handshake that succeeds gives back what it took:
//! a thousand clients behind one address come in as fast as they complete.
//!
//! Decides only; the endpoint acts. `now` and a seed are arguments.

mod buckets;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bentpipe_units::Seed;

use super::ConnectionId;
use buckets::{Buckets, Share};

/// Handshakes under way from which on a new peer first has to show that it gets what is sent to its address: one round
/// trip more, and spoofed addresses cost no memory.
const UNPROVEN: usize = 64;

/// Handshakes under way at once; beyond, the oldest one of the networks that have most gives way to a newer one.
const MOST: usize = 1024;

/// Handshakes of one host under way at once; beyond, the host's oldest one gives way.
const OF_HOST: usize = 256;

/// Handshakes of one network under way at once.
const OF_NETWORK: usize = 512;

/// Time from a client's first datagram to the proof of its key while few handshakes are under way, and while many are.
/// A client begins anew every few seconds.
const PATIENCE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(5)];

/// Initial packets of a host that are looked at: deriving keys and sealing a Retry takes some 30 µs of CPU time.
const PACKETS: Share = Share {
    burst: 2000,
    per_second: 500,
};

/// Handshakes of a host that are begun and do not succeed: each takes up to 1 ms of CPU time.
const BEGUN: Share = Share {
    burst: 256,
    per_second: 50,
};

/// Share of a network, as a multiple of a host's.
const HOSTS: u32 = 4;

/// Answer to a packet that would begin a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A connection begins; another one gives way to it.
    Take {
        /// Connection that gives way.
        instead_of: Option<ConnectionId>,
    },
    /// The sender has to prove its address by a Retry first.
    Prove,
    /// No answer; an honest client sends it again.
    Ignore,
}

/// A host or a network: addresses that share a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    host: u128,
    network: u128,
}

impl Source {
    fn of(address: IpAddr) -> Self {
        // Families apart: no IPv6 prefix of 64 bits reaches beyond these.
        const IPV4: u128 = 1 << 96;
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = u128::from(address.to_bits());
                Self {
                    host: IPV4 | bits,
                    network: IPV4 | (bits >> 8),
                }
            }
            IpAddr::V6(address) => Self {
                host: address.to_bits() >> 64,
                network: address.to_bits() >> 80,
            },
        }
    }
}

#[derive(Debug)]
struct Handshake {
    since: Instant,
    source: Source,
}

/// All handshakes of one endpoint.
#[derive(Debug)]
pub struct Handshakes {
    /// By age: identifiers grow.
    open: BTreeMap<ConnectionId, Handshake>,
    of_host: BTreeMap<u128, usize>,
    of_network: BTreeMap<u128, usize>,
    /// More were under way than [`UNPROVEN`], and [`Self::subsides`] has not told of their end.
    crowded: bool,
    packets: [Buckets; 2],
    begun: [Buckets; 2],
}

impl Handshakes {
    /// No handshake is under way. `seed` decides which sources share a bucket.
    pub fn new(seed: Seed) -> Self {
        let buckets = |name: &str, share: Share| {
            let seed = seed.stream(name);
            [(1, seed.nth(0)), (HOSTS, seed.nth(1))]
                .map(|(times, seed)| Buckets::new(share.times(times), seed))
        };
        Self {
            open: BTreeMap::new(),
            of_host: BTreeMap::new(),
            of_network: BTreeMap::new(),
            crowded: false,
            packets: buckets("packets", PACKETS),
            begun: buckets("begun", BEGUN),
        }
    }

    /// Judges an Initial packet before anything is computed for it; false: it is dropped.
    pub(crate) fn knock(&mut self, now: Instant, address: IpAddr) -> bool {
        take(&mut self.packets, now, Source::of(address))
    }

    /// Judges a packet that would begin a connection, from an address that is `proven` or not.
    pub fn admit(&mut self, now: Instant, address: IpAddr, proven: bool) -> Verdict {
        if !proven && self.open.len() >= UNPROVEN {
            return Verdict::Prove;
        }
        let source = Source::of(address);
        if !take(&mut self.begun, now, source) {
            return Verdict::Ignore;
        }
        Verdict::Take {
            instead_of: self.victim(source),
        }
    }

    /// The handshake that has to give way before `source` may begin one more.
    fn victim(&self, source: Source) -> Option<ConnectionId> {
        let Source { host, network } = source;
        let count = |counts: &BTreeMap<u128, usize>, key| counts.get(&key).copied().unwrap_or(0);
        if count(&self.of_host, host) >= OF_HOST {
            self.oldest(|source| source.host == host)
        } else if count(&self.of_network, network) >= OF_NETWORK {
            self.oldest(|source| source.network == network)
        } else if self.open.len() >= MOST {
            let most = self.of_network.values().max().copied().unwrap_or(0);
            self.oldest(|source| count(&self.of_network, source.network) == most)
        } else {
            None
        }
    }

    fn oldest(&self, of: impl Fn(Source) -> bool) -> Option<ConnectionId> {
        let found = self.open.iter().find(|(_, handshake)| of(handshake.source));
        found.map(|(id, _)| *id)
    }

    /// A connection has begun.
    pub fn enter(&mut self, now: Instant, id: ConnectionId, address: IpAddr) {
        let source = Source::of(address);
        *self.of_host.entry(source.host).or_default() += 1;
        *self.of_network.entry(source.network).or_default() += 1;
        self.open.insert(id, Handshake { since: now, source });
        self.crowded |= self.open.len() > UNPROVEN;
    }

    /// True once after many handshakes were under way: what they held is free.
    pub(super) fn subsides(&mut self) -> bool {
        let over = self.crowded && self.open.len() <= UNPROVEN;
        self.crowded &= !over;
        over
    }

    /// The client of a connection has proven its key.
    pub fn succeed(&mut self, id: ConnectionId) {
        if let Some(source) = self.leave(id) {
            let [of_host, of_network] = &mut self.begun;
            of_host.give_back(source.host);
            of_network.give_back(source.network);
        }
    }

    /// A connection is over, or its handshake is.
    fn leave(&mut self, id: ConnectionId) -> Option<Source> {
        let source = self.open.remove(&id)?.source;
        for (counts, key) in [
            (&mut self.of_host, source.host),
            (&mut self.of_network, source.network),
        ] {
            if let Some(count) = counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
        Some(source)
    }

    /// A connection is gone.
    pub fn forget(&mut self, id: ConnectionId) {
        self.leave(id);
    }

    /// The next handshake that has taken too long; it is under way no more.
    pub(crate) fn give_up(&mut self, now: Instant) -> Option<ConnectionId> {
        let (&id, _) = self.open.first_key_value()?;
        self.poll_timeout().filter(|due| *due <= now)?;
        self.leave(id);
        Some(id)
    }

    /// Instant at which [`Self::give_up`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let (_, oldest) = self.open.first_key_value()?;
        let [long, short] = PATIENCE;
        let patience = if self.open.len() > UNPROVEN {
            short
        } else {
            long
        };
        Some(oldest.since + patience)
    }
}

/// Takes one from a host's and its network's bucket, or from neither.
fn take([of_host, of_network]: &mut [Buckets; 2], now: Instant, source: Source) -> bool {
    if !of_host.take(now, source.host) {
        return false;
    }
    let taken = of_network.take(now, source.network);
    if !taken {
        of_host.give_back(source.host);
    }
    taken
}

#[cfg(test)]
#[path = "handshakes/tests.rs"]
mod tests;
