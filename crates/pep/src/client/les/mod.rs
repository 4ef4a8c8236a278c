//! TCP of some prefixes, sealed packet by packet beside the tunnel (LES, `PROTOCOL.md` §20): keys by the tunnel, packets by a
//! UDP socket, so that an operator's PEPs can read their headers.
//!
//! ```text
//!   device ─► takes? ─► Initiator: seal ══ UDP 4501 ══ server
//!   device ◄─────────── Initiator: open ══════════════╯
//!      tunnel ─ Q1, Q2, Q3 ─► Initiator ─ Q4 ─► Peps ══ a connection to each PEP
//! ```
//!
//! While no association stands, packets are dropped and counted. A server without LES gets these connections through the
//! tunnel, and so does every one while the tunnel goes over TLS, because UDP does not pass: then the rules lead them to the
//! listener ([`Layering::leads`]).

mod greetings;
mod laboratory;
mod peps;
mod road;
mod standing;
mod unheard;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bentpipe_proto::tunnel::{LesBody, LesKind};
use bentpipe_sealed::les::Unwritten;
use bentpipe_sealed::les::sa::{AnswerCode, Material, Plan, Psk, Step, Unsent};
use bytes::{Bytes, BytesMut};
use tokio::net::UdpSocket;
use tokio::task::yield_now;

use super::connections::Attempt;
use super::tunnels::Tunnels;
use crate::config::{ClientConfig, ClientLes};
use crate::keys::PrivateKey;
use crate::les::{BATCH, LesTraffic, READ, begins_connection, fresh, material, psk, tcp};
use crate::process::{self, RunError};
use crate::status;
use bentpipe_tunnel::engine::Connection;
use bentpipe_tunnel::transport::LesAccord;
use greetings::Greetings;
use laboratory::{Laboratory, LaboratoryAnswer};
use peps::Peps;
use road::{LesAgreement, LesRoad};
use unheard::Unheard;

/// TCP of a client that goes by LES.
pub(crate) struct Layering {
    config: ClientLes,
    tunnels: Rc<Tunnels>,
    socket: UdpSocket,
    road: RefCell<LesRoad>,
    /// Associations of attempts, which ask before the server has greeted.
    early: RefCell<Vec<LesAgreement>>,
    traffic: Rc<RefCell<LesTraffic>>,
    /// Outcome of the last tunnel's offers, as the log has it.
    told: Cell<LesAccord>,
    /// The tunnel goes over TLS: UDP does not pass, or is not to be used.
    over_tls: Cell<bool>,
    unheard: RefCell<Unheard>,
    /// Key of a laboratory, in place of those of the tunnel.
    laboratory: Option<Laboratory>,
    /// PEPs that are to have K2.
    peps: Rc<Peps>,
    greetings: Greetings,
}

impl Layering {
    /// LES as `config` says, over the tunnels of `tunnels`; `socket` makes sockets that are not intercepted. Needs the runtime.
    ///
    /// # Errors
    /// There is no socket, or the `key` that PEPs know this client by cannot be used.
    pub(super) fn new(
        les: &ClientLes,
        config: &ClientConfig,
        tunnels: &Rc<Tunnels>,
        key: &PrivateKey,
        socket: impl Fn() -> Result<std::net::UdpSocket, RunError>,
    ) -> Result<Self, RunError> {
        let shown = (key, config.identity.allow_classical);
        let peps = Peps::new(
            &les.peps,
            shown,
            socket()?,
            (&config.state_dir, super::lookups(config)),
        )?;
        Ok(Self {
            config: les.clone(),
            tunnels: tunnels.clone(),
            socket: UdpSocket::from_std(socket()?)?,
            road: RefCell::new(LesRoad::NoTunnel),
            early: RefCell::default(),
            traffic: Rc::default(),
            told: Cell::default(),
            over_tls: Cell::new(false),
            unheard: RefCell::default(),
            laboratory: psk(les.psk_file.as_deref())
                .map_err(RunError::Key)?
                .map(|psk| Laboratory::new(psk, les.port)),
            peps: Rc::new(peps),
            greetings: Greetings::load(config),
        })
    }

    /// True if TCP of the prefixes is to be led into the device; false while the server has no LES, or UDP does not pass.
    pub(super) fn leads(&self) -> bool {
        !self.over_tls.get() && self.road.borrow().leads()
    }

    /// The associations that are wanted with the server of this attempt.
    fn plan(&self, attempt: &Attempt) -> Plan {
        let server = attempt.address.ip();
        let own = process::source_address(server);
        Plan {
            handshake: self.config.handshake,
            selectors: self.config.destinations.clone(),
            peps: self.peps.keys(),
            ends: [own.unwrap_or(server), server],
            introduced: self.peps.introduced(),
            accepted: self.peps.among(&self.greetings.accepted(attempt.server)),
        }
    }

