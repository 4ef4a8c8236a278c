//! A link whose other end is silent: asked, told to people, and said in `status`.

use std::net::SocketAddr;
use std::time::Instant;

use super::PeerLink;
use crate::events;
use crate::process;
use crate::segments::silence::{ASKED_EVERY, SilenceNews, TunnelSight};
use crate::status::{self, TunnelState};
use bentpipe_tunnel::engine::{Connection, ConnectionId};

impl PeerLink {
    /// Asks the other PEP for an answer where none has come lately, and tells the log when it is silent, and when no more. Returns
    /// the instant since which nothing is answered by one that is heard: what it was told since is unknown to it.
    pub(in crate::segments) fn attend(&self) -> Option<Instant> {
        let now = process::now();
        let id = self.tunnel()?;
        let (sight, address, own_fault) = self.shard.change(id, |connection| {
            connection.ask_for_answer(now, ASKED_EVERY);
            let (sight, address) = TunnelSight::of(connection);
            (sight, address, own_fault(connection))
        })?;
        let news = self.state.borrow_mut().silence.look(now, sight)?;
        match news {
            SilenceNews::Begun(heard) => {
                let reason = own_fault.unwrap_or_else(|| silent(address, heard));
                tracing::warn!(target: events::STATE, "the other PEP does not answer, new flows pass untouched: {reason}");
                sight
                    .unanswered
                    .filter(|_| heard)
                    .map(|since| since.checked_sub(sight.rtt).unwrap_or(since))
            }
            SilenceNews::Over(lasted) => {
                tracing::info!(target: events::STATE, "the other PEP answers again after {} s", lasted.as_secs());
                None
            }
        }
    }

    /// Says in `tunnel`, of the connection `id`, whether the other end is silent, and how; people were `told` so from then on.
    pub(super) fn report_silence(
        &self,
        tunnel: &mut status::Tunnel,
        id: ConnectionId,
        told: Option<Instant>,
    ) {
        let sight = self.shard.peek(|engine| {
            engine
                .peek(id)
                .map(|it| (TunnelSight::of(it), own_fault(it)))
        });
        let Some(((sight, address), own_fault)) = sight else {
            return;
        };
        if let Some(since) = told {
            tunnel.state = TunnelState::Silent;
            tunnel.since_s = process::now().saturating_duration_since(since).as_secs();
        }
        if tunnel.state == TunnelState::Silent {
            let heard = sight.is_heard(process::now());
            tunnel.last_error = own_fault.or_else(|| Some(silent(address, heard)));
        }
    }
}

/// Fault of this machine for which nothing leaves that `connection` sends.
fn own_fault(connection: &Connection) -> Option<String> {
    connection.unsent()?.own_fault()
}

/// Reason for the silence of a PEP at `address`, which is `heard` or not.
fn silent(address: SocketAddr, heard: bool) -> String {
    match heard {
        true => format!(
            "it is heard, and nothing that is sent to it is answered: UDP from here to {address} is dropped on the way"
        ),
        false => format!(
            "nothing is heard from {address}: the link is down, UDP is dropped on the way, or the other PEP does not run"
        ),
    }
}
