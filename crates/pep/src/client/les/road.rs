//! Ways of a client's packets of LES from one tunnel to the next: what its server has, associations that begin with it, and PEPs
//! that come and go.
//!
//! ```text
//!   on_connected: Q1 behind the own HELLO ─┬► early ─ on_ready: the server's HELLO ─► road: Agreed, OtherKeys, Lacking
//!                                          │    ▲                                      │ on_lost
//!                                          │ Q2 ╯                                      ╰──► NoTunnel
//!                                          ╰ goes_ahead: what the server said the last time ─► road: Agreed
//! ```

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use bentpipe_proto::tunnel::{LesBody, LesKind};
use bentpipe_sealed::les::sa::{AnswerCode, Handshake, Initiator, PepKey, Step, Violation};
use ipnet::IpNet;

use super::super::connections::Attempt;
use super::Layering;
use crate::config::LesPep;
use crate::process::{self, RunError};
use bentpipe_tunnel::engine::{Connection, ConnectionId};
use bentpipe_tunnel::transport::LesAccord;

/// Way of the packets just now.
pub(super) enum LesRoad {
    /// No tunnel is up: packets are dropped.
    NoTunnel,
    /// The server of the last tunnel has no LES: its connections go through the tunnel.
    Lacking,
    /// One end has a pre-shared key and the other none: packets are dropped until that is mended.
    OtherKeys,
    /// The server has LES.
    Agreed(Box<LesAgreement>),
}

/// Associations of one tunnel.
pub(super) struct LesAgreement {
    pub(super) tunnel: ConnectionId,
    /// Number of the server among those of the configuration.
    pub(super) number: usize,
    /// Address of the server for packets.
    pub(super) server: SocketAddr,
    pub(super) initiator: Initiator,
    /// Reason of the last refusal, while no association stands.
    pub(super) refused: Option<AnswerCode>,
}

impl LesRoad {
    /// False if TCP of the prefixes is to go through the tunnel.
    pub(super) fn leads(&self) -> bool {
        !matches!(self, Self::Lacking)
    }
}

impl Layering {
    fn agreement(&self, attempt: &Attempt) -> LesAgreement {
        LesAgreement {
            tunnel: attempt.id,
            number: attempt.server,
            server: self.reachable((attempt.address.ip(), self.config.port).into()),
            initiator: Initiator::new(self.plan(attempt)),
            refused: None,
        }
    }

    /// Addresses that the device begins with: packets may leave from them before the greeting.
    pub(in crate::client) fn assigned_before(&self) -> Vec<IpNet> {
        match self.config.handshake {
            Handshake::Short => self.greetings.assigned(),
            Handshake::Paper | Handshake::Psk => Vec::new(),
        }
    }

    /// True if packets may leave by `agreed` before the server's greeting, from the device's addresses `own`.
    fn goes_ahead(&self, agreed: &LesAgreement, own: &[IpNet]) -> bool {
        let plan = agreed.initiator.plan();
        // A connection whose beginning a PEP cannot read goes past it to its end.
        let legible = plan.peps.iter().all(|pep| plan.accepted.contains(pep));
        let over_udp = |connection: &Connection| (!connection.is_on_reliable_wire()).then_some(());
        plan.handshake == Handshake::Short
            && legible
            && self.greetings.permit(agreed.number, own)
            && matches!(&*self.road.borrow(), LesRoad::NoTunnel)
            && self.tunnels.look_at(agreed.tunnel, over_udp).is_some()
    }

    /// The handshake of an attempt is complete: Q1 goes with its last message, behind HELLO. A server without LES skips it. `own`
    /// are the device's addresses.
    pub(in crate::client) fn on_connected(&self, attempt: &Attempt, own: &[IpNet]) {
        // A laboratory's server hears nobody whose HELLO is behind.
        if self.config.handshake == Handshake::Psk {
            return;
        }
        let mut early = self.early.borrow_mut();
        early.retain(|agreed| self.tunnels.look_at(agreed.tunnel, |_| Some(())).is_some());
        let mut agreed = self.agreement(attempt);
        if self.goes_ahead(&agreed, own) {
            self.greetings.on_ahead();
            self.advance(&mut agreed);
            self.road.replace(LesRoad::Agreed(Box::new(agreed)));
            return;
        }
        let Some(inputs) = self.inputs(&agreed) else {
            return;
        };
        agreed.initiator.begin(process::now(), inputs);
        // Q1 is the first; the others wait until the tunnel is taken.
        if let Some(Step::Send(kind, body)) = agreed.initiator.poll_step() {
            self.send_message(&agreed, kind, body);
        }
        early.push(agreed);
    }

    /// The tunnel is the one of this attempt from now on.
    pub(in crate::client) fn on_ready(&self, attempt: &Attempt) {
        self.unheard.take();
        self.peps.reopen();
        let accord = |connection: &Connection| Some(connection.tunnel.agreement().les());
        let accord = self.tunnels.look_at(attempt.id, accord);
        let accord = accord.unwrap_or(LesAccord::Lacking);
        let assigned = self.tunnels.assigned();
        let assigned = assigned.filter(|_| accord == LesAccord::Agreed);
        let assigned = assigned.into_iter().flatten().map(IpNet::from).collect();
        self.greetings.on_greeting(attempt.server, assigned);
        let early = self.early.take().into_iter().map(Box::new);
        let ahead = match self.road.replace(LesRoad::NoTunnel) {
            LesRoad::Agreed(agreed) => Some(agreed),
            LesRoad::NoTunnel | LesRoad::OtherKeys | LesRoad::Lacking => None,
        };
        let asked = early.chain(ahead).find(|own| own.tunnel == attempt.id);
        let road = match accord {
            LesAccord::Lacking => LesRoad::Lacking,
            LesAccord::OtherKeys => LesRoad::OtherKeys,
            LesAccord::Agreed => {
                LesRoad::Agreed(asked.unwrap_or_else(|| Box::new(self.agreement(attempt))))
            }
        };
        self.road.replace(road);
        if self.told.replace(accord) != accord {
            self.tell(accord);
        }
        self.tick();
    }

