//! What applications of one host speak to reach the tunnel, SOCKS5 and HTTP, and what tells one who has reached it.
//!
//! ```text
//!   application ─► greeting, request ─► decode ─► Destination ─► (tunnel) ─► ReplyCode ─► encode ─► application
//!   its datagrams ─► associate ─► packets of the tunnel
//!   host behind the client ◄─ announce ◄─ who has connected to a published port
//! ```

mod announce;
pub mod associate;
pub mod connect;
pub mod forward;
pub mod socks5;

pub use announce::announce;
