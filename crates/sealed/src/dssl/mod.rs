//! DSSL: pages whose objects come ahead through a hub that sees links and no contents
//! (`PROTOCOL.md` §21 is normative).
//!
//! ```text
//!  Terminal ══════════════ K1: TLS from end to end: requests and pages ══════════════► OriginSession
//!     │ Secrets                                                             Secrets │
//!     ▼                                                                              ▼
//!  ObjectOpener ◄── PROMISE, DATA ── HubSession ══ hub connection: LINKS (K2), OBJECT (K1obj) ══ LinkSealer, ObjectSealer
//! ```
//!
//! Three secrets fall out of the K1 connection's handshake. K2 is bound to one hub, which opens
//! links by it; the key of objects never leaves the two ends.

mod hello;
mod hub;
mod keys;
mod object;
mod origin;
mod record;
mod terminal;
#[cfg(test)]
mod tests;

pub use hello::{ALPN_HUB, ALPN_K1, DSSL_HELLO, DsslHello, DsslHelloError};
pub use hub::{HubDropped, HubNews, HubSession};
pub use keys::{LinkKey, PROOF, Secrets, SessionId};
pub use object::{
    Chunk, MAX_CHUNK, ObjectFault, ObjectId, ObjectOpener, ObjectSealer, ObjectWriter,
};
pub use origin::{KeyRefusal, OriginSession};
pub use record::{
    HubFrame, HubFrameError, HubFrameReader, Link, LinkFault, LinkOpener, LinkSealer, MAX_ASKED,
    MAX_HUB_FRAME,
};
pub use terminal::{Mode, Terminal, TerminalStep};
