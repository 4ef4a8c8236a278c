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
pub(super) const SERVER_CID: usize = 8;

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

/// The shard that a short-header datagram is addressed to.
pub(crate) fn shard_of(datagram: &[u8]) -> Option<u8> {
    // Short header: form bit clear (RFC 9000 §17.3); the CID follows the first byte.
    (datagram.len() > SERVER_CID && datagram[0] & 0x80 == 0).then(|| datagram[1])
}
