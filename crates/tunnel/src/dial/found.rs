//! Addresses that a name was found to have, of which some may still come.

use std::net::SocketAddr;
use std::pin::Pin;

/// Answer about addresses that may still come; empty if there are none.
pub type Later<'a> = Pin<Box<dyn Future<Output = Vec<SocketAddr>> + 'a>>;

/// Addresses of one name, as far as they are known.
pub struct Found<'a> {
    pub(super) known: Vec<SocketAddr>,
    pub(super) later: Option<Later<'a>>,
}

impl<'a> Found<'a> {
    /// Addresses that are `known`, and those of a family whose answer is late (RFC 8305 §3), if one is.
    #[must_use]
    pub fn new(known: Vec<SocketAddr>, later: Option<Later<'a>>) -> Self {
        Self { known, later }
    }
}

impl From<Vec<SocketAddr>> for Found<'_> {
    fn from(known: Vec<SocketAddr>) -> Self {
        Self { known, later: None }
    }
}
