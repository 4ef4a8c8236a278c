//! Conduct of the server's side and of the path that a test asks for, beside carrying what comes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_congestion::Saved;
use bentpipe_proto::tunnel::EpochRandom;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::FlowKey;

/// Conduct of destinations towards flows, and what the server remembers and may find.
#[derive(Default)]
pub struct Behaviour {
    /// Destinations refuse, so long after OPEN.
    pub refuse_after: Option<Duration>,
    pub(super) refusals: Vec<(Instant, ConnectionId, FlowKey)>,
    /// Destinations answer once and then neither speak nor end.
    pub silent: bool,
    /// Destinations are the test's own: flows that the server has heard of, with the number in [`source`], gather here.
    ///
    /// [`source`]: super::source
    pub opened: Option<Vec<(ConnectionId, FlowKey, u64)>>,
    /// Flows of the server's whose relays are to look at them, where relays are the test's own.
    pub noticed: Option<Vec<(ConnectionId, FlowKey)>>,
    /// Paths to terminals as the server remembers them.
    pub known_paths: HashMap<SocketAddr, Saved>,
    /// Epochs of sealed flows that clients have begun, with their random bytes.
    pub sle_epochs: Vec<(u16, Option<EpochRandom>)>,
    /// A fault of a client's is what is looked for.
    pub expects_fault: bool,
}

/// Impairments of the path beyond those of the link's model.
#[derive(Default)]
pub struct Impairments {
    /// Every packet that comes over the forward link is marked "congestion experienced".
    pub mark_all: bool,
    /// Larger UDP payloads are lost without a word, bytes.
    pub largest: Option<usize>,
    /// Tunnels' datagrams are lost unless they travel by TCP.
    pub blocks_udp: bool,
}
