//! Grants: associations whose K2 one PEP holds, from Q4 until the end (`PROTOCOL.md` §20.1).
//!
//! ```text
//!  Q4, ENDED of clients ──► Grants ◄── deadline         a pair whose last K2 goes ──► reset its flows, LAST_WORDS
//!                            │  ▲
//!  packet ─► SPI ─► reader ──╯  ╰── header of a PEP ─► writer of the zone's association, or of the pair's newest in use
//! ```
//!
//! Several clients may name one SPI, by chance or on purpose: the tag of a packet decides whose it
//! is.

mod ending;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::BytesMut;

use super::sa::{Grant, put_address};
use super::{
    Discarded, HeaderOpened, HeaderReader, HeaderRoot, HeaderWriter, Spi, SpiPair, Toward,
    Unwritten, Writer, spi_of,
};

/// Associations of one client; of more, the oldest ends. A client has four at a time.
pub const ASSOCIATIONS_OF_CLIENT: usize = 8;

/// Associations of one client, those included that are about to go; of more, the oldest goes at once.
const MOST_OF_CLIENT: usize = 2 * ASSOCIATIONS_OF_CLIENT;

/// Longest time for which a grant holds, whatever the client says: 24 h.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Public key by which a PEP knows a client, Ed25519 (RFC 8032).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientKey(pub [u8; 32]);

/// Name of a pair of ends between PEPs (`PROTOCOL.md` §20.9).
pub type Scope = [u8; 16];

/// Client and outer addresses of its two ends: flows of different pairs have nothing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// Client that has granted.
    pub client: ClientKey,
    /// Outer addresses of A and B.
    pub ends: [IpAddr; 2],
}

impl Pair {
    /// Name of the pair between PEPs.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let mut bytes = self.client.0.to_vec();
        self.ends
            .iter()
            .for_each(|end| put_address(*end, &mut bytes));
        let mut context = Context::new(&SHA256);
        context.update(&bytes);
        let mut scope = [0; 16];
        scope.copy_from_slice(&context.finish().as_ref()[..16]);
        scope
    }
}

/// Fault of a client: its connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantFault {
    /// The writer's number has been given out in this association: its counters would begin anew.
    #[error("Q4: writer {0} again in one association")]
    WriterAgain(u8),
}

/// Packet that a PEP has opened, and where it belongs.
#[derive(Debug)]
pub struct PepOpened<'a> {
    /// Pair of ends.
    pub scope: Scope,
    /// End that the packet goes to.
    pub toward: Toward,
    /// Name of the direction of its association, to which the payload zone is bound.
    pub spi: Spi,
    /// True if an earlier process of this PEP may have acknowledged bytes of the pair's flows: those
    /// that are unknown are to be reset.
    pub renewed: bool,
    /// Header in clear, and the payload zone as it came.
    pub packet: HeaderOpened<'a>,
}

/// Reason why a PEP has not opened a packet; it forwards it untouched in either case, but a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PepUnopened {
    /// K2 of the association is not here.
    #[error("no K2 of this association")]
    Unknown,
    /// The packet is forged, altered, a copy, or of a form that is not carried.
    #[error(transparent)]
    Discarded(#[from] Discarded),
}

/// Reason why a PEP cannot write a header zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PepUnwritten {
    /// No K2 of the pair is here any more.
    #[error("no K2 of these ends")]
    Unknown,
    /// K2 of the association to which the payload zone is bound is not here: not yet, or no more.
    #[error("no K2 of association {0}, to which the payload zone is bound")]
    Association(Spi),
    /// The header has no form that is carried, or no number is left.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

/// Association whose K2 is here.
struct PepAssociation {
    pair: Pair,
    scope: Scope,
    spis: SpiPair,
    root: HeaderRoot,
    /// Toward B and toward A.
    readers: [HeaderReader; 2],
    writers: [HeaderWriter; 2],
    /// Writers' numbers that this PEP has had in it.
    had: BTreeSet<Writer>,
    /// A true packet has come: the ends use it.
    used: bool,
    /// K2 is about to go: it serves last words alone.
    ending: bool,
    until: Instant,
}

