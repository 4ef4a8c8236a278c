//! Agreement of the two ends of a tunnel: both HELLOs (`PROTOCOL.md` §5), and what follows from them.

use std::net::IpAddr;

use bentpipe_proto::tunnel::{
    EpochRandom, Families, Forward, Hello, LesKind, PacketKinds, SleHello, VERSION, capability,
};
use ipnet::IpNet;
use quinn_proto::Side;

use super::super::event::Fault;

/// Outcome of what both ends of a tunnel have offered of LES (`PROTOCOL.md` §20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LesAccord {
    /// One end at least has no LES.
    Lacking,
    /// One end has a pre-shared key, and the other has none: no association can begin.
    OtherKeys,
    /// Associations may begin.
    #[default]
    Agreed,
}

/// HELLO of this side, and the peer's once it has come.
pub struct Agreement {
    side: Side,
    local: Hello,
    remote: Option<Hello>,
    /// The server's HELLO has been said.
    greeted: bool,
}

impl Agreement {
    /// An agreement to which `side` brings `local`.
    pub(super) fn new(side: Side, mut local: Hello) -> Self {
        local.capabilities |= capability::ACKS;
        Self {
            side,
            local,
            remote: None,
            greeted: false,
        }
    }

    /// HELLO of this side.
    pub fn local(&self) -> &Hello {
        &self.local
    }

    /// The peer's HELLO, once it came.
    pub fn remote(&self) -> Option<&Hello> {
        self.remote.as_ref()
    }

    /// Both sides understand what this bit of the capabilities stands for.
    pub(in crate::transport) fn has(&self, bit: u64) -> bool {
        let theirs = self.remote.as_ref().map_or(0, |hello| hello.capabilities);
        self.local.capabilities & theirs & bit != 0
    }

    /// True if packets may cross: both ends said that they take them.
    pub fn carries_packets(&self) -> bool {
        self.has(capability::PACKETS)
    }

    /// True if both sides know pages (`PROTOCOL.md` §19).
    pub fn carries_pages(&self) -> bool {
        self.has(capability::PAGES)
    }

    /// True if both sides know pages over TLS that the client has ended (`PROTOCOL.md` §19.5).
    pub fn carries_trusted(&self) -> bool {
        self.has(capability::PAGES) && self.has(capability::TRUSTED)
    }

    /// True if both sides know hubs of DSSL (`PROTOCOL.md` §21).
    pub fn carries_dssl(&self) -> bool {
        self.has(capability::DSSL)
    }

    /// True if both sides relay segments of TCP connections (`PROTOCOL.md` §20.9).
    pub fn carries_segments(&self) -> bool {
        self.has(capability::SEGMENTS)
    }

    /// True if the peer may open streams of segments here (`PROTOCOL.md` §20.9). Its HELLO may come behind them.
    pub(in crate::transport) fn accepts_segments(&self) -> bool {
        let known = |hello: &Hello| hello.capabilities & capability::SEGMENTS != 0;
        known(&self.local) && self.remote.as_ref().is_none_or(known)
    }

    /// True if both sides know of published ports (`PROTOCOL.md` §15).
    pub fn publishes(&self) -> bool {
        self.has(capability::PUBLISH)
    }

    /// True if the peer heeds ACKS (`PROTOCOL.md` §5.7).
    pub(crate) fn heeds_ack_wishes(&self) -> bool {
        self.has(capability::ACKS)
    }

    /// Server, before it greets: how packets cross for this client. Without addresses they do not.
    pub fn set_packets(&mut self, assigned: Vec<IpAddr>, routed: Vec<IpNet>, carried: PacketKinds) {
        self.local.capabilities &= !capability::PACKETS;
        if !assigned.is_empty() {
            self.local.capabilities |= capability::PACKETS;
        }
        (self.local.assigned, self.local.routed) = (assigned, routed);
        self.local.carried = carried;
    }

    /// Client, before it is connected: it would seal flows, with these random bytes for epoch 0.
    pub fn ask_for_sle(&mut self, random: EpochRandom) {
        self.local.capabilities |= capability::SLE;
        self.local.sle = Some(SleHello::Random(random));
    }

    /// Server, before it greets: sealed flows may come to `port`, unless that is 0, and to addresses of `prefixes`, under the
    /// name `id` of this tunnel.
    pub fn offer_sle(&mut self, id: u32, port: u16, prefixes: &[IpNet]) {
        self.local.capabilities |= capability::SLE;
        let prefixes = prefixes.to_vec();
        self.local.sle = Some(SleHello::Server { id, port, prefixes });
    }

