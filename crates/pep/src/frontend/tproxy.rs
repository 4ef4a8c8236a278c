//! Transparent interception: the kernel hands us connections that were meant for somebody else.
//!
//! An accepted socket's local address is the destination. The rules follow what the tunnel can reach:
//! a family that the server lacks is refused by the kernel, and so is, for a minute, a destination that
//! was refused or unreachable. Connections that must not be accepted early go through `gatekeeper.rs`.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_proto::opening::Opening;
use bentpipe_proto::tunnel::ReplyCode;
use bentpipe_sys::intercept::{Gate, Installed, Interception, Refusal};
use bentpipe_sys::{route, socket};
use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};

use super::flow::{Answer, Intake, carry};
use super::gatekeeper::{self, Waiting, to_tunnel};
use crate::client::Transport;
use crate::config::{FrontEnds, Intercept, OtherTraffic, Place, Placed};
use crate::process::RunError;
use crate::relay::{self, Outcome};

/// Things told to the kernel at once: each is a run of `nft`.
const MAX_TELLING: usize = 4;

/// Refusals that may wait to be told: some seconds' worth.
const MAX_REFUSING: usize = 1024;

/// The mark of our own sockets, exempt from interception.
pub(crate) fn own_mark() -> u32 {
    Interception::new(0).own_mark
}

/// What everything that intercepts shares.
pub(super) struct Front {
    pub(super) transport: Transport,
    pub(super) waiting: Waiting,
    /// `None` once they have been removed.
    rules: Arc<Mutex<Option<Installed>>>,
    telling: Semaphore,
    /// Places of refusals that wait for that.
    refusing: Semaphore,
}

/// The rules in force.
pub(crate) struct Interceptor(Rc<Front>);

impl Interceptor {
    /// Removes the rules.
    pub(super) fn remove(self) -> io::Result<()> {
        let mut rules = self.0.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.take().map_or(Ok(()), Installed::remove)
    }
}

/// Opens the listeners, then puts the rules in force.
pub(super) fn start(
    config: &FrontEnds,
    intercept: &Placed<Intercept>,
    transport: &Transport,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Result<Interceptor, RunError> {
    let place = &intercept.place;
    let wanted = interception(config, intercept, transport);
    let mut addresses = vec![SocketAddr::from(([0, 0, 0, 0], intercept.port))];
    if route::ipv6_usable() {
        addresses.push(SocketAddr::from(([0_u16; 8], intercept.port)));
    }
    let listeners = addresses
        .into_iter()
        .map(|address| listener(address, place));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let lacking = |error: io::Error| RunError::privilege(place, &error);
    let front = Rc::new(Front {
        transport: transport.clone(),
        waiting: Waiting::default(),
        rules: Arc::new(Mutex::new(Some(wanted.install().map_err(lacking)?))),
        telling: Semaphore::new(MAX_TELLING),
        refusing: Semaphore::new(MAX_REFUSING),
    });
    for listener in listeners {
        let front = front.clone();
        tasks.push(super::accept(listener, move |socket, peer| {
            serve(front.clone(), socket, peer)
        }));
    }
    let own = intercept.local.then_some("lo");
    for interface in intercept.interfaces.iter().map(String::as_str).chain(own) {
        tasks.push(gatekeeper::start(&front, interface).map_err(lacking)?);
    }
    tasks.push(spawn_local(follow(front.clone(), wanted)));
    Ok(Interceptor(front))
}

fn listener(address: SocketAddr, place: &Place) -> Result<TcpListener, RunError> {
    let listener =
        socket::transparent_listener(address, own_mark()).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => RunError::privilege(place, &error),
            kind => RunError::Bind {
                place: place.clone(),
                address,
                what: "TCP",
                source: kind.into(),
            },
        })?;
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener)?)
}

fn interception(config: &FrontEnds, intercept: &Intercept, transport: &Transport) -> Interception {
    let mut wanted = Interception {
        interfaces: intercept.interfaces.clone(),
        local: intercept.local,
        bypass: intercept.bypass.clone(),
        other_direct: intercept.other == OtherTraffic::Direct,
        gates: gates(config),
        ..Interception::new(intercept.port)
    };
    adapt(&mut wanted, transport);
    wanted
}

