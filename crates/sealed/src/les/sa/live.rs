//! Associations of one end that packets go by: one to send with, and those that may still come.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use ipnet::IpNet;

use super::super::segment::selected;
use super::super::{Delivered, Discarded, EndReceiver, EndSender, Flows, Spi, Unwritten, spi_of};

/// Time for which an association receives after its successor has begun to send, 120 s.
pub const LINGER: Duration = Duration::from_secs(120);

/// Time for which an association that has been taken from a PEP still receives, 3 s: a PEP that acts
/// in good faith resets in it what it had acknowledged.
pub const LAST_WORDS: Duration = Duration::from_secs(3);

/// Associations that receive at one time; of more, the oldest ends.
const MOST: usize = 4;

/// Reason why an inner packet was not sealed. None of them lets it leave in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// No association stands: the packet waits, or goes through the tunnel.
    #[error("no association stands")]
    NoAssociation,
    /// The address at B's side is in no selector.
    #[error("{0} is in no selector of the association")]
    Selector(IpAddr),
    /// The packet has a form that is not carried, or the association is spent.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

/// Reason why a packet that came was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// No association has this SPI: Q1 may be behind.
    #[error("association {0} is unknown")]
    Unknown(Spi),
    /// The address at B's side is in no selector: the other end has sealed what it must not.
    #[error("{0} is in no selector of the association")]
    Selector(IpAddr),
    /// The packet is discarded.
    #[error(transparent)]
    Discarded(#[from] Discarded),
}

/// Association that receives.
struct Receiving {
    count: u32,
    receiver: EndReceiver,
    selectors: Vec<IpNet>,
    /// Moment at which the association ends; none while it is the newest.
    until: Option<Instant>,
}

impl Receiving {
    /// Says whether packets with this `address` at B's side belong to the association.
    fn serves(&self, address: IpAddr) -> bool {
        self.selectors.iter().any(|own| own.contains(&address))
    }
}

/// Associations of one end in one tunnel.
#[derive(Default)]
pub struct Live {
    /// Sender, and the count of its association.
    sender: Option<(u32, EndSender)>,
    /// In the order of their counts.
    receiving: Vec<Receiving>,
    flows: Flows,
    /// SPIs that have been used in the tunnel, by own packets or the peer's.
    used: BTreeSet<Spi>,
}

impl Live {
    /// Appends the packet that carries the inner `packet` to `out`.
    ///
    /// # Errors
    /// [`Unsent`]: the packet must not leave another way in clear.
    pub fn seal(&mut self, packet: &[u8], out: &mut BytesMut) -> Result<(), Unsent> {
        let (count, sender) = self.sender.as_mut().ok_or(Unsent::NoAssociation)?;
        let mut all = self.receiving.iter();
        let own = all.find(|one| one.count == *count);
        let own = own.ok_or(Unsent::NoAssociation)?;
        let toward = own.receiver.toward().back();
        let address = selected(packet, toward).map_err(Unwritten::from)?;
        if !own.serves(address) {
            return Err(Unsent::Selector(address));
        }
        Ok(sender.seal(packet, out)?)
    }

    /// Opens `datagram` into `out`.
    ///
    /// # Errors
    /// [`Unopened`]: no association has it, or it is to be discarded; `out` says nothing then.
    pub fn open(
        &mut self,
        now: Instant,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Delivered, Unopened> {
        self.handle_timeout(now);
        let spi = spi_of(datagram).ok_or(Discarded::Size(datagram.len()))?;
        let mut all = self.receiving.iter_mut();
        let own = all.find(|one| one.receiver.spi() == spi);
        let own = own.ok_or(Unopened::Unknown(spi))?;
        let delivered = own.receiver.open(datagram, &mut self.flows, out)?;
        let address = selected(out, own.receiver.toward()).map_err(Discarded::from)?;
        if own.serves(address) {
            Ok(delivered)
        } else {
            Err(Unopened::Selector(address))
        }
    }

    /// Says whether packets can be sealed.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.sender.is_some()
    }

    /// SPIs that are received, oldest first.
    pub fn receives(&self) -> impl Iterator<Item = Spi> + '_ {
        self.receiving.iter().map(|one| one.receiver.spi())
    }

    /// Highest number that a packet has had in the newest association, of either direction.
    pub(super) fn newest_number(&self) -> u32 {
        let sent = self.sender.as_ref().map_or(0, |(_, sender)| sender.used());
        let newest = self.receiving.last();
        sent.max(newest.map_or(0, |one| one.receiver.newest_number()))
    }

    /// Says whether `spi` has not been used in the tunnel.
    pub(super) fn is_new(&self, spi: Spi) -> bool {
        !self.used.contains(&spi)
    }

    /// Receives by association `count`, beside those before; what its end sends is called `sends`.
    pub(super) fn receive(
        &mut self,
        count: u32,
        receiver: EndReceiver,
        sends: Spi,
        selectors: &[IpNet],
    ) {
        self.used.extend([receiver.spi(), sends]);
        if self.receiving.len() == MOST {
            self.receiving.remove(0);
        }
        self.receiving.push(Receiving {
            count,
            receiver,
            selectors: selectors.to_vec(),
            until: None,
        });
    }

    /// Sends by association `count` alone; those before end after [`LINGER`].
    pub(super) fn send(&mut self, now: Instant, count: u32, sender: EndSender) {
        self.sender = Some((count, sender));
        let before = self.receiving.iter_mut().filter(|one| one.count < count);
        for one in before {
            one.until.get_or_insert(now + LINGER);
        }
    }

    /// Receives by association `count` no more.
    pub(super) fn forget(&mut self, count: u32) {
        self.receiving.retain(|one| one.count != count);
    }

    /// Seals nothing more under the keys that there are; they receive for [`LAST_WORDS`].
    pub(super) fn retire(&mut self, now: Instant) {
        self.stop_sending();
        for one in &mut self.receiving {
            let until = one
                .until
                .map_or(now + LAST_WORDS, |until| until.min(now + LAST_WORDS));
            one.until = Some(until);
        }
    }

    /// Seals nothing more until the next association sends.
    pub(super) fn stop_sending(&mut self) {
        self.sender = None;
    }

    /// Moment at which an association ends, if one is to.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.receiving.iter().filter_map(|one| one.until).min()
    }

    /// Erases associations whose time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.receiving
            .retain(|one| one.until.is_none_or(|until| now < until));
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spis: Vec<_> = self.receives().collect();
        write!(f, "Live({:?}, receives {spis:?}, …)", self.sender)
    }
}
