//! The server's doors for sealed flows, a TCP port and connections that are taken in on their way: who is there is found out on the
//! main thread, before anything is dialled.
//!
//! ```text
//!   accepted ─► porch, silent ─► first words ─┬─ a flow ─────────────────────────────────────► its shard
//!                                             ├─ names a tunnel, and asks: the tunnel vouches ─►┤
//!                                             ╰─ anything else: a stranger of its host ────────►╯
//! ```

use std::cell::RefCell;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_sealed::sle::{Accepted, Acceptor, MAX_RECORD, OPENING, PREFACE, Refusal};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use super::intake::IntakeRules;
use super::porch::{Porch, PorchPlace};
use super::vouched::Vouchers;
use super::{FreshFlow, SealedTunnels, shard_of};
use crate::config::{SleIntake, SleListening};
use crate::net::listen::{accept, listen_each};
use crate::net::strangers::Strangers;
use crate::process::{self, RunError};
use crate::relay::prepare;

/// Time in which what a connection says together is heard.
const AT_ONCE: Duration = Duration::from_millis(100);

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
    /// Places by each way, so that those who come by one take none of the other's.
    places: [DoorPlaces; 2],
}

/// Places of connections by one way until it is known what each is for.
struct DoorPlaces {
    porch: Rc<Porch>,
    vouchers: Rc<Vouchers>,
    strangers: Rc<Strangers>,
}

impl DoorPlaces {
    fn new() -> Self {
        Self {
            porch: Rc::default(),
            vouchers: Rc::default(),
            strangers: Strangers::new(),
        }
    }
}