    /// Random bytes of epoch 0, once both sides have said HELLO: to be asked for once, for they are not kept.
    pub fn take_sle_random(&mut self) -> Option<EpochRandom> {
        if !self.has(capability::SLE) {
            return None;
        }
        let hello = match self.side {
            Side::Client => Some(&mut self.local),
            Side::Server => self.remote.as_mut(),
        };
        match hello?.sle.take()? {
            SleHello::Random(random) => Some(random),
            SleHello::Server { .. } => None,
        }
    }

    /// Client: name that the server has given to the tunnel, and its port for sealed flows.
    pub fn sle_offered(&self) -> Option<(u32, u16)> {
        if self.side == Side::Server || !self.has(capability::SLE) {
            return None;
        }
        match self.remote.as_ref()?.sle {
            Some(SleHello::Server { id, port, .. }) => Some((id, port)),
            _ => None,
        }
    }

    /// Client: prefixes to whose addresses sealed flows may go, because the server takes them in on the way.
    pub fn sle_prefixes(&self) -> &[IpNet] {
        match self.remote.as_ref().and_then(|remote| remote.sle.as_ref()) {
            Some(SleHello::Server { prefixes, .. }) => prefixes,
            _ => &[],
        }
    }

    /// True if both sides know sealed flows.
    pub(super) fn seals_flows(&self) -> bool {
        self.has(capability::SLE)
    }

    /// Either side, before it greets: it begins or accepts associations of LES, with a `pre_shared` key or without.
    pub fn offer_les(&mut self, pre_shared: bool) {
        self.local.capabilities |= capability::LES;
        if pre_shared {
            self.local.capabilities |= capability::LES_PRE_SHARED;
        }
    }

    /// Outcome of both sides' offers of LES, once the peer's HELLO has come.
    pub fn les(&self) -> LesAccord {
        if !self.has(capability::LES) {
            return LesAccord::Lacking;
        }
        let theirs = self.remote.as_ref().map_or(0, |hello| hello.capabilities);
        let differs = (self.local.capabilities ^ theirs) & capability::LES_PRE_SHARED;
        match differs {
            0 => LesAccord::Agreed,
            _ => LesAccord::OtherKeys,
        }
    }

    /// Takes the peer's HELLO.
    pub(super) fn on_hello(&mut self, hello: Hello) -> Result<(), Fault> {
        if self.remote.is_some() {
            return Err(Fault::Violation("a second HELLO"));
        }
        // A client names the highest version it speaks, a server the one it has chosen.
        if hello.version < VERSION || (self.side == Side::Client && hello.version > VERSION) {
            return Err(Fault::Version(hello.version));
        }
        self.remote = Some(hello);
        Ok(())
    }

    /// Server: its HELLO, which grants the client `forward`.
    pub(super) fn greet(&mut self, forward: Forward) -> Hello {
        self.greeted = true;
        Hello {
            forward,
            ..self.local.clone()
        }
    }

    /// Server: reaches these address families from now on. True if the client, which has been greeted, is to be told.
    pub(super) fn set_families(&mut self, families: Families) -> bool {
        let before = std::mem::replace(&mut self.local.families, families);
        self.greeted && before != families
    }

    /// Client: the server reaches other address families than its HELLO has said. True if they are others than before.
    pub(super) fn on_families(&mut self, families: Families) -> bool {
        let remote = self.remote.as_mut().filter(|_| self.side == Side::Client);
        remote.is_some_and(|remote| std::mem::replace(&mut remote.families, families) != families)
    }

    /// Takes notice that the peer names `epoch` of sealed flows; a client's frame has random bytes.
    pub(super) fn on_sle_epoch(&mut self, epoch: u16, from_client: bool) -> Result<(), Fault> {
        if from_client != (self.side == Side::Server) || !self.seals_flows() {
            return Err(Fault::Violation("an epoch of SLE out of place"));
        }
        if let Some(remote) = self.remote.as_mut()
            && self.side == Side::Client
            && epoch == u16::MAX
        {
            // Who installs the tunnel later finds no offer either.
            remote.sle = None;
        }
        Ok(())
    }

    /// Refuses a message of LES that the peer may not send. A client's come before it can know what the server has, and even
    /// before the server has decided what it offers: who takes them skips what was not agreed on.
    pub(super) fn on_les(&self, kind: LesKind) -> Result<(), Fault> {
        let expected = match self.side {
            Side::Client => kind == LesKind::Q2 && self.les() == LesAccord::Agreed,
            Side::Server => kind != LesKind::Q2,
        };
        let out_of_place = Fault::Violation("a message of LES out of place");
        expected.then_some(()).ok_or(out_of_place)
    }
}