/// What changes while we run.
fn adapt(interception: &mut Interception, transport: &Transport) {
    let families = transport.families();
    interception.ipv4 = families.ipv4;
    interception.ipv6 = families.ipv6;
    interception.server = transport.server_addresses();
}

/// [`FrontEnds::is_optimistic`], for the kernel.
fn gates(config: &FrontEnds) -> Vec<Gate> {
    let never = Gate {
        ports: FrontEnds::NEVER_OPTIMISTIC.to_vec(),
        destinations: Vec::new(),
        shut: true,
    };
    let configured = config.rules.iter().map(|rule| Gate {
        ports: rule.ports.clone(),
        destinations: rule.destinations.clone(),
        shut: !rule.optimistic,
    });
    std::iter::once(never).chain(configured).collect()
}

/// Keeps the rules in step with what the tunnel can reach and where its server is; never ends.
async fn follow(front: Rc<Front>, mut current: Interception) {
    let mut changes = front.transport.changes();
    while changes.changed().await.is_ok() {
        let mut wanted = current.clone();
        adapt(&mut wanted, &front.transport);
        if wanted != current {
            let changed = wanted.clone();
            front.tell(move |rules| rules.update(&changed)).await;
            current = wanted;
        }
    }
}

impl Front {
    /// Asks the rules; `None` while they are being changed, and once they have been removed.
    pub(super) fn with_rules<T>(&self, ask: impl FnOnce(&Installed) -> T) -> Option<T> {
        self.rules.try_lock().ok()?.as_ref().map(ask)
    }

    /// Changes the rules, off this thread: that takes milliseconds.
    pub(super) async fn tell(
        &self,
        change: impl FnOnce(&mut Installed) -> io::Result<()> + Send + 'static,
    ) {
        let Ok(_permit) = self.telling.acquire().await else {
            return;
        };
        let rules = self.rules.clone();
        let told = spawn_blocking(move || {
            let mut rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
            rules.as_mut().map_or(Ok(()), change)
        });
        if let Ok(Err(error)) = told.await {
            tracing::error!("cannot change the interception rules: {error}");
        }
    }

    /// Has the kernel refuse the next attempts, if the reason is one that lasts. Of more refusals than the kernel can be
    /// told in time (somebody scans) the rest is let go: the next attempt asks the server again.
    pub(super) async fn refuse(&self, destination: SocketAddr, code: ReplyCode) {
        if let Some(refusal) = lasting(code)
            && let Ok(_place) = self.refusing.try_acquire()
        {
            self.tell(move |rules| rules.refuse(destination, refusal))
                .await;
        }
    }
}

async fn serve(front: Rc<Front>, socket: TcpStream, peer: SocketAddr) {
    let Ok(destination) = socket.local_addr() else {
        return;
    };
    if relay::prepare(&socket).is_err() {
        return;
    }
    let opening = Opening {
        source: canonical(peer),
        destination: canonical(destination),
    };
    let destination = opening.destination;
    let admitted = front.waiting.borrow_mut().remove(&opening).flatten();
    let outcome = match admitted {
        Some(flow) => flow.relay(&front.transport, socket).run().await,
        None => {
            let intake = Intake {
                socket,
                destination: to_tunnel(destination),
                source: Some(peer),
                first: Bytes::new(),
                answer: Answer::Intercepted,
            };
            carry(&front.transport, intake).await
        }
    };
    tracing::debug!("{peer} to {destination}: {outcome:?}");
    if let Outcome::Refused(code) = outcome {
        Box::pin(front.refuse(destination, code)).await;
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// How the kernel refuses the next attempts, if the reason is one that lasts.
fn lasting(code: ReplyCode) -> Option<Refusal> {
    match code {
        ReplyCode::Refused | ReplyCode::Denied => Some(Refusal::Refused),
        ReplyCode::NetworkUnreachable | ReplyCode::HostUnreachable | ReplyCode::TimedOut => {
            Some(Refusal::Unreachable)
        }
        ReplyCode::Ok
        | ReplyCode::NameNotFound
        | ReplyCode::FamilyUnsupported
        | ReplyCode::LimitReached
        | ReplyCode::Internal
        | ReplyCode::Draining => None,
    }
}
