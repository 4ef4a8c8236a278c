//! Ends of LES of one shard's clients: associations by their tunnels, packets by the door.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{LesBody, LesKind};
use bentpipe_sealed::les::Spi;
use bentpipe_sealed::les::sa::{
    Material, Proposal, Psk, Responder, Rules, Step, Unsent, Violation,
};
use bytes::{Bytes, BytesMut};
use ipnet::IpNet;

use super::super::clients::Client;
use super::{LayeredPacket, LayeredTunnels, ReturnPath};
use crate::les::{LesTraffic, UNFIT, fresh, material, tcp};
use crate::process;
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::{Connection, ConnectionId, Engine};
use bentpipe_tunnel::transport::LesAccord;

/// Time after its last packet for which a client is sent packets of LES: a NAT on the way may forget it soon after, or its address
/// may have changed. The tunnel follows both, so packets take that way then.
const WAY_BACK: Duration = Duration::from_secs(20);

/// Reason at a server with a pre-shared key, whose client has none.
const NO_KEY_THERE: &str = "LES carries nothing: `flow` of the client's [les] is \"short\" or \"paper\", and this server takes \"psk\" alone, for it has \
     [les.laboratory]; remove that table here, or set `flow = \"psk\"` with [les.laboratory] and the same key there";

/// Reason at a server without a pre-shared key, whose client has one.
const NO_KEY_HERE: &str = "LES carries nothing: `flow` of the client's [les] is \"psk\", and this server takes \"short\" and \"paper\" alone, for its [les] has \
     no [les.laboratory]; remove `flow` and [les.laboratory] there, or add [les.laboratory] with the same key here";

/// Reason at a server with a pre-shared key, whose client has another.
const OTHER_SECRET: &str = "LES carries nothing: what the client asks with its pre-shared key does not fit the one here; give both ends the same file as \
     `psk_file` of [les.laboratory]";

/// Packets of one tunnel that were opened.
pub(in crate::server) type OpenedPackets = (ConnectionId, Vec<Bytes>);

/// Ends of one shard.
pub(in crate::server) struct LayeredEnds {
    tunnels: Arc<LayeredTunnels>,
    shard: Rc<Shard>,
    index: u8,
    ends: RefCell<HashMap<ConnectionId, LayeredEnd>>,
}

/// End of one tunnel.
#[derive(Default)]
struct LayeredEnd {
    responder: Responder,
    /// Names that the table of all shards has.
    listens: Vec<Spi>,
    /// Way that the client's last valid packet came by, and when.
    back: Option<(ReturnPath, Instant)>,
    traffic: LesTraffic,
    /// Reason why no association can begin.
    hindered: Option<&'static str>,
    /// Messages with another pre-shared key, since one fitted.
    unfit: u32,
}

impl LayeredEnd {
    /// A message came that the pre-shared key here does not fit.
    fn on_unfit(&mut self, has_form: bool) {
        self.traffic.unfit(has_form);
        self.unfit += u32::from(has_form);
        if self.unfit >= UNFIT && self.hindered.is_none() {
            self.hindered = Some(OTHER_SECRET);
            tracing::warn!("{OTHER_SECRET}");
        }
    }

    /// A message came that it fits.
    fn on_fit(&mut self) {
        self.unfit = 0;
        self.hindered.take_if(|why| *why == OTHER_SECRET);
    }
}

impl LayeredEnds {
    /// Ends of shard `index`.
    pub(in crate::server) fn new(
        tunnels: Arc<LayeredTunnels>,
        (shard, index): (Rc<Shard>, u8),
    ) -> Rc<Self> {
        Rc::new(Self {
            tunnels,
            shard,
            index,
            ends: RefCell::default(),
        })
    }

    /// Offers LES to a client that has connected, unless what it is sent has a highest rate: nobody would keep that.
    pub(in crate::server) fn offer(
        &self,
        id: ConnectionId,
        client: &Client,
        connection: &mut Connection,
    ) {
        if !client.is_paced() {
            let pre_shared = self.tunnels.psk.is_some();
            connection.tunnel.agreement_mut().offer_les(pre_shared);
            self.tunnels.on_client((self.index, id));
            self.ends.borrow_mut().insert(id, LayeredEnd::default());
        }
    }

    /// Outcome of both sides' offers; `None` if the tunnel is over.
    fn accord(&self, id: ConnectionId) -> Option<LesAccord> {
        let accord = |engine: &Engine| Some(engine.peek(id)?.tunnel.agreement().les());
        self.shard.peek(accord)
    }

