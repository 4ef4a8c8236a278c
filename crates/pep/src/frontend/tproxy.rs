//! Transparent interception: the kernel hands us connections that were meant for somebody else.
//!
//! An accepted socket's local address is the destination. The rules follow what the tunnel can reach:
//! a family that the server lacks is refused by the kernel, and so is, for a minute, a destination that
//! was refused or unreachable.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_sys::intercept::{Installed, Interception, Refusal};
use bentpipe_sys::{route, socket};
use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};

use super::flow::{Answer, Intake, carry};
use crate::client::Session;
use crate::config::{Intercept, OtherTraffic, Place, Placed};
use crate::process::RunError;
use crate::relay::{self, Outcome};

/// Refusals told to the kernel at once. Each is a run of `nft`; beyond that, the next connection is
/// refused by the server again.
const MAX_TELLING: usize = 4;

/// The mark of our own sockets, exempt from interception.
pub(crate) fn own_mark() -> u32 {
    Interception::new(0).own_mark
}

/// The rules in force.
pub(crate) struct Interceptor {
    installed: Rules,
}

/// `None` once they have been removed.
type Rules = Arc<Mutex<Option<Installed>>>;

impl Interceptor {
    /// Removes the rules.
    pub(super) fn remove(self) -> io::Result<()> {
        let installed = self
            .installed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        installed.map_or(Ok(()), Installed::remove)
    }
}

/// Opens the listeners, then puts the rules in force.
pub(super) fn start(
    intercept: &Placed<Intercept>,
    session: &Rc<Session>,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Result<Interceptor, RunError> {
    let wanted = interception(intercept, session);
    let mut addresses = vec![SocketAddr::from(([0, 0, 0, 0], intercept.port))];
    if route::ipv6_usable() {
        addresses.push(SocketAddr::from(([0_u16; 8], intercept.port)));
    }
    let place = &intercept.place;
    let listeners = addresses
        .into_iter()
        .map(|address| listener(address, place));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let installed = wanted
        .install()
        .map_err(|error| RunError::privilege(place, &error))?;
    let rules: Rules = Arc::new(Mutex::new(Some(installed)));
    let telling = Arc::new(Semaphore::new(MAX_TELLING));
    for listener in listeners {
        let (session, rules, telling) = (session.clone(), rules.clone(), telling.clone());
        tasks.push(super::accept(listener, move |socket, peer| {
            serve(
                session.clone(),
                rules.clone(),
                telling.clone(),
                socket,
                peer,
            )
        }));
    }
    tasks.push(spawn_local(follow(
        session.clone(),
        Intercept::clone(intercept),
        wanted,
        rules.clone(),
    )));
    Ok(Interceptor { installed: rules })
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

fn interception(intercept: &Intercept, session: &Session) -> Interception {
    let families = session.families();
    Interception {
        interfaces: intercept.interfaces.clone(),
        local: intercept.local,
        bypass: intercept.bypass.clone(),
        server: session.server_addresses(),
        other_direct: intercept.other == OtherTraffic::Direct,
        ipv4: families.ipv4,
        ipv6: families.ipv6,
        ..Interception::new(intercept.port)
    }
}

/// Keeps the rules in step with what the tunnel can reach and where its server is; never ends.
async fn follow(
    session: Rc<Session>,
    intercept: Intercept,
    mut current: Interception,
    rules: Rules,
) {
    let mut changes = session.changes();
    while changes.changed().await.is_ok() {
        let wanted = interception(&intercept, &session);
        if wanted == current {
            continue;
        }
        let (changed, rules) = (wanted.clone(), rules.clone());
        let updated = spawn_blocking(move || {
            let rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
            rules
                .as_ref()
                .map_or(Ok(()), |installed| installed.update(&changed))
        });
        match updated.await {
            Ok(Ok(())) => current = wanted,
            Ok(Err(error)) => tracing::error!("cannot change the interception rules: {error}"),
            Err(_) => return,
        }
    }
}

async fn serve(
    session: Rc<Session>,
    rules: Rules,
    telling: Arc<Semaphore>,
    socket: TcpStream,
    peer: SocketAddr,
) {
    let Ok(destination) = socket.local_addr() else {
        return;
    };
    if relay::prepare(&socket).is_err() {
        return;
    }
    let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
    let intake = Intake {
        socket,
        destination: Destination {
            host: Host::Ip(destination.ip()),
            port: destination.port(),
        },
        source: Some(peer),
        first: Bytes::new(),
        answer: Answer::Intercepted,
    };
    let outcome = carry(&session, intake).await;
    tracing::debug!("{peer} to {destination}: {outcome:?}");
    if let Outcome::Refused(code) = outcome
        && let Some(refusal) = lasting(code)
        && let Ok(permit) = telling.try_acquire_owned()
    {
        // Not awaited: the next connection should not have to, either.
        spawn_blocking(move || {
            let rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Err(error)) = rules
                .as_ref()
                .map(|rules| rules.refuse(destination, refusal))
            {
                tracing::debug!("cannot refuse {destination} in the kernel: {error}");
            }
            drop(permit);
        });
    }
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
