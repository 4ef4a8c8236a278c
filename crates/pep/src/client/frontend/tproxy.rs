//! Transparent interception: the kernel hands us connections that were meant for somebody else.
//!
//! An accepted socket's local address is the destination. The rules follow what the tunnel can reach:
//! the kernel refuses a family that the server lacks, and answers for ten seconds for a destination that
//! refused, is not allowed, cannot be reached or did not answer. Connections that must not be accepted early go through `gatekeeper.rs`.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bentpipe_proto::opening::Opening;
use bentpipe_proto::tunnel::ReplyCode;
use bentpipe_sys::claim::{Claim, Sole};
use bentpipe_sys::{route, socket};
use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle, spawn_blocking, spawn_local};
use tokio::time::sleep;

use super::Context;
use super::direct::Decisions;
use super::doubt::Doubts;
use super::flow::{Answer, Intake, carry};
use super::follow::follow;
use super::gatekeeper::{self, LetIn, TAKEN_IN_WITHIN, to_tunnel};
use super::names::Lesson;
use super::openings::{FlowOfTaken, Openings};
use super::own_faults::OwnFaults;
use super::share::{Shares, WAITING};
use super::unanswered::Sources;
use super::upkeep::Upkeep;
use super::wanted;
use crate::client::carrier::{Carrier, Flow};
use crate::client::intercept::{self, Installed, Interception, KernelAnswer, Other};
use crate::client::kept_device::lock;
use crate::complaint::Complaint;
use crate::config::{self, ClientDns, FrontEnds, Intercept, Place, Placed, TCP};
use crate::firewall::open_passages;
use crate::kernel::Guardian;
use crate::net::listen;
use crate::process::{self, RunError, canonical};
use crate::relay::{self, Outcome};
use crate::status::KernelRepair;

/// Things told to the kernel at once: each is a run of `nft`.
const MAX_TELLING: usize = 4;

/// Age that the account of the rules may have.
const COUNTED_EVERY: Duration = Duration::from_secs(3);

/// Refusals that may wait to be told: some seconds' worth.
const MAX_REFUSING: usize = 1024;

/// The mark of our own sockets, exempt from interception.
pub(crate) fn own_mark() -> u32 {
    Interception::new(0).routing.own_mark()
}

/// State that everything that intercepts shares.
pub(super) struct Front {
    pub(super) carrier: Carrier,
    pub(super) openings: RefCell<Openings<Flow>>,
    decisions: Rc<Decisions>,
    shares: Rc<Shares>,
    pub(super) doubts: Doubts,
    /// Networks that connections came from, for who asks for the ways back.
    sources: Arc<Mutex<Sources>>,
    /// `None` once they have been removed.
    rules: Arc<Mutex<Option<Installed>>>,
    telling: Semaphore,
    /// Places of refusals that wait for that.
    refusing: Semaphore,
    /// Faults of what the client has in the kernel, which nobody else has caused.
    pub(super) faults: OwnFaults,
    /// Complaint about changes for single destinations.
    complaint: RefCell<Complaint>,
}

/// The rules in force, and who keeps them there.
pub(crate) struct Interceptor {
    front: Rc<Front>,
    guardian: Guardian,
    /// Tasks that change the rules as the tunnel goes, or ask it for connections that wait.
    following: Vec<AbortHandle>,
}

impl Interceptor {
    /// Has hosts wait with what they begin for the next client. What they have begun is taken in when this returns.
    pub(super) async fn drain(&self) {
        self.following.iter().for_each(AbortHandle::abort);
        if let Err(error) = self.front.change(Installed::drain).await {
            tracing::error!(
                "hosts are not made to wait for the client that comes next: {error}; what they begin until then is refused"
            );
        }
        sleep(TAKEN_IN_WITHIN).await;
    }

    /// Things that others took away and that were put back, and what cannot be done at present.
    pub(super) fn repairs(&self) -> Vec<KernelRepair> {
        let mut repairs = self.guardian.repairs().report();
        repairs.extend(self.front.faults.report());
        repairs
    }

    /// Removes the rules.
    pub(super) fn remove(self) -> io::Result<()> {
        self.take().map_or(Ok(()), Installed::remove)
    }

    /// Leaves the rules in force; true if what they take in goes in clear then.
    pub(super) fn leave(self) -> bool {
        self.take().is_some_and(|rules| {
            let in_clear = rules.fails_open();
            rules.leave();
            in_clear
        })
    }

