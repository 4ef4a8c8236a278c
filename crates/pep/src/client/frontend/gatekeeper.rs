//! Intercepted connections that must not be accepted before the server has connected.
//!
//! The kernel drops their opening segments, and a packet socket sees them before that: OPEN goes to the server, and its
//! answer decides whether the host's next attempt, a second later at most, is admitted or refused.
//!
//! ```text
//!   host ─ SYN ─► gate: dropped ····► packet socket ─► OPEN ══► server connects
//!   host ─ SYN ─► gate: admitted ◄──────────────────── REPLY ◄══╯
//!   host ◄ SYN, ACK ─ listener ─► the flow that waits for it
//! ```

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use bentpipe_proto::opening::Opening;
use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_sys::capture::PacketSocket;
use bentpipe_sys::link;
use bytes::Bytes;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{interval, sleep, timeout};

use super::flow::open_and_wait;
use super::openings::FlowOfTaken;
use super::tproxy::Front;
use crate::client::carrier::{Flow, NotOpened};
use crate::client::intercept::ADMITTED_FOR;

/// After this time an opening segment that the table let pass has become a connection.
pub(super) const TAKEN_IN_WITHIN: Duration = Duration::from_millis(100);

/// Time within which an interface that was removed and made anew is watched again.
const RENEWED_WITHIN: Duration = Duration::from_millis(300);

/// Watches `interface`, as soon as there is one of this name, for connections that wait.
pub(super) fn start(front: &Rc<Front>, interface: &str) -> io::Result<JoinHandle<()>> {
    let mut socket = match open(interface) {
        Err(_) if link::index(interface).is_err() => None,
        opened => Some(opened?),
    };
    let (front, interface) = (front.clone(), interface.to_owned());
    Ok(spawn_local(async move {
        loop {
            if let Some(socket) = socket.take()
                && let Err(error) = watch(&front, &interface, &socket).await
            {
                note(&front, &interface, Some(&error));
            }
            sleep(RENEWED_WITHIN).await;
            match open(&interface) {
                Ok(opened) => {
                    note(&front, &interface, None);
                    socket = Some(opened);
                }
                // It may be gone for a while.
                Err(_) if link::index(&interface).is_err() => {}
                Err(error) => note(&front, &interface, Some(&error)),
            }
        }
    }))
}

/// Tells log and `status` why `interface` is not watched, or that it is: until then the gate stays shut.
fn note(front: &Front, interface: &str, fault: Option<&io::Error>) {
    let line = |reason: &str| {
        format!(
            "{interface} is not watched ({reason}): rules with `optimistic = false` refuse; trying on"
        )
    };
    let over = format!("{interface} is watched again");
    let part = format!("watch on {interface}");
    front.faults.take(&part, fault, line, &over);
}

fn open(interface: &str) -> io::Result<AsyncFd<PacketSocket>> {
    let socket = PacketSocket::open_for_openings(interface)?;
    #[expect(
        deprecated,
        reason = "a PacketSocket stays open as long as its AsyncFd; the new form is unsafe"
    )]
    AsyncFd::new(socket)
}

