//! TCP in the middle of its path: what an operator's PEP does with segments whose payload it cannot
//! read, or does not want to. No crypto, clock or socket.
//!
//! ```text
//!  end A ══ segments ══► relay: receiver ─ ready blobs ─► wire ══ a stream per flow ══► wire ─► relay: sender ══ segments ══► end B
//!           ◄══ ACKs ═══   in B's name                     BLOB FIN_ACKED RESET                   in A's name ◄══ ACKs ══
//!                        and the same back
//!  table: SYN and SYN-ACK pass end to end and begin a flow; what belongs to none is forwarded
//! ```
//!
//! Each half is small, because its hop is a LAN. What is acknowledged here is lost if a PEP dies, so
//! three rules keep ends honest: a FIN is acknowledged only when the other end has it; a flow whose
//! stream breaks off is reset at both ends; and the shell says whether unknown flows may have been
//! relayed by an earlier process, which are reset too.

mod congestion;
mod fault;
mod flow;
mod handshake;
mod header;
mod receiver;
mod relay;
mod reset;
mod rto;
mod segment;
mod sender;
mod table;
#[cfg(test)]
mod tests;
mod wire;
mod words;

pub use fault::PeerFault;
pub use flow::FlowName;
pub use header::Headers;

pub use reset::Side;
pub use segment::{Blob, Flags, Segment, SynOptions};
pub use table::Table;
pub use wire::{Cause, Endpoint, Form, Message, Opening, Parser, Scope, WireFault};
pub use words::{Bounds, Counts, Event, FlowId, Verdict};
