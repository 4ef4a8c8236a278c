//! quinn's knobs for lines, which carry some hundred bytes an hour.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{IdleTimeout, TransportConfig, VarInt};

/// Time without a word of the peer after which a line is over, milliseconds.
const IDLE: u32 = 60_000;

/// Pause after which a line that is silent asks: below the 30 s after which many NATs forget a UDP flow.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes that a peer may have on their way: some grants.
const WINDOW: u32 = 8192;

/// Configuration of a PEP's lines, or of a client's.
pub(super) fn transport(takes_words: bool) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(u32::from(takes_words)))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE))))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .datagram_receive_buffer_size(None)
        .mtu_discovery_config(None)
        .allow_spin(false);
    Arc::new(config)
}