impl PepAssociation {
    fn new((pair, scope): (Pair, Scope), grant: &Grant, until: Instant) -> Self {
        let both = [Toward::B, Toward::A];
        let reader = |toward| HeaderReader::new(grant.root.clone(), grant.spis.of(toward), toward);
        Self {
            pair,
            scope,
            spis: grant.spis,
            root: grant.root.clone(),
            readers: both.map(reader),
            writers: writers(grant),
            had: [grant.writer].into(),
            used: false,
            ending: false,
            until,
        }
    }
}

fn writers(grant: &Grant) -> [HeaderWriter; 2] {
    let (root, writer) = (&grant.root, grant.writer);
    [Toward::B, Toward::A]
        .map(|toward| HeaderWriter::new(root, grant.spis.of(toward), toward, writer))
}

/// Place of a direction in pairs.
fn place(toward: Toward) -> usize {
    match toward {
        Toward::B => 0,
        Toward::A => 1,
    }
}

/// Associations whose K2 one PEP holds.
#[derive(Default)]
pub struct Grants {
    /// By the order of their first Q4.
    held: BTreeMap<u64, PepAssociation>,
    next: u64,
    /// Moments at which grants end.
    due: BTreeSet<(Instant, u64)>,
    of_spi: HashMap<Spi, Vec<u64>>,
    of_scope: HashMap<Scope, Vec<u64>>,
    /// Pairs whose K2 is about to go, or has gone, of which nobody has been told.
    ended: BTreeSet<Pair>,
    /// Clients, and what their first Q4 to this process said: an earlier one may have had K2.
    renewed: BTreeMap<ClientKey, bool>,
}

impl Grants {
    /// Takes Q4 of this client.
    ///
    /// # Errors
    /// [`GrantFault`]: the client breaks the protocol; what it has granted before stays.
    pub fn grant(
        &mut self,
        now: Instant,
        client: ClientKey,
        grant: &Grant,
    ) -> Result<Pair, GrantFault> {
        self.handle_timeout(now);
        let pair = Pair {
            client,
            ends: grant.ends,
        };
        let until = now + grant.lifetime.min(LONGEST);
        if let Some(id) = self.find(client, grant.spis) {
            let own = self.held.get_mut(&id);
            if let Some(own) = own.filter(|own| own.pair == pair && own.root.is(&grant.root)) {
                if !own.had.insert(grant.writer) {
                    return Err(GrantFault::WriterAgain(grant.writer.get()));
                }
                // Windows of the readers stay: a packet is a copy as before.
                own.writers = writers(grant);
                own.ending = false;
                self.due.remove(&(own.until, id));
                own.until = until;
                self.due.insert((until, id));
                return Ok(pair);
            }
            self.retire(now, id);
        }
        self.renewed.entry(client).or_insert(grant.renewed);
        self.make_room(now, client);
        let id = self.next;
        self.next += 1;
        for spi in [grant.spis.to_b, grant.spis.to_a] {
            self.of_spi.entry(spi).or_default().push(id);
        }
        let scope = pair.scope();
        self.of_scope.entry(scope).or_default().push(id);
        self.due.insert((until, id));
        self.held
            .insert(id, PepAssociation::new((pair, scope), grant, until));
        Ok(pair)
    }

    fn of_client(&self, client: ClientKey) -> Vec<u64> {
        let own = self.held.iter();
        let own = own.filter(|(_, held)| held.pair.client == client);
        own.map(|(id, _)| *id).collect()
    }

    fn find(&self, client: ClientKey, spis: SpiPair) -> Option<u64> {
        let named = self.of_spi.get(&spis.to_b)?.iter();
        let is_it = |held: &PepAssociation| held.pair.client == client && held.spis == spis;
        named
            .copied()
            .rfind(|id| self.held.get(id).is_some_and(is_it))
    }