    fn tell(&self, accord: LesAccord) {
        match accord {
            LesAccord::Lacking => tracing::warn!(
                "the server has no LES: TCP of its `destinations` goes through the tunnel; give its configuration `[les]`, and this client no `max_rate` there"
            ),
            LesAccord::OtherKeys => tracing::warn!("{}", self.other_keys()),
            LesAccord::Agreed => {}
        }
    }

    /// Line for the log and `status` about a server whose associations have other keys.
    pub(super) fn other_keys(&self) -> String {
        let flow = match self.config.handshake {
            Handshake::Short => "short",
            Handshake::Paper => "paper",
            Handshake::Psk => {
                return "LES carries nothing: `flow` of [les] is \"psk\" here, and the server takes \"short\" and \"paper\" alone, for its [les] has no \
                        [les.laboratory]; remove `flow` and [les.laboratory] here, or add [les.laboratory] with the same key there"
                    .to_owned();
            }
        };
        format!(
            "LES carries nothing: `flow` of [les] is \"{flow}\" here, and the server takes \"psk\" alone, for it has [les.laboratory]; \
             remove that table there, or set `flow = \"psk\"` with [les.laboratory] and the same key here"
        )
    }

    /// An attempt has failed: what has gone ahead by it ends.
    pub(in crate::client) fn on_failed(&self, attempt: &Attempt) {
        let mut road = self.road.borrow_mut();
        if matches!(&*road, LesRoad::Agreed(agreed) if agreed.tunnel == attempt.id) {
            *road = LesRoad::NoTunnel;
        }
    }

    /// Ends the associations of the tunnel, which has ended. PEPs keep what they have until the next stands, or
    /// its time is over: what they relay goes on then.
    pub(in crate::client) fn on_lost(&self) {
        let mut road = self.road.borrow_mut();
        if let LesRoad::Agreed(_) | LesRoad::OtherKeys = *road {
            *road = LesRoad::NoTunnel;
        }
    }

    /// Takes a message of the server. An error says why the tunnel is to be closed.
    pub(in crate::client) fn on_message(
        &self,
        tunnel: ConnectionId,
        kind: LesKind,
        body: &LesBody,
    ) -> Result<(), Violation> {
        // Another message is refused by the tunnel, for it goes the other way.
        if kind != LesKind::Q2 {
            return Ok(());
        }
        let now = process::now();
        let mut early = self.early.borrow_mut();
        if let Some(own) = early.iter_mut().find(|own| own.tunnel == tunnel) {
            return own.initiator.on_q2(now, body.as_ref());
        }
        drop(early);
        let mut road = self.road.borrow_mut();
        if let LesRoad::Agreed(agreed) = &mut *road
            && agreed.tunnel == tunnel
        {
            agreed.initiator.on_q2(now, body.as_ref())?;
            self.advance(agreed);
        }
        Ok(())
    }

    /// The client stops, or carries nothing until its next tunnel: its PEPs erase what they have.
    pub(in crate::client) fn close(&self) {
        self.on_lost();
        self.peps.close();
    }

    /// Keeps the connections to PEPs; never ends but with an error.
    pub(in crate::client) async fn keep_peps(&self) -> io::Result<()> {
        self.peps.tick();
        self.peps.look_up();
        self.peps.keep(|pep| self.introduce(pep)).await
    }

    /// A PEP has connected: it has K2 of the associations that stand.
    fn introduce(&self, pep: PepKey) {
        if let LesRoad::Agreed(agreed) = &mut *self.road.borrow_mut() {
            agreed.initiator.introduce(pep);
            self.advance(agreed);
        }
    }

    /// Takes over the PEPs of a configuration that was read again; says what has changed.
    ///
    /// # Errors
    /// The key that PEPs know this client by cannot be used.
    pub(in crate::client) fn reload(&self, fresh: &[LesPep]) -> Result<Option<String>, RunError> {
        let (gone, new) = self.peps.changes(fresh);
        if gone.is_empty() && new.is_empty() {
            return Ok(None);
        }
        let said = format!("+{} -{} PEPs", new.len(), gone.len());
        let key = |pep: &LesPep| PepKey(pep.public_key.to_bytes());
        if !gone.is_empty() {
            // Others have relayed together with it, and it may be dead: they reset that, and get the keys of the next association.
            self.peps.end_all_but(&BTreeSet::new());
        }
        let mut road = self.road.borrow_mut();
        if let LesRoad::Agreed(agreed) = &mut *road {
            // First: nothing more is sealed under keys that one has who is to go.
            gone.iter()
                .for_each(|pep| agreed.initiator.revoke(process::now(), key(pep)));
        }
        // What attempts have asked for is given up with it; their next association is due when one is the tunnel.
        for own in self.early.borrow_mut().iter_mut() {
            gone.iter()
                .for_each(|pep| own.initiator.revoke(process::now(), key(pep)));
            new.iter().for_each(|pep| own.initiator.admit(key(pep)));
        }
        gone.iter().for_each(|pep| self.peps.revoke(key(pep)));
        let keys: Vec<_> = new.iter().map(key).collect();
        self.peps.admit(new)?;
        if let LesRoad::Agreed(agreed) = &mut *road {
            keys.into_iter().for_each(|pep| agreed.initiator.admit(pep));
            self.advance(agreed);
        }
        Ok(Some(said))
    }
}