    /// Address as the socket takes it, which may be one for both families.
    fn reachable(&self, address: SocketAddr) -> SocketAddr {
        let dual_stack = self.socket.local_addr().is_ok_and(|own| own.is_ipv6());
        match address.ip() {
            IpAddr::V4(ip) if dual_stack => (ip.to_ipv6_mapped(), address.port()).into(),
            _ => address,
        }
    }

    /// Looks whether an association is to begin or to end; to be called every second. True: what [`Self::leads`] says has
    /// changed.
    pub(super) fn tick(&self) -> bool {
        self.peps.tick();
        self.peps.look_up();
        let mut road = self.road.borrow_mut();
        if let LesRoad::Agreed(agreed) = &mut *road {
            agreed.initiator.handle_timeout(process::now());
            self.advance(agreed);
        }
        drop(road);
        self.look_for_answers();
        self.look_at_wire()
    }

    /// Begins what is due, and takes the steps that the associations ask for.
    fn advance(&self, agreed: &mut LesAgreement) {
        loop {
            while let Some(step) = agreed.initiator.poll_step() {
                self.take_step(step, agreed);
            }
            let Some(inputs) = self.inputs(agreed) else {
                break;
            };
            agreed.initiator.begin(process::now(), inputs);
        }
        if agreed.initiator.live().stands() {
            let live = agreed.initiator.live().receives().collect();
            self.peps.end_all_but(&live);
        }
    }

    /// Sends Q1 or Q3, in a laboratory beside the tunnel.
    fn send_message(&self, agreed: &LesAgreement, kind: LesKind, body: LesBody) {
        if let Some(own) = &self.laboratory {
            // What is lost is sent again.
            let message = own.ask(body.as_ref());
            let _ = self.socket.try_send_to(&message, agreed.server);
            return;
        }
        self.tunnels.change(agreed.tunnel, |connection| {
            connection.tunnel.send_les(kind, body);
        });
    }

    /// Inputs of the association that is due with `agreed`, if one is.
    fn inputs(&self, agreed: &LesAgreement) -> Option<Material> {
        let count = agreed.initiator.due(process::now())?;
        if let Some(own) = &self.laboratory {
            return Some(fresh(own.exporter(count)));
        }
        let inputs = |connection: &Connection| material(connection, count);
        self.tunnels.look_at(agreed.tunnel, inputs)
    }

    fn take_step(&self, step: Step, agreed: &mut LesAgreement) {
        let id = agreed.tunnel;
        match step {
            Step::Send(kind, body) => self.send_message(agreed, kind, body),
            Step::Established(count) => {
                agreed.refused = None;
                // Those that have no key of it are to reset what they relay, while they can.
                if let Some(newest) = agreed.initiator.live().receives().last() {
                    self.peps.end_without(newest);
                }
                let accepted = self.peps.names(&agreed.initiator.plan().accepted);
                self.greetings.on_accepted(agreed.number, accepted);
                self.traffic.borrow_mut().begun();
                // So that the random bytes cannot be opened later in what was recorded.
                self.tunnels.change(id, Connection::renew_keys);
                tracing::debug!("association {count} of LES stands");
            }
            Step::Refused(AnswerCode::PepUnknown) => {
                // The next association is without it.
                tracing::warn!("{}", AnswerCode::PepUnknown);
            }
            Step::Refused(code) => {
                if agreed.refused.replace(code).is_none() {
                    tracing::warn!("LES does not begin, and its packets are dropped: {code}");
                }
            }
            Step::Grant(pep, grant) => self.peps.grant(pep, grant),
            // Packets of the server come only after its answer. Lines are closed by whoever revokes.
            Step::Listen(_) | Step::Withdraw(_) => {}
        }
    }

    /// True if `packet` is TCP of the prefixes.
    fn takes(&self, packet: &[u8]) -> bool {
        let within = |ip: IpAddr| self.config.destinations.iter().any(|net| net.contains(&ip));
        tcp(packet).is_some_and(|header| within(header.destination))
    }

    /// Sends the packets that are for LES, or drops them while no association stands; returns the others.
    pub(super) fn send(&self, packets: Vec<Bytes>) -> Vec<Bytes> {
        let mut road = self.road.borrow_mut();
        let mut out = BytesMut::new();
        let left = packets.into_iter().filter(|packet| {
            if !self.takes(packet) {
                return true;
            }
            match &mut *road {
                // As without LES.
                LesRoad::Agreed(_) if self.over_tls.get() && !begins_connection(packet) => true,
                LesRoad::Agreed(agreed) if !self.over_tls.get() => {
                    self.seal(agreed, packet, &mut out)
                }
                // A connection that began in the tunnel's packets would end when the listener has the rest of it. Others have begun
                // at the far side, whose packets come through the tunnel.
                LesRoad::Lacking if !begins_connection(packet) => true,
                LesRoad::Agreed(_) | LesRoad::OtherKeys | LesRoad::Lacking | LesRoad::NoTunnel => {
                    self.traffic.borrow_mut().without_association();
                    false
                }
            }
        });
        left.collect()
    }

