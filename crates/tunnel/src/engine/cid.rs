//! Connection IDs that name the shard: a datagram can be handed to the thread that owns it.
//!
//! Server: 8 bytes, the first names the shard, the rest is random (room for QUIC-LB's encoding
//! later). Client: 4 bytes, random; with none it could not tell two connections to one server apart, and it has several
//! while it tries and while a server drains. Not a secret and not authenticated.

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::profile::HINTS;

/// Length of a server's connection IDs, in bytes.
pub const SERVER_CID: usize = 8;

/// Length that no connection ID of version 1 exceeds.
const MAX_CID: usize = 20;

/// Length of a client's: as short as it can be and never repeat, for every packet of the forward link carries one, and a
/// stateless reset is believed by it.
const CLIENT_CID: usize = 4;

/// Generator for one endpoint; `None` as shard means a client.
pub(super) struct ShardCids {
    shard: Option<u8>,
    /// Set in simulations only: the random part then repeats from run to run.
    rng: Option<Pcg64Mcg>,
}

impl ShardCids {
    pub(super) fn new(shard: Option<u8>, seed: Option<[u8; 32]>) -> Self {
        let rng = seed.map(|seed| {
            let mut first = [0; 8];
            first.copy_from_slice(&seed[..8]);
            Pcg64Mcg::seed_from_u64(u64::from_le_bytes(first))
        });
        Self { shard, rng }
    }
}

impl ConnectionIdGenerator for ShardCids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; SERVER_CID];
        fill(&mut self.rng, &mut bytes);
        if let Some(shard) = self.shard {
            bytes[0] = shard;
        }
        ConnectionId::new(&bytes[..self.cid_len()])
    }

    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        if cid.len() == self.cid_len() {
            Ok(())
        } else {
            Err(InvalidCid)
        }
    }

    fn cid_len(&self) -> usize {
        match self.shard {
            Some(_) => SERVER_CID,
            None => CLIENT_CID,
        }
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

fn fill(rng: &mut Option<Pcg64Mcg>, bytes: &mut [u8]) {
    match rng {
        Some(rng) => rng.fill_bytes(bytes),
        None => super::random(bytes),
    }
}

/// Length of the client's first destination connection ID: the hints, and what RFC 9000 §7.2 wants to be unpredictable.
/// Shorter ones give no hints.
pub(super) const INITIAL_CID: usize = HINTS + 8;

/// The client's first destination CID: the hints at the link, then random bytes.
pub(super) fn initial_cid(hints: [u8; HINTS]) -> ConnectionId {
    let mut bytes = [0; INITIAL_CID];
    super::random(&mut bytes);
    bytes[..HINTS].copy_from_slice(&hints);
    ConnectionId::new(&bytes)
}

/// Addressee of a datagram, as far as its head tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressee {
    /// A connection of this shard, if of any.
    Shard(u8),
    /// A handshake of this shard, if such an ID is one of ours; a client may have made it up.
    Named(u8, ConnectionId),
    /// A connection that it would begin: a client has made the ID up.
    New(ConnectionId),
    /// Whoever gets it.
    Nobody,
}

/// Reads the head of a datagram (RFC 9000 §17). Of version 1 only: others are answered by whoever gets them.
pub fn addressee(datagram: &[u8]) -> Addressee {
    match *datagram {
        // Short header: form bit clear; the CID follows the first byte.
        [first, shard, ..] if first & 0x80 == 0 && datagram.len() > SERVER_CID => {
            Addressee::Shard(shard)
        }
        [first, 0, 0, 0, 1, length, ref rest @ ..] if first & 0x80 != 0 => {
            let Some(id) = rest.get(..length.into()).filter(|id| id.len() <= MAX_CID) else {
                return Addressee::Nobody;
            };
            match id {
                [shard, ..] if id.len() == SERVER_CID => {
                    Addressee::Named(*shard, ConnectionId::new(id))
                }
                _ if first & 0xf0 == 0xc0 => Addressee::New(ConnectionId::new(id)),
                _ => Addressee::Nobody,
            }
        }
        _ => Addressee::Nobody,
    }
}