    fn take(self) -> Option<Installed> {
        // Nothing is put back from here on.
        drop(self.guardian);
        lock(&self.front.rules).take()
    }
}

/// Takes the right to intercept in this network namespace: before anything else, so that a second client is told of the
/// first and not of a port.
pub(super) fn claim(
    intercept: &Placed<Intercept>,
    dns: Option<&ClientDns>,
) -> Result<Claim, RunError> {
    let ports = std::iter::once(intercept.port).chain(dns.map(|dns| dns.port));
    let ports: Vec<_> = ports.map(|port| format!(":{port}")).collect();
    let ports = ports.join(" and ");
    Claim::take(Sole::Interception).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => RunError::Taken {
            place: Some(intercept.place.clone()),
            fault: format!("interception, with TCP {ports}, is in use: {error}"),
        },
        _ => RunError::Io(error),
    })
}

fn warn_without_hold(installed: &Installed) {
    if installed.lacks_hold() {
        tracing::warn!(
            "this kernel (before Linux 6.9) cannot keep a table from being flushed by another program: should that happen, what \
             this machine itself sends leaves in clear for some tens of milliseconds, until the table is back"
        );
    }
}

/// Opens the listeners, then puts the rules in force.
pub(super) fn start(
    claim: Claim,
    config: &FrontEnds,
    intercept: &Placed<Intercept>,
    dns: Option<&ClientDns>,
    context: &Context<'_>,
    tasks: &mut Vec<JoinHandle<()>>,
) -> Result<Interceptor, RunError> {
    let Context {
        carrier,
        decisions,
        open,
    } = *context;
    let place = &intercept.place;
    let reach = carrier.reach().borrow().clone();
    let mut wanted = wanted::at_first(config, intercept, dns, &reach);
    let listeners = local_addresses(intercept.port)
        .into_iter()
        .map(|address| listener(address, place));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let lacking = |error: io::Error| RunError::privilege(place, &error);
    let device = carrier.open_device().map_err(lacking)?;
    if device.is_none() && wanted.other == Other::Tunnel {
        // There is nothing that could carry it.
        wanted.other = Other::Drop;
    }
    let doubts = Doubts::default();
    let current = wanted::now(&wanted, &reach, doubts.hold());
    let installed = current.install_claimed(claim).map_err(lacking)?;
    warn_without_hold(&installed);
    let front = Rc::new(Front::new(carrier, decisions, doubts, installed));
    decisions.tell(&front);
    for listener in listeners {
        let (front, open) = (front.clone(), open.clone());
        tasks.push(listen::accept(listener, move |socket, peer| {
            open.clone()
                .run(peer.ip(), serve(front.clone(), socket, peer))
        }));
    }
    let own = intercept.local.then_some("lo");
    let mut following = vec![spawn_local(follow(front.clone(), wanted, current))];
    for interface in intercept.interfaces.iter().map(String::as_str).chain(own) {
        following.push(gatekeeper::start(&front, interface).map_err(lacking)?);
    }
    let handles = following.iter().map(JoinHandle::abort_handle).collect();
    tasks.extend(following);
    if !decisions.is_empty() {
        tasks.push(spawn_local(count(front.clone())));
    }
    if device.is_some() {
        open_passages()?;
    }
    let upkeep = Upkeep::new(front.rules.clone(), device, front.sources.clone());
    let guardian = Guardian::start(upkeep)?;
    // Whatever failed until here has left the rules of a client that was killed in force.
    lock(&front.rules).iter_mut().for_each(Installed::own);
    Ok(Interceptor {
        front,
        guardian,
        following: handles,
    })
}

/// Addresses at which TPROXY delivers to `port`: one for each family that this machine has.
pub(super) fn local_addresses(port: u16) -> Vec<SocketAddr> {
    let mut addresses = vec![SocketAddr::from(([0, 0, 0, 0], port))];
    if route::ipv6_usable() {
        addresses.push(SocketAddr::from(([0_u16; 8], port)));
    }
    addresses
}

