//! The server's doors for sealed flows, a TCP port and connections that are taken in on their way: who is there is found out on the
//! main thread, before anything is dialled.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_sealed::sle::{Acceptor, MAX_RECORD, PREFACE, Refusal};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::sleep_until;

use super::intake::IntakeRules;
use super::{FreshFlow, SealedTunnels, shard_of};
use crate::config::{SleIntake, SleListening};
use crate::net::listen::{accept, listen_each};
use crate::net::strangers::{Stranger, Strangers};
use crate::process::{self, RunError};
use crate::relay::prepare;

/// Flows that may wait for a shard to take them in.
const QUEUE: usize = 4096;

/// Bytes that are read before it is known who is there: preface and first record.
const FIRST_BYTES: usize = PREFACE + MAX_RECORD;

/// Listeners for outer connections, and the shards that they lead to.
pub(in crate::server) struct SleDoor {
    listeners: RefCell<Vec<(TcpListener, DoorWay)>>,
    /// Rules that lead connections here on their way elsewhere, if there are some.
    intake: Option<IntakeRules>,
    tunnels: Arc<SealedTunnels>,
    shards: Vec<mpsc::Sender<FreshFlow>>,
    /// Strangers by each way, so that those of one take no place of the other's.
    strangers: [Rc<Strangers>; 2],
}

/// Way by which a connection comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoorWay {
    /// To the server's own port.
    Addressed,
    /// To somebody else; the kernel's rules have taken it in.
    TakenIn,
}

/// Reason why there is no flow.
enum NotMet {
    Refused(Refusal),
    Lost(io::Error),
}

