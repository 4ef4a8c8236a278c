//! quinn's knobs, set once per link profile; every value says for which link and at what cost.
//!
//! Windows here are the outer safety net only: flows are held back by the tunnel's own credit and by
//! the controller (`connection.rs`).

use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::congestion::{Config, Kind as ControllerKind};
use bentpipe_units::BitRate;
use quinn_proto::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt,
};
use serde::Deserialize;

use super::cid::ShardCids;
use super::gate::Gate;

/// UDP payload of a 1500-byte IPv4 packet; IPv6 headers are 20 bytes longer.
const MTU_IPV4: u16 = 1472;
const MTU_IPV6: u16 = 1452;

/// Kind of link, which decides timers before anything was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Geostationary: 500 ms and more.
    Geo,
    /// Low orbit: tens of milliseconds.
    Leo,
    /// Low orbit with a new satellite every 15 s.
    Starlink,
    /// Not known: start as for a geostationary link, let measurements decide.
    #[default]
    Auto,
}

impl Profile {
    /// RTT assumed until the first sample: below the true one the first flight is sent twice.
    pub fn initial_rtt(self) -> Duration {
        match self {
            Self::Geo | Self::Auto => Duration::from_millis(700),
            Self::Leo | Self::Starlink => Duration::from_millis(120),
        }
    }

    /// RTT/8: eight ACKs per round keep a 0.5 Mbit/s return link free (measured 16 kbit/s at
    /// 250 Mbit/s) and still clock the window.
    pub fn max_ack_delay(self) -> Duration {
        match self {
            Self::Geo => Duration::from_millis(70),
            Self::Leo | Self::Starlink | Self::Auto => Duration::from_millis(10),
        }
    }

    /// First window in packets. Paced over a round trip, so a GEO link can take many at once.
    fn initial_window(self) -> u64 {
        match self {
            Self::Geo | Self::Auto => 64,
            Self::Leo | Self::Starlink => 32,
        }
    }

    /// The byte that hints at the profile in the client's first destination CID.
    pub fn hint(self) -> u8 {
        match self {
            Self::Auto => 0,
            Self::Geo => 1,
            Self::Leo => 2,
            Self::Starlink => 3,
        }
    }

    /// The profile hinted at; anything unknown is treated as a long link.
    pub fn from_hint(hint: u8) -> Self {
        match hint {
            1 => Self::Geo,
            2 => Self::Leo,
            3 => Self::Starlink,
            _ => Self::Auto,
        }
    }
}

/// What the operator may set for one direction of a tunnel.
#[derive(Debug, Clone, Copy)]
pub struct Wishes {
    /// Congestion controller.
    pub controller: ControllerKind,
    /// First window in packets.
    pub initial_window: Option<u64>,
    /// Never send faster.
    pub max_rate: Option<BitRate>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            controller: ControllerKind::Cubic,
            initial_window: None,
            max_rate: None,
        }
    }
}

pub(super) fn controller_config(profile: Profile, wishes: Wishes) -> Config {
    let mtu = 1200;
    let packets = wishes
        .initial_window
        .unwrap_or_else(|| profile.initial_window());
    Config {
        initial_window: packets * u64::from(MTU_IPV4),
        mtu,
        initial_rtt: profile.initial_rtt(),
        max_rate: wishes.max_rate,
    }
}

/// `flows`: streams that the peer may hold open at once; quinn reserves some bytes for each.
pub(super) fn transport(profile: Profile, gate: Gate, ipv6: bool, flows: u32) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    // 200 packets stays below 64 ACK ranges up to 8 % loss; with a reordering threshold of 0 a hole
    // does not call for an ACK of its own (loss would undo the thinning).
    acks.ack_eliciting_threshold(VarInt::from_u32(200))
        .max_ack_delay(Some(profile.max_ack_delay()))
        .reordering_threshold(VarInt::from_u32(0));
    let mut mtu = MtuDiscoveryConfig::default();
    // A coarse last step: three probes of one RTT each reach 1500-byte packets.
    mtu.upper_bound(if ipv6 { MTU_IPV6 } else { MTU_IPV4 })
        .minimum_change(40);
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(flows))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(1 << 30))
        .receive_window(VarInt::MAX)
        .send_window(1 << 40)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(600_000))))
        // Below the 30 s after which many NATs forget a UDP flow.
        .keep_alive_interval(Some(Duration::from_secs(25)))
        .initial_rtt(profile.initial_rtt())
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(acks))
        // Without it, a stream that quinn has begun goes on to its end before control frames and short flows.
        .send_fairness(true)
        .datagram_receive_buffer_size(None)
        .allow_spin(false)
        .congestion_controller_factory(Arc::new(gate));
    config
}

/// `reset_key` makes a restarted server's stateless resets valid; `seed` makes a simulation repeat.
pub(super) fn endpoint(
    reset_key: Arc<dyn quinn_proto::crypto::HmacKey>,
    shard: Option<u8>,
    seed: Option<[u8; 32]>,
) -> EndpointConfig {
    let mut config = EndpointConfig::new(reset_key);
    config.grease_quic_bit(false).rng_seed(seed);
    config.cid_generator(move || Box::new(ShardCids::new(shard, seed)));
    config
}
