//! Keys of headers that clients hand over at the door, as relays use them; which clients may, is a list that a reload replaces.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bentpipe_sealed::les::{Discarded, Grants, Pair, PepUnopened, Spi, Toward};
use bentpipe_segments::Scope;
use bytes::{Bytes, BytesMut};

use super::les::{HeaderKeys, OpenedPacket, StaysClosed, StaysUnwritten};
use super::setup::bound;
use crate::config::PepLes;
use crate::keys::{PrivateKey, PublicKey};
use crate::les_keys::{KeyDoor, KeyEvent};
use crate::process::RunError;
use crate::status;

/// Clients that may hand over keys.
#[derive(Clone, Default)]
struct ListedClients(Arc<Mutex<Vec<PublicKey>>>);

impl ListedClients {
    fn keys(&self) -> MutexGuard<'_, Vec<PublicKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Door for keys, and the list of those who get in.
pub(super) struct ClientKeys {
    door: Rc<KeyDoor>,
    listed: ListedClients,
}

impl ClientKeys {
    /// Opens the door that `les` asks for, of the PEP with this `key`; to be called inside a runtime.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(super) fn open(
        les: &PepLes,
        key: &PrivateKey,
        allow_classical: bool,
    ) -> Result<Self, RunError> {
        let listed = ListedClients::default();
        *listed.keys() = les.clients.clone();
        let known = listed.clone();
        let accepts = Arc::new(move |key: &PublicKey| known.keys().contains(key));
        let door = KeyDoor::open(bound(&les.listen)?, key, accepts, allow_classical)?;
        Ok(Self {
            door: Rc::new(door),
            listed,
        })
    }

    /// Keys as relays use them.
    pub(super) fn granted(&self) -> GrantedKeys {
        GrantedKeys {
            door: self.door.clone(),
        }
    }

    /// Takes keys; `withdrawn` hears of pairs whose last keys are erased in a moment. Never ends but with an error.
    pub(super) async fn serve(&self, mut withdrawn: impl FnMut(Pair)) -> io::Result<()> {
        self.door.serve(|event| told(event, &mut withdrawn)).await
    }

    /// Lets in these clients alone from now on; `withdrawn` as for [`Self::serve`].
    pub(super) fn list(&self, clients: Vec<PublicKey>, mut withdrawn: impl FnMut(Pair)) {
        *self.listed.keys() = clients;
        self.door.recheck(|event| told(event, &mut withdrawn));
    }

    /// Erases what is over; `withdrawn` as for [`Self::serve`]. To be called every second.
    pub(super) fn tick(&self, mut withdrawn: impl FnMut(Pair)) {
        self.door.tick(|event| told(event, &mut withdrawn));
    }

    /// Erases all keys, and tells clients that the PEP stops.
    pub(super) fn close(&self) {
        self.door.close();
    }

    /// Part of `status`.
    pub(super) fn report(&self) -> status::PepKeys {
        status::PepKeys {
            listed: self.listed.keys().len() as u64,
            connected: self.door.clients().len() as u64,
            associations: self.door.grants().len() as u64,
        }
    }
}

/// Passes on the pair whose keys are about to be erased.
fn told(event: KeyEvent, withdrawn: &mut impl FnMut(Pair)) {
    if let KeyEvent::Withdrawn(pair) = event {
        withdrawn(pair);
    }
}

/// Keys at the door.
pub(super) struct GrantedKeys {
    door: Rc<KeyDoor>,
}

impl HeaderKeys for GrantedKeys {
    fn open(&mut self, now: Instant, datagram: &Bytes) -> Result<OpenedPacket, StaysClosed> {
        HeaderKeys::open(&mut *self.door.grants(), now, datagram)
    }

    fn write(
        &mut self,
        now: Instant,
        pair: (&Scope, Toward),
        parts: (&[u8], Option<(Spi, &[u8])>),
        out: &mut BytesMut,
    ) -> Result<(), StaysUnwritten> {
        HeaderKeys::write(&mut *self.door.grants(), now, pair, parts, out)
    }

    fn lacks(&self, pair: (&Scope, Toward), spi: Spi) -> bool {
        HeaderKeys::lacks(&*self.door.grants(), pair, spi)
    }

    fn holds(&self, scope: &Scope) -> bool {
        self.door.grants().holds(scope)
    }

    fn stays(&self, scope: &Scope) -> bool {
        self.door.grants().stays(scope)
    }
}

impl HeaderKeys for Grants {
    fn open(&mut self, now: Instant, datagram: &Bytes) -> Result<OpenedPacket, StaysClosed> {
        let opened = Self::open(self, now, datagram).map_err(|why| match why {
            PepUnopened::Discarded(Discarded::Packet(_)) => StaysClosed::Copy,
            PepUnopened::Unknown | PepUnopened::Discarded(_) => StaysClosed::NoKey,
        })?;
        Ok(OpenedPacket {
            scope: opened.scope,
            toward: opened.toward,
            spi: opened.spi,
            renewed: opened.renewed,
            header: Bytes::copy_from_slice(opened.packet.header()),
            zone: opened
                .packet
                .zone()
                .map_or_else(Bytes::new, |zone| datagram.slice_ref(zone)),
        })
    }

    fn write(
        &mut self,
        now: Instant,
        (scope, toward): (&Scope, Toward),
        parts: (&[u8], Option<(Spi, &[u8])>),
        out: &mut BytesMut,
    ) -> Result<(), StaysUnwritten> {
        Self::write(self, now, scope, toward, parts, out).map_err(|_| StaysUnwritten)
    }

    fn lacks(&self, (scope, toward): (&Scope, Toward), spi: Spi) -> bool {
        Self::lacks(self, scope, toward, spi)
    }

    fn holds(&self, scope: &Scope) -> bool {
        Self::holds(self, scope)
    }

    fn stays(&self, scope: &Scope) -> bool {
        Self::stays(self, scope)
    }
}
