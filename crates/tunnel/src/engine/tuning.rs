//! quinn's knobs, set once when a connection begins; every value says for which link and at what cost.
//!
//! Windows here are the outer safety net only: flows are held back by the tunnel's own credit and by
//! the controller (`connection.rs`).

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt,
};

use super::cid::ShardCids;
use super::gate::Gate;
use super::profile::Path;

/// UDP payload of a 1500-byte IPv4 packet; IPv6 headers are 20 bytes longer.
const MTU_IPV4: u16 = 1472;
const MTU_IPV6: u16 = 1452;

/// DATAGRAM frames are read as they come; this is what quinn may hold until then.
const DATAGRAMS: usize = 128 * 1024;

/// Bytes of DATAGRAM frames that quinn may hold to send; it is never handed more than a batch.
const DATAGRAMS_OUT: usize = 256 * 1024;

/// Bytes that quinn says that it has room for when it holds none: it keeps what one frame more takes.
pub(super) const DATAGRAM_BUFFER: usize = DATAGRAMS_OUT - size_of::<bytes::Bytes>();

/// UDP payload of a full packet on such a path.
pub(super) const fn mtu(ipv6: bool) -> u16 {
    if ipv6 { MTU_IPV6 } else { MTU_IPV4 }
}

/// `streams`: streams that the peer may hold open until its key is known; quinn reserves some bytes for each.
pub(super) fn transport(path: Path, gate: Gate, streams: u32) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    // The peer answers when more than the threshold have come. With a reordering threshold of 0 a hole does not call for
    // an ACK of its own (loss would undo the thinning).
    acks.ack_eliciting_threshold(VarInt::from_u32(u32::from(
        path.asks.packets.saturating_sub(1),
    )))
    .max_ack_delay(Some(path.asks.delay))
    .reordering_threshold(VarInt::from_u32(0));
    let mut discovery = MtuDiscoveryConfig::default();
    // A coarse last step: three probes of one RTT each reach 1500-byte packets.
    discovery.upper_bound(mtu(path.ipv6)).minimum_change(40);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(1 << 30))
        .receive_window(VarInt::MAX)
        .send_window(1 << 40)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(600_000))))
        // Below the 30 s after which many NATs forget a UDP flow.
        .keep_alive_interval(Some(Duration::from_secs(25)))
        .initial_rtt(path.link.initial_rtt())
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acks))
        // Without it, a stream that quinn has begun goes on to its end before control frames and short flows.
        .send_fairness(true)
        .datagram_receive_buffer_size(Some(DATAGRAMS))
        .datagram_send_buffer_size(DATAGRAMS_OUT)
        .allow_spin(false)
        .congestion_controller_factory(Arc::new(gate));
    config
}

/// Pause between two stateless resets of a shard. A restarted server owes one to each client that asks after its tunnel: at
/// quinn's 20 ms a thousand clients waited for up to three minutes. A reset is smaller than what brought it about.
const RESET_INTERVAL: Duration = Duration::from_micros(500);

/// `reset_key` makes a restarted server's stateless resets valid; `seed` makes a simulation repeat.
pub(crate) fn endpoint(
    reset_key: Arc<dyn quinn_proto::crypto::HmacKey>,
    shard: Option<u8>,
    seed: Option<[u8; 32]>,
) -> EndpointConfig {
    let mut config = EndpointConfig::new(reset_key);
    config
        .grease_quic_bit(false)
        .rng_seed(seed)
        .min_reset_interval(RESET_INTERVAL);
    config.cid_generator(move || Box::new(ShardCids::new(shard, seed)));
    config
}
