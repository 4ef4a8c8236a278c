//! What a tunnel says about flows that are sealed beside it (`PROTOCOL.md` §18.1). Keys are the shell's business.

use bentpipe_proto::tunnel::{Control, EpochRandom, SleHello, capability};
use quinn_proto::Side;

use super::{Fault, Tunnel, TunnelEvent};

impl Tunnel {
    /// Client, before it is connected: it would seal flows, with these random bytes for epoch 0.
    pub fn ask_for_sle(&mut self, random: EpochRandom) {
        self.local.capabilities |= capability::SLE;
        self.local.sle = Some(SleHello::Random(random));
    }

    /// Server, before it greets: sealed flows may come to `port`, under the name `id` of this tunnel.
    pub fn offer_sle(&mut self, id: u32, port: u16) {
        self.local.capabilities |= capability::SLE;
        self.local.sle = Some(SleHello::Server { id, port });
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
            Some(SleHello::Server { id, port }) => Some((id, port)),
            _ => None,
        }
    }

    /// Client: asks for the next epoch; the server's answer is a [`TunnelEvent::SleEpoch`].
    pub fn begin_sle_epoch(&mut self, epoch: u16, random: EpochRandom) {
        self.outbox.send(&Control::SleEpoch {
            epoch,
            random: Some(random),
        });
    }

    /// Server: the epoch has begun here.
    pub fn confirm_sle_epoch(&mut self, epoch: u16) {
        self.outbox.send(&Control::SleEpoch {
            epoch,
            random: None,
        });
    }

    pub(super) fn on_sle_epoch(
        &mut self,
        epoch: u16,
        random: Option<EpochRandom>,
    ) -> Result<(), Fault> {
        let expected = random.is_some() == (self.side == Side::Server);
        if !expected || !self.has(capability::SLE) {
            return Err(Fault::Violation("an epoch of SLE out of place"));
        }
        self.events.push_back(TunnelEvent::SleEpoch(epoch, random));
        Ok(())
    }
}
