//! The thin shell around [`Engine`]: one thread, its wires, one timer, and the flows' wakers.
//!
//! A shard's connections and their TCP relays live on one thread with a current-thread runtime, so
//! the data path takes no locks. Datagrams that the kernel gave to the wrong shard are handed over
//! by a bounded channel. What the events mean is decided by `client` and `server`.

mod alarm;
mod buffers;
mod driver;
mod exits;
mod failures;
mod handover;
mod pulse;
mod rests;
mod tls;
mod udp;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;

use tokio::sync::Notify;

use bentpipe_tunnel::engine::{Connection, ConnectionId, Engine};
use bentpipe_tunnel::transport::FlowKey;

use buffers::Buffers;
use tls::TlsWires;
use udp::RECEIVE_SIZE;

pub(crate) use driver::Driver;
pub(crate) use exits::Exits;
#[cfg(target_os = "linux")]
pub(crate) use handover::steer;
pub(crate) use handover::{Neighbours, owner};
pub(crate) use pulse::{Pulse, PulseView};
pub(crate) use tls::{TlsWire, WireEnd};
pub(crate) use udp::{Sent, UdpWire};

/// Shard as flows and roles see it.
pub(crate) struct Shard {
    engine: RefCell<Engine>,
    wakers: RefCell<BTreeMap<(ConnectionId, FlowKey), Waker>>,
    driver: RefCell<Option<Waker>>,
    /// Bytes through all wires: received, sent.
    moved: Cell<(u64, u64)>,
    /// Wires that are TLS connections.
    tls: TlsWires,
    scratch: RefCell<Box<[u8]>>,
    buffers: RefCell<Buffers>,
    /// The engine's allowance is used up.
    spent: Notify,
}

impl Shard {
    /// A shard around `engine`; [`Driver::run`] gives it life.
    pub(crate) fn new(engine: Engine) -> Rc<Self> {
        Rc::new(Self {
            engine: RefCell::new(engine),
            wakers: RefCell::default(),
            driver: RefCell::default(),
            moved: Cell::default(),
            tls: TlsWires::default(),
            scratch: RefCell::new(vec![0; RECEIVE_SIZE].into_boxed_slice()),
            buffers: RefCell::default(),
            spent: Notify::new(),
        })
    }

    /// Runs `f` on the engine; the driver then looks for output.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Engine) -> T) -> T {
        let result = f(&mut self.engine.borrow_mut());
        if let Some(driver) = self.driver.borrow().as_ref() {
            driver.wake_by_ref();
        }
        result
    }

    /// Runs `f` on the engine without asking for output.
    pub(crate) fn peek<T>(&self, f: impl FnOnce(&Engine) -> T) -> T {
        f(&self.engine.borrow())
    }

    /// Acts on one connection and looks at its output again; `None` if there is no such connection any more.
    pub(crate) fn change<T>(
        &self,
        id: ConnectionId,
        f: impl FnOnce(&mut Connection) -> T,
    ) -> Option<T> {
        self.with(|engine| engine.connection(id).map(f))
    }

    /// Registers the task of a flow.
    pub(crate) fn watch(&self, connection: ConnectionId, flow: FlowKey, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        match wakers.get_mut(&(connection, flow)) {
            Some(known) => known.clone_from(waker),
            None => {
                wakers.insert((connection, flow), waker.clone());
            }
        }
    }

    /// Forgets the task of a flow.
    pub(crate) fn unwatch(&self, connection: ConnectionId, flow: FlowKey) {
        self.wakers.borrow_mut().remove(&(connection, flow));
    }

    /// Has tunnels and buffers give back memory that others need or nobody does. To be called every second.
    pub(crate) fn share_memory(&self) {
        self.with(Engine::share_memory);
        self.buffers.borrow_mut().rest();
    }

    /// Waits until the engine's allowance of bytes is used up.
    pub(crate) async fn until_spent(&self) {
        self.spent.notified().await;
    }

    /// One buffer that all relays of the shard read their sockets into.
    pub(crate) fn scratch(&self) -> &RefCell<Box<[u8]>> {
        &self.scratch
    }

    /// Bytes through all wires, both ways.
    fn moved(&self) -> u64 {
        let (received, sent) = self.moved.get();
        received + sent
    }

    fn on_received(&self, bytes: usize) {
        let (received, sent) = self.moved.get();
        self.moved.set((received + bytes as u64, sent));
    }

    fn on_sent(&self, bytes: usize) {
        let (received, sent) = self.moved.get();
        self.moved.set((received, sent + bytes as u64));
    }

    /// Wakes the task of a flow; false if it has none.
    fn wake(&self, connection: ConnectionId, flow: FlowKey) -> bool {
        let wakers = self.wakers.borrow();
        let waker = wakers.get(&(connection, flow));
        waker.inspect(|waker| waker.wake_by_ref()).is_some()
    }

    fn wake_all(&self, connection: ConnectionId) {
        let wakers = self.wakers.borrow();
        let of_connection = (connection, FlowKey::MIN)..=(connection, FlowKey::MAX);
        wakers
            .range(of_connection)
            .for_each(|(_, waker)| waker.wake_by_ref());
    }
}
