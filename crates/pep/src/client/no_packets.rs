//! Without Linux there is no device: interception, which asks for it, is refused.

use std::convert::Infallible;
use std::future::pending;
use std::io;

use bytes::Bytes;

use super::session::Session;

/// There is none.
pub(crate) struct PacketDevice(Infallible);

impl PacketDevice {
    pub(crate) fn has_addresses(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn write(&self, _packets: impl IntoIterator<Item = Bytes>) {
        match self.0 {}
    }

    pub(crate) fn without_tunnel(&self) -> u64 {
        match self.0 {}
    }
}

impl Session {
    pub(crate) async fn carry_packets(&self) -> io::Result<()> {
        pending().await
    }

    pub(crate) async fn follow_assigned(&self) {
        pending::<()>().await;
    }
}
