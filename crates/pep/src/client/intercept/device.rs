//! The device that leads to the far side, and what may come out of it.

use std::net::{IpAddr, SocketAddr};

use bentpipe_sys::device::NAME;
use ipnet::IpNet;

/// The TUN device that [`Other::Tunnel`](super::Other::Tunnel) leads into, and what the far side may begin through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The device's name.
    pub name: String,
    /// UDP ports of the far side, and the host that what comes to each goes to, through the device.
    pub published: Vec<(u16, SocketAddr)>,
    /// UDP goes into the device from ports below this one, or below 1024; the others are used by somebody else, who reads and
    /// writes the packets himself.
    pub udp_ports_below: Option<u16>,
    /// Prefixes behind the intercepted interfaces that the far side routes here as they are: it may begin connections to
    /// their hosts, and these keep their addresses in the device.
    pub routed: Vec<IpNet>,
    /// TCP that goes into the device.
    pub tcp: TcpIntoDevice,
}

/// TCP that goes into the device in place of a listener. A connection that the listener has taken stays with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TcpIntoDevice {
    /// Destinations that are meant.
    pub destinations: Vec<IpNet>,
    /// False while a listener has this, as all other TCP. The device stays.
    pub leads: bool,
}

impl TcpIntoDevice {
    /// True if connections to `address` go into the device now.
    pub(super) fn takes(&self, address: IpAddr) -> bool {
        self.leads && self.destinations.iter().any(|net| net.contains(&address))
    }
}

impl Default for Device {
    fn default() -> Self {
        Self {
            name: NAME.to_owned(),
            published: Vec::new(),
            udp_ports_below: None,
            routed: Vec::new(),
            tcp: TcpIntoDevice::default(),
        }
    }
}
