//! Wire formats and state machines of the tunnel.

pub mod congestion;
pub mod opening;
pub mod proxy;
pub mod relay;
pub mod tunnel;