/// Until the interface is another one of its name, or none.
async fn watch(
    front: &Rc<Front>,
    interface: &str,
    socket: &AsyncFd<PacketSocket>,
) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    let mut look = interval(RENEWED_WITHIN);
    loop {
        let mut ready = tokio::select! {
            ready = socket.readable() => ready?,
            _ = look.tick() => match socket.get_ref().is_on(interface) {
                true => continue,
                false => return Ok(()),
            },
        };
        match socket.get_ref().receive(&mut buffer) {
            Ok(packet) => {
                if let Some(opening) = Opening::decode(&buffer[..packet.length]) {
                    if !packet.outgoing {
                        front.note_source(opening.source.ip(), interface);
                    }
                    on_opening(front, interface, opening);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            // Reported once when the interface goes down; it may come up again.
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
            Err(error) => return Err(error),
        }
    }
}

fn on_opening(front: &Rc<Front>, interface: &str, opening: Opening) {
    let destination = opening.destination;
    let mut openings = front.openings.borrow_mut();
    if !may_wait(front, destination)
        || openings.on_segment(&opening)
        || is_optimistic(front, destination)
        || !openings.has_room(opening.source.ip())
        || front.is_elsewhere(interface, &opening)
        || is_left_alone(front, destination)
    {
        return;
    }
    let attempted = openings.ask(opening);
    spawn_local(ask(front.clone(), opening, attempted));
}

/// True if connections to `destination` wait for the server's answer, now or in a doubt.
fn may_wait(front: &Front, destination: SocketAddr) -> bool {
    let said = says_optimistic(front, destination);
    said.map_or(destination.is_ipv6(), |optimistic| !optimistic)
}

/// True if a connection to `destination` is accepted before the server has connected.
fn is_optimistic(front: &Front, destination: SocketAddr) -> bool {
    let said = says_optimistic(front, destination);
    said.unwrap_or(destination.is_ipv4() || !front.doubts.hold())
}

/// Word of the configuration on `destination`, if there is one.
fn says_optimistic(front: &Front, destination: SocketAddr) -> Option<bool> {
    let (address, port) = (destination.ip(), destination.port());
    front.carrier.front().says_optimistic(Some(address), port)
}

/// Not intercepted at all, as the rules have it: the gate never saw it.
fn is_left_alone(front: &Front, destination: SocketAddr) -> bool {
    let address = destination.ip();
    address.is_multicast()
        || front
            .with_rules(|rules| rules.leaves_alone(address))
            .unwrap_or(true)
        || UdpSocket::bind((address, 0)).is_ok()
}

async fn ask(front: Rc<Front>, opening: Opening, attempted: Rc<Notify>) {
    let Opening {
        source,
        destination,
    } = opening;
    let wanted = to_tunnel(destination);
    let opened = open_and_wait(&front.carrier, &wanted, Some(source), Bytes::new()).await;
    match opened {
        Ok(opened) => {
            front.doubts.on_outcome(destination, ReplyCode::Ok);
            if front.openings.borrow_mut().on_answer(&opening, opened.flow) {
                // A host that does not come back has given up.
                let _ = timeout(ADMITTED_FOR, admit(&front, opening, &attempted)).await;
            }
        }
        Err(NotOpened::Code(code)) => {
            front.doubts.on_outcome(destination, code);
            front.refuse(destination, code).await;
        }
        Err(NotOpened::Application | NotOpened::NoServer) => {}
    }
    front.openings.borrow_mut().give_up(&opening);
}

/// Admits `opening`, and again after each attempt that is not taken in: a table that was put back, or follows a changed
/// interface, has forgotten.
async fn admit(front: &Rc<Front>, opening: Opening, attempted: &Notify) {
    let Opening {
        source,
        destination,
    } = opening;
    while front.openings.borrow().is_connected(&opening) {
        front
            .tell(move |rules| rules.admit(source, destination))
            .await;
        attempted.notified().await;
        sleep(TAKEN_IN_WITHIN).await;
    }
}

/// Connection that the kernel has handed over, known as such until this is dropped.
pub(super) struct LetIn(Option<(Rc<Front>, Opening)>);

impl LetIn {
    /// Takes in that `opening` was let in; and its flow, if one was asked for.
    pub(super) fn new(front: &Rc<Front>, opening: Opening) -> (Self, FlowOfTaken<Flow>) {
        if !may_wait(front, opening.destination) {
            return (Self(None), FlowOfTaken::None);
        }
        let flow = front.openings.borrow_mut().on_connection(opening);
        (Self(Some((front.clone(), opening))), flow)
    }
}

impl Drop for LetIn {
    fn drop(&mut self) {
        if let Some((front, opening)) = self.0.take() {
            front.openings.borrow_mut().on_end(&opening);
        }
    }
}

pub(super) fn to_tunnel(destination: SocketAddr) -> Destination {
    Destination {
        host: Host::Ip(destination.ip()),
        port: destination.port(),
    }
}
