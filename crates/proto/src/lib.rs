//! Wire formats and state machines of the tunnel; none of them has a clock or a socket.
//!
//! ```text
//!  proxy, opening      relay: sender ─ scheduler ─►╮                   ╭─► relay: receiver
//!  (who wants what)            credit, budget      ├── tunnel: OPEN, ──┤          credit
//!                      LAN bytes ─────────────────►╯   REPLY, control  ╰─► LAN bytes
//!                                     congestion: how much, how fast
//!                                     paths: what is remembered of it
//! ```

pub mod congestion;
pub mod opening;
pub mod paths;
pub mod proxy;
pub mod relay;
pub mod tunnel;