pub(super) fn listener(address: SocketAddr, place: &Place) -> Result<TcpListener, RunError> {
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

/// Keeps the account of what the rules decide on in the kernel; never ends.
async fn count(front: Rc<Front>) {
    loop {
        sleep(COUNTED_EVERY).await;
        let rules = front.rules.clone();
        let counted = spawn_blocking(move || lock(&rules).as_mut().map(Installed::counts));
        if let Ok(Some(Ok(counts))) = counted.await {
            let counts = counts.iter().map(|count| (count.packets, count.bytes));
            front.decisions.set_kernel(counts.collect());
        }
    }
}

impl Front {
    fn new(
        carrier: &Carrier,
        decisions: &Rc<Decisions>,
        doubts: Doubts,
        installed: Installed,
    ) -> Self {
        Self {
            carrier: carrier.clone(),
            openings: RefCell::default(),
            decisions: decisions.clone(),
            shares: Shares::new(WAITING, "connections that wait for the tunnel"),
            doubts,
            sources: Arc::default(),
            rules: Arc::new(Mutex::new(Some(installed))),
            telling: Semaphore::new(MAX_TELLING),
            refusing: Semaphore::new(MAX_REFUSING),
            faults: OwnFaults::default(),
            complaint: RefCell::default(),
        }
    }

    /// Notes that `host` has begun a connection by `interface`.
    pub(super) fn note_source(&self, host: IpAddr, interface: &str) {
        if interface != "lo" {
            lock(&self.sources).note(process::now(), host, interface);
        }
    }

    /// True if a rule sends a connection that came in by `interface` past the tunnel, or nowhere.
    pub(super) fn is_elsewhere(&self, interface: &str, opening: &Opening) -> bool {
        let destination = to_tunnel(opening.destination);
        let (source, front) = (opening.source.ip(), self.carrier.front());
        let decided = (self.decisions).ask(front, Some(interface), source, &destination, TCP);
        matches!(
            decided,
            Some((_, config::Action::Direct | config::Action::Block))
        )
    }

    /// Asks the rules; `None` while they are being changed, and once they have been removed.
    pub(super) fn with_rules<T>(&self, ask: impl FnOnce(&Installed) -> T) -> Option<T> {
        self.rules.try_lock().ok()?.as_ref().map(ask)
    }

    /// Changes the rules for one destination; false if that fails, of which the log is told.
    pub(super) async fn tell(
        &self,
        change: impl FnOnce(&mut Installed) -> io::Result<()> + Send + 'static,
    ) -> bool {
        let reason = self.change(change).await.err();
        let reason = reason.map(|error| error.to_string());
        let told = reason.is_none();
        let line =
            |reason: &str| format!("cannot change the interception rules: {reason}; trying on");
        let over = "the interception rules can be changed again";
        let mut complaint = self.complaint.borrow_mut();
        complaint.tell(process::now(), reason, line, over);
        told
    }

    /// Has these addresses count as their rules' names; false if that fails.
    pub(super) async fn learn(&self, lessons: &[Lesson]) -> bool {
        let lessons = lessons.iter().map(|lesson| intercept::LearnedAddress {
            rule: lesson.rule,
            address: lesson.address,
            time: lesson.time,
        });
        let lessons: Vec<_> = lessons.collect();
        self.tell(move |rules| rules.learn(&lessons)).await
    }

    /// Changes the rules, off this thread: that takes milliseconds.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&mut Installed) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let _permit = self.telling.acquire().await.map_err(io::Error::other)?;
        let rules = self.rules.clone();
        let changed = spawn_blocking(move || lock(&rules).as_mut().map_or(Ok(()), change));
        changed.await.map_err(io::Error::other)?
    }

    /// Has the kernel refuse the next attempts, if the reason is one that lasts. Of more refusals than the kernel can be
    /// told in time (somebody scans) the rest is let go: the next attempt asks the server again.
    pub(super) async fn refuse(&self, destination: SocketAddr, code: ReplyCode) {
        if let Some(refusal) = KernelAnswer::lasting(code)
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
    let (_let_in, flow) = LetIn::new(&front, opening);
    let flow = match flow {
        FlowOfTaken::None => None,
        FlowOfTaken::Connected(flow) => Some(flow),
        // The host has been told "connected": without an answer it can only be reset, by dropping the socket.
        FlowOfTaken::Asked(answer) => match answer.await {
            Ok(flow) => Some(flow),
            Err(_) => return,
        },
    };
    let outcome = match flow {
        Some(flow) => flow.relay(socket).run().await,
        None => {
            let intake = Intake {
                socket,
                destination: to_tunnel(destination),
                source: Some(peer),
                first: Bytes::new(),
                answer: Answer::Silent,
                shares: Some(front.shares.clone()),
            };
            carry(&front.carrier, intake).await
        }
    };
    tracing::debug!("{peer} to {destination}: {outcome:?}");
    if let Outcome::Refused(code) = outcome {
        front.doubts.on_outcome(destination, code);
        Box::pin(front.refuse(destination, code)).await;
    }
}
