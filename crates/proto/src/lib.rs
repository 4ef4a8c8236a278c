//! Wire formats and state machines of the tunnel; none of them has a clock or a socket.
//!
//! ```text
//!  proxy, opening      relay: sender ─ scheduler ─►╮                   ╭─► relay: receiver
//!  (who wants what)            credit, budget      ├── tunnel: OPEN, ──┤          credit
//!                      LAN bytes ─────────────────►╯   REPLY, control  ╰─► LAN bytes
//!                                     fec: what was lost, without another round trip
//!  dns: what the terminal answers itself, and what of the rest is believed
//!  packets of a TUN device ─► packets: queue ─ pack ══ DATAGRAM ══ join ─► packets of a TUN device,
//!                                                                          or nat: of sockets
//! ```

mod compact;
pub mod dns;
pub mod fec;
pub mod nat;
pub mod opening;
pub mod packets;
pub mod proxy;
pub mod relay;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod tunnel;