/// Connection about which it is being found out what it is for.
struct OuterArrival {
    outer: TcpStream,
    /// Destination that it was made to, if it was taken in on its way there.
    place: Option<SocketAddr>,
    acceptor: Acceptor,
    unread: BytesMut,
    /// Bytes that were read in all.
    read: usize,
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

/// Opens transparent listeners on loopback, and has the kernel lead what `intake` names to them.
fn take_in(
    intake: &SleIntake,
    own: &[u16],
    listeners: &mut Vec<(TcpListener, DoorWay)>,
) -> io::Result<IntakeRules> {
    let mut places = Vec::new();
    for listener in transparent()? {
        places.push(listener.local_addr()?);
        listeners.push((listener, DoorWay::TakenIn));
    }
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

/// No listeners: only Linux leads connections to others.
#[cfg(not(target_os = "linux"))]
fn transparent() -> io::Result<Vec<TcpListener>> {
    Ok(Vec::new())
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
        let (shards, inboxes) = (0..shards).map(|_| mpsc::channel(QUEUE)).unzip();
        let door = Self {
            listeners: RefCell::new(listeners),
            intake: intake.transpose()?,
            tunnels: tunnels.clone(),
            shards,
            places: [DoorPlaces::new(), DoorPlaces::new()],
        };
        Ok((Rc::new(door), inboxes))
    }

    /// Removes what a server that was killed has left in the kernel, unless `sle` has doors that replace it.
    pub(in crate::server) fn tidy(sle: Option<&SleListening>) {
        if sle.is_none_or(|sle| sle.intake.is_none()) {
            IntakeRules::remove_leftover();
        }
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
                ready(())
            });
        }
    }

    /// Has a connection wait for its first words.
    fn admit(self: &Rc<Self>, outer: TcpStream, peer: SocketAddr, way: DoorWay) {
        // Also a refusal is a reset.
        if prepare(&outer).is_err() {
            return;
        }
        let (door, porch) = (self.clone(), &self.places[way as usize].porch);
        let displaced = porch.enter(peer.ip(), |waiting| async move {
            // One that is only called readable has not spoken: where thousands come and go, that happens.
            let spoken = timeout(OPENING, outer.peek(&mut [0])).await;
            match spoken {
                Ok(Ok(_)) => door.listen(outer, peer, way, waiting).await,
                _ => door.tunnels.count(Refusal::Late),
            }
        });
        if displaced {
            self.crowd(peer, "too many outer connections that say nothing");
        }
    }

    /// Hears first words, still `waiting` in the porch. Most say all that is needed at once, and never are strangers.
    async fn listen(
        self: Rc<Self>,
        outer: TcpStream,
        peer: SocketAddr,
        way: DoorWay,
        waiting: PorchPlace,
    ) {
        let Ok(mut arrival) = OuterArrival::new(outer, way) else {
            return self.tunnels.count(Refusal::Late);
        };
        // Where thousands come at once, some are heard a moment later.
        let at_once = timeout(AT_ONCE, arrival.meet(&self.tunnels)).await;
        drop(waiting);
        if let Ok(met) = at_once {
            self.welcome(met, arrival, peer);
            return;
        }
        let places = &self.places[way as usize];
        let named = arrival.acceptor.association();
        if let Some(voucher) = named.and_then(|id| places.vouchers.vouch(process::now(), id)) {
            let met = arrival.meet(&self.tunnels).await;
            if self.welcome(met, arrival, peer) {
                voucher.prove();
            }
            return;
        }
        let door = self.clone();
        let met = places.strangers.meet(peer, |stranger| async move {
            let met = arrival.meet(&door.tunnels).await;
            if door.welcome(met, arrival, peer) {
                stranger.prove();
            }
        });
        if !met {
            self.crowd(peer, "too many outer connections of strangers");
        }
    }

    fn crowd(&self, peer: SocketAddr, why: &str) {
        self.tunnels.count_crowded();
        tracing::debug!(%peer, "{why}");
    }

    /// Hands a flow to its shard; false if there is none.
    fn welcome(
        &self,
        met: Result<Accepted, NotMet>,
        arrival: OuterArrival,
        peer: SocketAddr,
    ) -> bool {
        match met.and_then(|accepted| Ok(arrival.into_flow(accepted)?)) {
            Ok(fresh) => {
                let shard = self.shards.get(shard_of(fresh.accepted.id));
                if shard.is_none_or(|shard| shard.try_send(fresh).is_err()) {
                    self.crowd(
                        peer,
                        "the thread that it falls to takes in no sealed flow now",
                    );
                }
                return true;
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
        false
    }
}

impl OuterArrival {
    fn new(outer: TcpStream, way: DoorWay) -> io::Result<Self> {
        let mut acceptor = Acceptor::new(process::now());
        let place = (way == DoorWay::TakenIn).then(|| outer.local_addr());
        let place = place.transpose()?.map(process::canonical);
        if let Some(place) = place {
            acceptor = acceptor.at(place);
        }
        Ok(Self {
            outer,
            place,
            acceptor,
            unread: BytesMut::with_capacity(FIRST_BYTES),
            read: 0,
        })
    }

    fn into_flow(self, accepted: Accepted) -> io::Result<FreshFlow> {
        Ok(FreshFlow {
            outer: self.outer.into_std()?,
            unread: self.unread.freeze(),
            read: self.read,
            accepted,
            place: self.place,
        })
    }

    /// Reads until the first record is open, and answers a preface that asks. Once it was ended early it can be begun again.
    async fn meet(&mut self, tunnels: &SealedTunnels) -> Result<Accepted, NotMet> {
        loop {
            // From here on: what changes before this one waits is not missed.
            let changed = tunnels.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = process::now();
            let mut input = &self.unread[..];
            let pushed = self
                .acceptor
                .push(now, &mut input, &mut tunnels.associations());
            let left = input.len();
            self.unread.advance(self.unread.len() - left);
            if let Some(answer) = self.acceptor.take_answer() {
                // The first bytes of a connection, which the kernel always has room for.
                self.outer.write_all(&answer).await?;
            }
            if let Some(accepted) = pushed.map_err(NotMet::Refused)? {
                return Ok(accepted);
            }
            let due = self.acceptor.deadline().unwrap_or(now);
            let room = FIRST_BYTES - left;
            let mut more = (&mut self.outer).take(room as u64);
            tokio::select! {
                count = more.read_buf(&mut self.unread), if room > 0 => match count? {
                    0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    count => self.read += count,
                },
                () = &mut changed => {}
                () = sleep_until(due.into()) => {
                    let due = self.acceptor.handle_timeout(process::now());
                    due.map_err(NotMet::Refused)?;
                }
            }
        }
    }
}
