//! Connections to a TCP port on which nobody has shown who is there yet: who may begin one, and who gives way.
//!
//! Judged as for UDP (`engine/handshakes.rs`), by an address that TCP has proven.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

use bentpipe_tunnel::engine::{ConnectionId, Handshakes, Verdict};
use bentpipe_units::Seed;
use tokio::task::{AbortHandle, spawn_local};

use crate::process;

/// Strangers at one port.
pub(crate) struct Strangers {
    known: RefCell<StrangerTable>,
}

/// Strangers that have a task each; how many there may be is the business of [`Handshakes`].
struct StrangerTable {
    handshakes: Handshakes,
    tasks: HashMap<ConnectionId, AbortHandle>,
    next: u64,
}

impl Strangers {
    /// Port at which no stranger is.
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            known: RefCell::new(StrangerTable {
                handshakes: Handshakes::new(Seed::new(process::random_u64())),
                tasks: HashMap::new(),
                next: 0,
            }),
        })
    }

    /// Begins to talk with somebody at `peer`, in a task that `talk` makes, which ends early if a newer stranger needs the place.
    /// False, and nothing is done, where the host or its network has had its share.
    pub(crate) fn meet<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        peer: SocketAddr,
        talk: impl FnOnce(Stranger) -> F,
    ) -> bool {
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
        };
        let task = spawn_local(talk(stranger));
        known.tasks.insert(id, task.abort_handle());
        true
    }
}

/// One stranger; dropped once it is known who is there, or that nobody is.
pub(crate) struct Stranger {
    all: Rc<Strangers>,
    id: ConnectionId,
}

impl Stranger {
    /// The stranger has proven to be a client, which gives back what it took of its host's share.
    pub(crate) fn prove(self) {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    #[tokio::test]
    async fn where_all_places_are_taken_the_network_with_most_gives_way() {
        let (strangers, talking) = (Strangers::new(), Rc::new(Cell::new(0)));
        let meet = |address: [u8; 4]| {
            let talking = talking.clone();
            strangers.meet((address, 50_000).into(), |stranger| async move {
                talking.set(talking.get() + 1);
                let _end = Leave(talking);
                let _stranger = stranger;
                pending::<()>().await;
            })
        };
        let tasks = LocalSet::new();
        let others = async {
            for network in 0..8 {
                for host in 0..160 {
                    assert!(meet([198, 51, network, host]));
                }
            }
            settle().await;
            assert!(talking.get() < 8 * 160, "{} at once", talking.get());
            let before = talking.get();
            assert!(meet([203, 0, 113, 1]), "a new host is not heard");
            settle().await;
            assert_eq!(talking.get(), before, "nobody gave way");
        };
        tasks.run_until(others).await;
    }

    /// Has all tasks run until they wait.
    async fn settle() {
        for _ in 0..200 {
            yield_now().await;
        }
    }

    /// Counts a talk that ends.
    struct Leave(Rc<Cell<u32>>);

    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
}