impl From<io::Error> for NotMet {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Has the kernel keep connections until they have said something: a client says all that is waited for right behind its SYN, so
/// that hundreds which begin at once take no place of a stranger.
fn defer(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = bentpipe_sys::socket::defer_accept(listener, bentpipe_sealed::sle::OPENING)
    {
        tracing::debug!("outer connections are taken in before they say anything: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}

/// Opens transparent listeners on loopback, and has the kernel lead what `intake` names to them.
fn take_in(
    intake: &SleIntake,
    own: &[u16],
    listeners: &mut Vec<(TcpListener, DoorWay)>,
) -> io::Result<IntakeRules> {
    let mut places = Vec::new();
    #[cfg(target_os = "linux")]
    for listener in transparent()? {
        places.push(listener.local_addr()?);
        listeners.push((listener, DoorWay::TakenIn));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listeners;
    IntakeRules::install(intake, &places, own)
}

/// Listeners to which the kernel may lead connections to anybody, one of each family that this machine has.
#[cfg(target_os = "linux")]
fn transparent() -> io::Result<Vec<TcpListener>> {
    let mut loopbacks = vec![IpAddr::from([127, 0, 0, 1])];
    if bentpipe_sys::route::ipv6_usable() {
        loopbacks.push(Ipv6Addr::LOCALHOST.into());
    }
    let listeners = loopbacks.into_iter().map(|loopback| {
        let listener = bentpipe_sys::socket::transparent_listener((loopback, 0).into(), 0)?;
        TcpListener::from_std(listener)
    });
    listeners.collect()
}

impl SleDoor {
    /// Opens the doors of `sle` for so many `shards`, which get what comes by the receivers; to be called inside a runtime. The TCP
    /// ports of `own` are this machine's own, whoever else's connections are taken in.
    ///
    /// # Errors
    /// An address cannot be had, or the kernel's rules cannot.
    pub(in crate::server) fn open(
        sle: &SleListening,
        own: &[u16],
        tunnels: &Arc<SealedTunnels>,
        shards: usize,
    ) -> Result<(Rc<Self>, Vec<mpsc::Receiver<FreshFlow>>), RunError> {
        let mut listeners = Vec::new();
        if let Some(addresses) = &sle.addresses {
            let bound = listen_each(addresses)?.into_iter();
            listeners.extend(bound.map(|listener| (listener, DoorWay::Addressed)));
        }
        let intake = sle.intake.as_ref();
        let intake = intake.map(|intake| {
            take_in(intake, own, &mut listeners)
                .map_err(|error| RunError::privilege(&intake.place, &error))
        });
        for (listener, _) in &listeners {
            defer(listener);
        }
        let (shards, inboxes) = (0..shards).map(|_| mpsc::channel(QUEUE)).unzip();
        let door = Self {
            listeners: RefCell::new(listeners),
            intake: intake.transpose()?,
            tunnels: tunnels.clone(),
            shards,
            strangers: [Strangers::new(), Strangers::new()],
        };
        Ok((Rc::new(door), inboxes))
    }

    /// Rules that lead connections here on their way elsewhere, if there are some.
    pub(in crate::server) fn intake(&self) -> Option<&IntakeRules> {
        self.intake.as_ref()
    }

    /// Takes in connections; to be called inside a set of local tasks.
    pub(in crate::server) fn serve(self: &Rc<Self>) {
        for (listener, way) in self.listeners.take() {
            let door = self.clone();
            accept(listener, move |outer, peer| {
                door.admit(outer, peer, way);
                // Before the next one those that are in are heard: of a client's thousand connections at once each would else
                // be a stranger, and have its host's share used up.
                yield_now()
            });
        }
    }

    /// Finds out who is there, unless the host or its network has had its share.
    fn admit(self: &Rc<Self>, outer: TcpStream, peer: SocketAddr, way: DoorWay) {
        // Also a refusal is a reset.
        let (Ok(()), Ok(place)) = (prepare(&outer), outer.local_addr()) else {
            return;
        };
        let place = (way == DoorWay::TakenIn).then(|| process::canonical(place));
        let door = self.clone();
        let met = self.strangers[way as usize].meet(peer, |stranger| async move {
            door.welcome((outer, place), peer, stranger).await;
        });
        if !met {
            self.tunnels.count_crowded();
            tracing::debug!(%peer, "too many outer connections of strangers");
        }
    }

    async fn welcome(
        &self,
        (outer, place): (TcpStream, Option<SocketAddr>),
        peer: SocketAddr,
        stranger: Stranger,
    ) {
        match self.meet(outer, place).await {
            Ok(fresh) => {
                stranger.prove();
                let shard = self.shards.get(shard_of(fresh.accepted.id));
                if shard.is_none_or(|shard| shard.try_send(fresh).is_err()) {
                    self.tunnels.count_crowded();
                    tracing::debug!(%peer, "the shard takes in no sealed flow now");
                }
            }
            Err(NotMet::Refused(refusal)) => {
                self.tunnels.count(refusal);
                tracing::debug!(%peer, "outer connection refused: {refusal}");
            }
            Err(NotMet::Lost(error)) => {
                self.tunnels.count(Refusal::Late);
                tracing::debug!(%peer, "outer connection lost before its request: {error}");
            }
        }
    }

    /// Reads until the first record is open, and answers a preface that asks; `place` is where the connection was to go, if it was
    /// taken in.
    async fn meet(
        &self,
        mut outer: TcpStream,
        place: Option<SocketAddr>,
    ) -> Result<FreshFlow, NotMet> {
        let mut acceptor = Acceptor::new(process::now());
        if let Some(place) = place {
            acceptor = acceptor.at(place);
        }
        let (mut unread, mut read) = (BytesMut::with_capacity(FIRST_BYTES), 0);
        loop {
            // From here on: what changes before this one waits is not missed.
            let changed = self.tunnels.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = process::now();
            let mut input = &unread[..];
            let pushed = acceptor.push(now, &mut input, &mut self.tunnels.associations());
            let left = input.len();
            unread.advance(unread.len() - left);
            if let Some(answer) = acceptor.take_answer() {
                // The first bytes of a connection, which the kernel always has room for.
                outer.write_all(&answer).await?;
            }
            if let Some(accepted) = pushed.map_err(NotMet::Refused)? {
                return Ok(FreshFlow {
                    outer: outer.into_std()?,
                    unread: unread.freeze(),
                    read,
                    accepted,
                    place,
                });
            }
            let due = acceptor.deadline().unwrap_or(now);
            let room = FIRST_BYTES - left;
            let mut more = (&mut outer).take(room as u64);
            tokio::select! {
                count = more.read_buf(&mut unread), if room > 0 => match count? {
                    0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    count => read += count,
                },
                () = &mut changed => {}
                () = sleep_until(due.into()) => {
                    let due = acceptor.handle_timeout(process::now());
                    due.map_err(NotMet::Refused)?;
                }
            }
        }
    }
}
