//! Without Linux there is no device: interception, which asks for it, is refused.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use ipnet::IpNet;
use tokio::sync::watch;

use super::reach::Reach;
use super::tunnels::Tunnels;

/// Device for packets of a system without one: none.
pub(crate) struct PacketDevice(Infallible);

impl PacketDevice {
    pub(crate) fn assigned(&self) -> Vec<IpNet> {
        match self.0 {}
    }

    pub(super) fn write(&self, _packets: impl IntoIterator<Item = Bytes>) {
        match self.0 {}
    }

    pub(crate) fn without_tunnel(&self) -> u64 {
        match self.0 {}
    }

    pub(super) async fn carry(&self, _send: impl Fn(Vec<Bytes>) -> u64) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) async fn follow_assigned(
        &self,
        _tunnels: &Tunnels,
        _changes: watch::Receiver<Reach>,
        _changed: impl Fn(),
    ) {
        match self.0 {}
    }
}
