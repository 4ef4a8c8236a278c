//! Wire formats and state machines of the tunnel.

pub mod tunnel;
