//! From shard to shard: the kernel spreads datagrams by address, connections live where their ID says.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;
use tokio::sync::mpsc;

use super::cid::shard_of;

/// Datagrams that may wait for another shard before they are dropped.
const HANDOVER_QUEUE: usize = 1024;

/// A UDP datagram from the network.
#[derive(Debug)]
pub struct Arrival {
    /// When the kernel had it: earlier than it is read.
    pub at: Instant,
    /// Who sent it.
    pub remote: SocketAddr,
    /// The address it was sent to, where that is known.
    pub local: Option<IpAddr>,
    /// The ECN field of its IP header.
    pub ecn: Option<EcnCodepoint>,
    /// Its payload.
    pub data: BytesMut,
}

/// The shards of a process, as seen by one of them.
pub struct Neighbours {
    own: u8,
    pub(super) inbox: mpsc::Receiver<Arrival>,
    outboxes: Vec<mpsc::Sender<Arrival>>,
}

impl Neighbours {
    /// Channels between `count` shards, at most 256: a connection ID names a shard with one byte.
    pub fn connect(count: usize) -> Vec<Self> {
        let (outboxes, inboxes): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mpsc::channel(HANDOVER_QUEUE)).unzip();
        let numbered = (0..=u8::MAX).zip(inboxes);
        numbered
            .map(|(own, inbox)| Self {
                own,
                inbox,
                outboxes: outboxes.clone(),
            })
            .collect()
    }

    /// Hands a datagram over if it belongs elsewhere; gives it back otherwise.
    pub(super) fn route(&self, datagram: Arrival) -> Option<Arrival> {
        let owner = shard_of(&datagram.data).map(|shard| usize::from(shard) % self.outboxes.len());
        match owner {
            // A restarted server may have fewer shards: the CID then names one that answers with a
            // stateless reset.
            Some(shard) if shard != usize::from(self.own) => {
                // Full: dropped, as the network would.
                let _ = self.outboxes[shard].try_send(datagram);
                None
            }
            _ => Some(datagram),
        }
    }
}
