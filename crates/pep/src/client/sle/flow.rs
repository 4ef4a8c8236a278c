//! One sealed flow: what waits for the server's answer, then what relays.

use std::net::SocketAddr;
use std::rc::Rc;

use bentpipe_proto::tunnel::ReplyCode;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Sealing;
use super::outer::OuterTarget;
use crate::relay::{Outcome, SealedFlow};

/// A flow that is sealed beside the tunnel.
pub(crate) struct SleFlow {
    pub(super) flow: SealedFlow,
    /// Changes once all flows are to end.
    pub(super) cut: watch::Receiver<()>,
    /// The application has not sent FIN.
    pub(super) reading: bool,
    pub(super) sle: Rc<Sealing>,
    pub(super) target: OuterTarget,
}

impl SleFlow {
    /// Waits for the server's answer: the address that it connected from.
    ///
    /// # Errors
    /// Its code.
    pub(in super::super) async fn reply(&mut self) -> Result<Option<SocketAddr>, ReplyCode> {
        let reply = tokio::select! {
            reply = self.flow.reply() => reply,
            _ = self.cut.changed() => return Err(ReplyCode::Internal),
        };
        self.judge();
        reply.map(|reply| reply.bound)
    }

    /// Learns from an end without an answer.
    fn judge(&self) {
        if !self.flow.is_answered() && self.flow.is_broken() {
            self.sle.distrust(
                self.target,
                "a connection to the server ended before its answer",
            );
        }
    }

    /// Relays between the flow and its application until the flow is over; `on_first_byte` is told of the first answer.
    pub(in super::super) async fn run(
        mut self,
        lan: TcpStream,
        on_first_byte: Option<Box<dyn FnOnce()>>,
    ) -> Outcome {
        tokio::select! {
            outcome = self.flow.run(lan, self.reading, on_first_byte) => {
                self.judge();
                outcome
            }
            _ = self.cut.changed() => Outcome::TunnelLost,
        }
    }
}