    /// A client has greeted; returns why no association of it can begin, though it asks for LES.
    pub(in crate::server) fn on_ready(&self, id: ConnectionId) -> Option<&'static str> {
        let differs = self.accord(id) == Some(LesAccord::OtherKeys);
        let why = match (differs, self.tunnels.psk.is_some()) {
            (false, _) => return None,
            (true, true) => NO_KEY_THERE,
            (true, false) => NO_KEY_HERE,
        };
        let mut ends = self.ends.borrow_mut();
        ends.get_mut(&id)?.hindered = Some(why);
        Some(why)
    }

    /// True if LES was offered to the client of this tunnel.
    pub(in crate::server) fn has(&self, id: ConnectionId) -> bool {
        self.ends.borrow().contains_key(&id)
    }

    /// Takes a message of a client, which is skipped where both have not agreed on LES; returns packets that were faster.
    ///
    /// # Errors
    /// The client breaks the protocol: its tunnel is to be closed.
    pub(in crate::server) fn on_message(
        &self,
        id: ConnectionId,
        kind: LesKind,
        body: &LesBody,
    ) -> Result<Vec<Bytes>, Violation> {
        let mut ends = self.ends.borrow_mut();
        let agreed = self.accord(id) == Some(LesAccord::Agreed);
        let Some(end) = ends.get_mut(&id).filter(|_| agreed) else {
            return Ok(Vec::new());
        };
        let now = process::now();
        match kind {
            LesKind::Q1 => self.on_q1(id, end, body)?,
            LesKind::Q3 => end.responder.on_q3(now, body.as_ref())?,
            // The tunnel refuses that one, for it goes the other way.
            LesKind::Q2 => {}
        }
        self.take_steps(id, end);
        let held = self.listen(id, end);
        let open = |(from, bytes): (ReturnPath, Vec<u8>)| open(end, &from, &bytes);
        Ok(held.into_iter().filter_map(open).collect())
    }

    fn on_q1(
        &self,
        id: ConnectionId,
        end: &mut LayeredEnd,
        body: &LesBody,
    ) -> Result<(), Violation> {
        let proposal = Proposal::parse(body.as_ref())?;
        let material = self
            .shard
            .peek(|engine| material(engine.peek(id)?, proposal.count));
        match material {
            Some(material) => self.judge(end, &proposal, &material),
            None => Ok(()),
        }
    }

    /// Takes Q1 of a tunnel, or in a laboratory one that needs none.
    fn judge(
        &self,
        end: &mut LayeredEnd,
        proposal: &Proposal,
        material: &Material,
    ) -> Result<(), Violation> {
        // Each packet is judged by the client's rights.
        let prefixes = everywhere();
        let taken = |spi| self.tunnels.is_taken(spi);
        let peps = self.tunnels.accepted();
        let rules = Rules {
            prefixes: &prefixes,
            peps: &peps,
            taken: &taken,
            psk: self.tunnels.psk.is_some(),
        };
        let now = process::now();
        end.responder.on_q1(now, proposal, material, &rules)
    }

    /// Takes a message of a laboratory's client, and answers; true if `datagram` is one.
    fn on_datagram(&self, end: &mut LayeredEnd, from: &ReturnPath, datagram: &[u8]) -> bool {
        let Some(psk) = &self.tunnels.psk else {
            return false;
        };
        let Some(body) = psk.asked(datagram) else {
            if Psk::is_message(datagram) {
                end.on_unfit(Psk::has_form(LesKind::Q1, datagram));
                return true;
            }
            return false;
        };
        end.on_fit();
        if let Ok(proposal) = Proposal::parse(body) {
            let material = fresh(psk.exporter(proposal.count));
            if let Err(fault) = self.judge(end, &proposal, &material) {
                tracing::debug!("a message of LES is refused: {fault}");
            }
        }
        let mut answered = false;
        while let Some(step) = end.responder.poll_step() {
            if let Step::Send(_, answer) = step {
                // What is lost is asked for again.
                from.send(&psk.answer(answer.as_ref(), body));
                answered = true;
            }
        }
        if !answered {
            end.traffic.repeated();
        }
        true
    }

    fn take_steps(&self, id: ConnectionId, end: &mut LayeredEnd) {
        while let Some(step) = end.responder.poll_step() {
            match step {
                Step::Send(kind, body) => {
                    self.shard
                        .change(id, |connection| connection.tunnel.send_les(kind, body));
                }
                Step::Established(_) => end.traffic.begun(),
                // What is received is looked for afterwards; the rest is of the client.
                Step::Listen(_) | Step::Grant(..) | Step::Withdraw(_) | Step::Refused(_) => {}
            }
        }
    }

    /// Tells the door which names this tunnel receives by; returns packets that were faster.
    fn listen(&self, id: ConnectionId, end: &mut LayeredEnd) -> Vec<(ReturnPath, Vec<u8>)> {
        let receives: Vec<_> = end.responder.live().receives().collect();
        let before = std::mem::replace(&mut end.listens, receives);
        let gone = before.iter().filter(|spi| !end.listens.contains(spi));
        gone.for_each(|spi| self.tunnels.forget(*spi));
        let fresh = end.listens.iter().filter(|spi| !before.contains(spi));
        let (now, place) = (process::now(), (self.index, id));
        let held = fresh.flat_map(|spi| self.tunnels.listen(now, *spi, place));
        held.collect()
    }

    /// Opens packets; returns those of each tunnel.
    pub(in crate::server) fn open(
        &self,
        packets: impl Iterator<Item = LayeredPacket>,
    ) -> Vec<OpenedPackets> {
        let mut ends = self.ends.borrow_mut();
        let mut opened: Vec<OpenedPackets> = Vec::new();
        for LayeredPacket {
            tunnel,
            from,
            bytes,
        } in packets
        {
            let Some(end) = ends.get_mut(&tunnel) else {
                continue;
            };
            if self.on_datagram(end, &from, &bytes) {
                continue;
            }
            let Some(inner) = open(end, &from, &bytes) else {
                continue;
            };
            if self.tunnels.psk.is_some() {
                // An association of a laboratory stands from its first packet on.
                self.take_steps(tunnel, end);
            }
            match opened.iter_mut().find(|(id, _)| *id == tunnel) {
                Some((_, own)) => own.push(inner),
                None => opened.push((tunnel, vec![inner])),
            }
        }
        opened
    }

    /// Seals and sends a packet of the device, if it is TCP of an association that stands. False: it is to go through the
    /// tunnel.
    pub(in crate::server) fn send(&self, id: ConnectionId, packet: &[u8]) -> bool {
        let mut ends = self.ends.borrow_mut();
        let Some(end) = ends.get_mut(&id) else {
            return false;
        };
        // A PEP that relays a flow has to see both of its directions.
        let relayed = end.responder.has_peps();
        let is_open = |at: Instant| relayed || process::now() < at + WAY_BACK;
        let back = end.back.as_ref().filter(|(_, at)| is_open(*at));
        let Some((back, _)) = back.filter(|_| tcp(packet).is_some()) else {
            return false;
        };
        let mut out = BytesMut::new();
        match end.responder.live().seal(packet, &mut out) {
            Ok(()) => {}
            // In the tunnel it is sealed as well.
            Err(Unsent::NoAssociation | Unsent::Selector(_) | Unsent::Unwritten(_)) => {
                return false;
            }
        }
        match back.send(&out) {
            true => end.traffic.sent(out.len(), back.peer),
            // As on any link.
            false => end.traffic.without_room(),
        }
        true
    }

    /// Erases associations whose time has come; to be called every second.
    pub(in crate::server) fn tick(&self) {
        let now = process::now();
        for (&id, end) in self.ends.borrow_mut().iter_mut() {
            end.responder.handle_timeout(now);
            // UDP does not pass: what is for the client goes through the tunnel until its packets come again.
            let reliable = |engine: &Engine| Some(engine.peek(id)?.is_on_reliable_wire());
            if self.shard.peek(reliable) == Some(true) {
                end.back = None;
            }
            let held = self.listen(id, end);
            debug_assert!(held.is_empty(), "nothing begins by itself");
        }
    }

    /// The tunnel is over, and so are its associations.
    pub(in crate::server) fn forget(&self, id: ConnectionId) {
        let mut ends = self.ends.borrow_mut();
        if let Some(end) = ends.remove(&id) {
            end.listens.iter().for_each(|spi| self.tunnels.forget(*spi));
            let other = ends.keys().next().map(|other| (self.index, *other));
            self.tunnels.on_client_gone((self.index, id), other);
        }
    }

    /// Part of `status` about one client.
    pub(in crate::server) fn report(&self, id: ConnectionId) -> Option<status::Les> {
        let mut ends = self.ends.borrow_mut();
        let end = ends.get_mut(&id)?;
        let stands = end.responder.live().stands();
        Some(status::Les {
            laboratory: self.tunnels.psk.is_some(),
            reason: end.hindered.map(str::to_owned),
            ..end.traffic.report(stands)
        })
    }
}

/// Opens one packet, and notes the way back to the client; `None` if the packet is refused.
fn open(end: &mut LayeredEnd, from: &ReturnPath, bytes: &[u8]) -> Option<Bytes> {
    let mut inner = Vec::new();
    match end.responder.open(process::now(), bytes, &mut inner) {
        Ok(_) => {
            end.traffic.received(bytes.len(), from.peer);
            end.back = Some((from.clone(), process::now()));
            Some(inner.into())
        }
        Err(why) => {
            end.traffic.refused(&why);
            tracing::trace!("a packet of LES is refused: {why}");
            None
        }
    }
}

/// All addresses.
fn everywhere() -> [IpNet; 2] {
    [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ]
    .map(|address| IpNet::new_assert(address, 0))
}