    /// Seals and sends `packet`. True: it has a form that LES does not carry, and goes through the tunnel.
    fn seal(&self, agreed: &mut LesAgreement, packet: &[u8], out: &mut BytesMut) -> bool {
        out.clear();
        let mut traffic = self.traffic.borrow_mut();
        match agreed.initiator.live().seal(packet, out) {
            Ok(()) => match self.socket.try_send_to(out, agreed.server) {
                Ok(_) => traffic.sent(out.len(), agreed.server),
                // As on any link.
                Err(_) => traffic.without_room(),
            },
            Err(Unsent::Unwritten(Unwritten::NotCarried(_) | Unwritten::Zone(_))) => return true,
            Err(
                Unsent::NoAssociation | Unsent::Selector(_) | Unsent::Unwritten(Unwritten::Spent),
            ) => {
                traffic.without_association();
            }
        }
        false
    }

    /// Opens what comes, for `deliver`; never ends but with an error.
    pub(super) async fn receive(&self, deliver: impl Fn(Vec<Bytes>)) -> io::Result<()> {
        let mut datagram = vec![0; READ];
        loop {
            self.socket.readable().await?;
            let (mut opened, mut inner) = (Vec::new(), Vec::new());
            for _ in 0..BATCH {
                match self.socket.try_recv_from(&mut datagram) {
                    Ok((length, peer)) => {
                        if self.open(&datagram[..length], peer, &mut inner) {
                            opened.push(Bytes::copy_from_slice(&inner));
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The kernel's word about a datagram that was sent.
                    Err(error) => tracing::debug!("the socket of LES: {error}"),
                }
            }
            if !opened.is_empty() {
                deliver(opened);
            }
            // The device and the tunnel have their turn, however fast packets come.
            yield_now().await;
        }
    }

    /// Opens `datagram` into `inner`; false if it is refused. PEPs send in the server's name, so its source proves nothing.
    fn open(&self, datagram: &[u8], peer: SocketAddr, inner: &mut Vec<u8>) -> bool {
        let mut road = self.road.borrow_mut();
        let LesRoad::Agreed(agreed) = &mut *road else {
            return false;
        };
        let laboratory = self.laboratory.as_ref();
        if let Some(own) = laboratory.filter(|_| Psk::is_message(datagram)) {
            self.take_answer(own, agreed, datagram);
            return false;
        }
        let mut traffic = self.traffic.borrow_mut();
        let opened = agreed
            .initiator
            .live()
            .open(process::now(), datagram, inner);
        match opened {
            Ok(_) => traffic.received(datagram.len(), peer),
            Err(why) => {
                traffic.refused(&why);
                tracing::trace!("a packet of LES is refused: {why}");
            }
        }
        opened.is_ok()
    }

    /// Takes Q2 of a laboratory's server, if `datagram` is the answer to what was asked last.
    fn take_answer(&self, own: &Laboratory, agreed: &mut LesAgreement, datagram: &[u8]) {
        let question = agreed.initiator.question();
        match own.read(datagram, question.as_ref()) {
            LaboratoryAnswer::Fits(body) => match agreed.initiator.on_q2(process::now(), body) {
                Ok(()) => {
                    own.on_answered(question);
                    self.advance(agreed);
                }
                Err(fault) => tracing::debug!("a message of LES is refused: {fault}"),
            },
            LaboratoryAnswer::Repeated => self.traffic.borrow_mut().repeated(),
            LaboratoryAnswer::Unfit { has_form } => self.traffic.borrow_mut().unfit(has_form),
        }
    }

    /// Packets, counted.
    pub(super) fn traffic(&self) -> &Rc<RefCell<LesTraffic>> {
        &self.traffic
    }

    /// Part of `status`.
    pub(super) fn report(&self) -> status::Les {
        let mut wanted = None;
        let (stands, reason) = match &mut *self.road.borrow_mut() {
            LesRoad::NoTunnel => (false, Some("there is no tunnel".to_owned())),
            LesRoad::Lacking => (false, Some("the server has no LES".to_owned())),
            LesRoad::OtherKeys => (false, Some(self.other_keys())),
            LesRoad::Agreed(_) if self.over_tls.get() => (
                false,
                Some("the tunnel goes over TLS, and LES needs UDP".to_owned()),
            ),
            LesRoad::Agreed(agreed) => {
                wanted = Some(agreed.initiator.plan().peps.clone());
                let unheard = self.unheard.borrow().is_unheard();
                let refused = agreed.refused.map(|code| code.to_string());
                let refused = refused.or_else(|| self.laboratory.as_ref()?.fault());
                (
                    agreed.initiator.live().stands(),
                    refused.or_else(|| unheard.then(|| self.unheard_text())),
                )
            }
        };
        // What the server refuses is not in the plan any more.
        let refused = |pep| wanted.as_ref().is_some_and(|wanted| !wanted.contains(&pep));
        status::Les {
            reason,
            laboratory: self.laboratory.is_some(),
            peps: self.peps.report(refused),
            ..self.traffic.borrow().report(stands)
        }
    }
}
