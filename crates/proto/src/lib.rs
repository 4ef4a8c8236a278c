//! Wire formats and state machines of the tunnel.

pub mod congestion;
pub mod proxy;
pub mod relay;
pub mod tunnel;
