//! Wire formats and state machines of the tunnel.

pub mod congestion;
pub mod tunnel;
