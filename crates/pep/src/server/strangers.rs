//! Connections to a TCP port of the server on which nobody has shown a client's key yet: who may begin one, and who gives way.
//!
//! Judged as for UDP (`engine/handshakes.rs`), by an address that TCP has proven.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_tunnel::engine::{ConnectionId, Handshakes, Verdict};
use bentpipe_units::Seed;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, spawn_local};

use crate::process;

/// Connections that nobody has shown a client's key on yet, at once.
const UNPROVEN: usize = 1024;

/// Strangers at one port.
pub(super) struct Strangers {
    known: RefCell<Guests>,
    places: Arc<Semaphore>,
}

/// Strangers that have a task each.
struct Guests {
    handshakes: Handshakes,
    tasks: HashMap<ConnectionId, AbortHandle>,
    next: u64,
}

impl Strangers {
    /// Port at which no stranger is.
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            known: RefCell::new(Guests {
                handshakes: Handshakes::new(Seed::new(process::random_u64())),
                tasks: HashMap::new(),
                next: 0,
            }),
            places: Arc::new(Semaphore::new(UNPROVEN)),
        })
    }

    /// Begins to talk with somebody at `peer`, in a task that `talk` makes, which ends early if a newer stranger needs the place.
    /// False, and nothing is done, where the host or its network has had its share.
    pub(super) fn meet<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        peer: SocketAddr,
        talk: impl FnOnce(Stranger) -> F,
    ) -> bool {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return false;
        };
        let mut known = self.known.borrow_mut();
        let now = process::now();
        let Verdict::Take { instead_of } = known.handshakes.admit(now, peer.ip(), true) else {
            return false;
        };
        if let Some(other) = instead_of {
            known.handshakes.forget(other);
            if let Some(task) = known.tasks.remove(&other) {
                task.abort();
            }
        }
        let id = ConnectionId(known.next);
        known.next += 1;
        known.handshakes.enter(now, id, peer.ip());
        let stranger = Stranger {
            all: self.clone(),
            id,
            place: Some(place),
        };
        let task = spawn_local(talk(stranger));
        known.tasks.insert(id, task.abort_handle());
        true
    }
}

/// One stranger; dropped once it is known who is there, or that nobody is.
pub(super) struct Stranger {
    all: Rc<Strangers>,
    id: ConnectionId,
    place: Option<OwnedSemaphorePermit>,
}

impl Stranger {
    /// Place of the stranger, for who keeps it longer than the talk lasts.
    pub(super) fn take_place(&mut self) -> Option<OwnedSemaphorePermit> {
        self.place.take()
    }

    /// The stranger has proven to be a client, which gives back what it took of its host's share.
    pub(super) fn prove(self) {
        self.all.known.borrow_mut().handshakes.succeed(self.id);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut known = self.all.known.borrow_mut();
        known.handshakes.forget(self.id);
        known.tasks.remove(&self.id);
    }
}
