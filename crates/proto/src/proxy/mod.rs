//! What applications of one host speak to reach the tunnel: SOCKS5 and HTTP CONNECT.
//!
//! ```text
//!   application ─► greeting, request ─► decode ─► Destination ─► (tunnel) ─► ReplyCode ─► encode ─► application
//! ```

pub mod connect;
pub mod socks5;