    fn remove(&mut self, id: u64) {
        let Some(held) = self.held.remove(&id) else {
            return;
        };
        for spi in [held.spis.to_b, held.spis.to_a] {
            drop_from(&mut self.of_spi, &spi, id);
        }
        drop_from(&mut self.of_scope, &held.scope, id);
        self.due.remove(&(held.until, id));
    }

    /// Clients of whose associations K2 is here.
    #[must_use]
    pub fn clients(&self) -> BTreeSet<ClientKey> {
        self.held.values().map(|held| held.pair.client).collect()
    }

    /// Opens the header zone of `datagram`.
    ///
    /// # Errors
    /// [`PepUnopened`]: its K2 is not here, or the packet is not true.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        datagram: &'a [u8],
    ) -> Result<PepOpened<'a>, PepUnopened> {
        self.handle_timeout(now);
        let spi = spi_of(datagram).ok_or(PepUnopened::Unknown)?;
        let mut why = PepUnopened::Unknown;
        for id in self.of_spi.get(&spi).into_iter().flatten() {
            let Some(held) = self.held.get_mut(id) else {
                continue;
            };
            let toward = if held.spis.to_b == spi {
                Toward::B
            } else {
                Toward::A
            };
            match held.readers[place(toward)].open(datagram) {
                Ok(packet) => {
                    held.used = true;
                    return Ok(PepOpened {
                        scope: held.scope,
                        toward,
                        spi,
                        renewed: self.renewed.get(&held.pair.client) == Some(&true),
                        packet,
                    });
                }
                // A copy is one, whoever else names the SPI.
                Err(fault) if !matches!(why, PepUnopened::Discarded(Discarded::Packet(_))) => {
                    why = fault.into();
                }
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// Appends the packet of this PEP to `out`: `header` anew, and the payload zone as it came. With a
    /// zone that is one of the association with the zone's SPI, to which the ends have bound it; without
    /// one, of the pair's newest association that the ends use.
    ///
    /// # Errors
    /// [`PepUnwritten`]: `out` is as it was.
    pub fn write(
        &mut self,
        now: Instant,
        scope: &Scope,
        toward: Toward,
        (header, zone): (&[u8], Option<(Spi, &[u8])>),
        out: &mut BytesMut,
    ) -> Result<(), PepUnwritten> {
        self.handle_timeout(now);
        let bound = zone.map(|(spi, _)| spi);
        let all = self.of_scope.get(scope).into_iter().flatten();
        let all = all.filter_map(|id| Some((id, self.held.get(id)?)));
        let fits = all.filter(|(_, held)| bound.is_none_or(|spi| held.spis.of(toward) == spi));
        let best = fits.max_by_key(|(id, held)| (!held.ending, held.used, **id));
        let best = best.map(|(id, _)| *id);
        let lacks = bound.filter(|_| self.holds(scope));
        let held = best.and_then(|id| self.held.get_mut(&id));
        let held = held.ok_or(lacks.map_or(PepUnwritten::Unknown, PepUnwritten::Association))?;
        let zone = zone.map(|(_, zone)| zone);
        Ok(held.writers[place(toward)].write(header, zone, out)?)
    }

    /// Associations whose K2 is here, and not about to go.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.values().filter(|held| !held.ending).count()
    }

    /// Says whether no K2 is here but for last words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moment at which a grant ends, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.held.values().map(|it| (it.pair, it.spis)).collect();
        write!(f, "Grants({names:?})")
    }
}

/// Takes `id` out of the list of `key`, and a list that is empty out of the table.
fn drop_from<Key: std::hash::Hash + Eq>(table: &mut HashMap<Key, Vec<u64>>, key: &Key, id: u64) {
    if let Some(all) = table.get_mut(key) {
        all.retain(|own| *own != id);
        if all.is_empty() {
            table.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
