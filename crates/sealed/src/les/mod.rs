//! LES: IP packets in two zones under two keys (`PROTOCOL.md` §20 is normative). The payload is
//! sealed under K1, which the two ends alone have; the IP and TCP header under K2, which they share
//! with the operator's PEPs.
//!
//! ```text
//!  Roots ── K1, K2 ──► EndSender ══ header zone │ payload zone ══► EndReceiver ── Flows: no replays ──► IP packet
//!    │                     ▲                          ║                ▲
//!    │                 IP packet                      ▼                ║
//!    ╰─── K2 ─────────────────────► HeaderReader (PEP) HeaderWriter ═══╯
//! ```
//!
//! PEPs may acknowledge, store and resend; neither a PEP nor anybody else can read the payload, or
//! change what belongs to it, unnoticed.

/// Label of the TLS exporter from which the keys of a tunnel's associations come (RFC 8446 §7.5);
/// its context is the association's count, as `u32`.
pub const EXPORTER: &[u8] = b"EXPORTER-bentpipe-les";

mod end;
mod fault;
mod grants;
mod keys;
mod packet;
mod replay;
pub mod sa;
mod segment;
#[cfg(test)]
mod tests;

pub use end::{Delivered, EndReceiver, EndSender};
pub use fault::{Discarded, NotCarried, Unwritten, ZoneFault};
pub use grants::{
    ASSOCIATIONS_OF_CLIENT, ClientKey, GrantFault, Grants, Pair, PepOpened, PepUnopened,
    PepUnwritten, Scope,
};
pub use keys::{EndToken, HeaderRoot, Roots, Spi, SpiPair, Toward, Writer};
pub use packet::{
    HeaderOpened, HeaderReader, HeaderWriter, MAX_NUMBER, OVERHEAD, WRITER_WINDOW, spi_of,
};
pub use replay::{FLOW_REACH, Flows, MAX_FLOWS};
pub use segment::{FlowId, MTU};
