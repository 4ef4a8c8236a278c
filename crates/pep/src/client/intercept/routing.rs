//! Marks of packets and the routing tables that they lead to, the same for every configuration.

use std::io;

use bentpipe_sys::route::{MarkedPackets, MarkedRoute, OWN, Target};

use super::invalid;
use crate::firewall::Mark;

/// Marks of packets and the routing tables that some of them lead to. The marks use the top four bits, which the
/// common users of marks (Kubernetes, Tailscale, mwan3, WireGuard) leave alone.
///
/// Packets of the LAN and packets of this machine have marks of their own: with one for both, the rule for this machine's packets would
/// also answer who looks for the way back to a LAN host with the mark of what that has sent (the kernel with `src_valid_mark`, firewalld's
/// `IPv6_rpfilter`), and no such host would be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routing {
    /// The bits of the mark that are ours; others are left as they are.
    pub(super) mask: u32,
    /// The mark of intercepted packets.
    pub(super) mark: u32,
    /// The mark of this machine's own packets that are intercepted, until they come back by loopback.
    pub(super) local_mark: u32,
    /// The mark of our own sockets, exempt from interception; within `mask`, not `mark`.
    pub(super) own_mark: u32,
    /// The mark of packets for the device.
    pub(super) tunnel_mark: u32,
    /// The mark of this machine's own packets for the device.
    pub(super) local_tunnel_mark: u32,
    /// The mark of packets that may leave in clear.
    pub(super) direct_mark: u32,
    /// The routing table for intercepted packets.
    pub(super) table: u32,
    /// The routing table for packets for the device.
    pub(super) tunnel_table: u32,
    /// The priority of the rules that lead there.
    pub(super) priority: u32,
    /// The mark of packets that the device has delivered.
    pub(super) delivered_mark: u32,
    /// The routing table for packets with `delivered_mark` that no other table has a route for.
    pub(super) delivered_table: u32,
    /// The mark of packets that a bridge took in by a port that is intercepted itself.
    pub(super) port_mark: u32,
}

/// The priority of the rule for packets that the device has delivered: after the tables of the machine itself.
const AFTER_ALL: u32 = 32_768;

impl Default for Routing {
    fn default() -> Self {
        Self {
            mask: 0xf000_0000,
            mark: 0x1000_0000,
            own_mark: 0x2000_0000,
            tunnel_mark: 0x3000_0000,
            direct_mark: 0x4000_0000,
            table: 25_200,
            tunnel_table: 25_201,
            priority: 99,
            // The marks and tables between are those of servers and PEPs.
            delivered_mark: 0x9000_0000,
            delivered_table: 25_205,
            port_mark: 0xa000_0000,
            local_mark: 0xb000_0000,
            local_tunnel_mark: 0xc000_0000,
        }
    }
}

impl Routing {
    /// The mark of our own sockets, exempt from interception.
    #[must_use]
    pub fn own_mark(&self) -> u32 {
        self.own_mark
    }

    /// The mark of intercepted packets.
    pub(super) fn intercepted(&self) -> Mark {
        Mark::new(self.mark, self.mask)
    }

    /// The mark of this machine's own packets that are intercepted.
    pub(super) fn local_intercepted(&self) -> Mark {
        Mark::new(self.local_mark, self.mask)
    }

    /// The mark of our own sockets, for rules.
    pub(super) fn own(&self) -> Mark {
        Mark::new(self.own_mark, self.mask)
    }

    /// The mark of packets for the device.
    pub(super) fn tunnel(&self) -> Mark {
        Mark::new(self.tunnel_mark, self.mask)
    }

    /// The mark of this machine's own packets for the device.
    pub(super) fn local_tunnel(&self) -> Mark {
        Mark::new(self.local_tunnel_mark, self.mask)
    }

    /// The mark of packets that may leave in clear.
    pub(super) fn direct(&self) -> Mark {
        Mark::new(self.direct_mark, self.mask)
    }

    /// The marks of packets that go to the listeners.
    pub(super) fn of_listeners(&self) -> [Mark; 2] {
        [self.intercepted(), self.local_intercepted()]
    }

    /// The marks of packets that go into the device.
    pub(super) fn of_tunnel(&self) -> [Mark; 2] {
        [self.tunnel(), self.local_tunnel()]
    }

    /// The mark of packets that the device has delivered.
    pub(super) fn delivered(&self) -> Mark {
        Mark::new(self.delivered_mark, self.mask)
    }

    /// The mark of packets that a bridge took in by a port that is intercepted itself.
    pub(super) fn of_port(&self) -> Mark {
        Mark::new(self.port_mark, self.mask)
    }

    /// Checks that the marks differ, are not zero and lie within the mask.
    pub(super) fn validate(&self) -> io::Result<()> {
        let mut marks = [
            self.mark,
            self.own_mark,
            self.tunnel_mark,
            self.direct_mark,
            self.delivered_mark,
            self.port_mark,
            self.local_mark,
            self.local_tunnel_mark,
        ];
        marks.sort_unstable();
        let outside = marks.iter().any(|mark| mark & !self.mask != 0);
        if outside || marks[0] == 0 || marks.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!(
                "marks {marks:#x?} must differ, be non-zero and lie within the mask {:#x}",
                self.mask
            )));
        }
        Ok(())
    }

    /// Route to the listeners, of intercepted packets that come in by `interfaces` or are this machine's own.
    pub(super) fn route_of_listeners(&self, interfaces: &[String]) -> MarkedRoute {
        MarkedRoute {
            packets: packets(interfaces, self.mark, self.local_mark),
            mask: self.mask,
            table: self.table,
            priority: self.priority,
            target: Target::Local,
        }
    }

    /// Route of packets for the device of this `name`, which come in by `interfaces` or are this machine's own; while the device is gone,
    /// they go nowhere if `or_nowhere`.
    pub(super) fn route_of_device(
        &self,
        interfaces: &[String],
        name: &str,
        or_nowhere: bool,
    ) -> MarkedRoute {
        MarkedRoute {
            packets: packets(interfaces, self.tunnel_mark, self.local_tunnel_mark),
            table: self.tunnel_table,
            target: Target::Device {
                name: name.to_owned(),
                or_nowhere,
            },
            ..self.route_of_listeners(&[])
        }
    }

    /// Way back to whoever sent what the device of this `name` has delivered, where the machine has no other: the kernel
    /// drops IPv4 packets whose source no route leads to. An uplink of IPv6 alone leaves the machine without one, and so
    /// does a way to the server alone.
    pub(super) fn way_back_by_device(&self, name: &str) -> MarkedRoute {
        MarkedRoute {
            // The way back is looked for as if this machine, or whichever interface is next, sent there.
            packets: vec![MarkedPackets {
                mark: self.delivered_mark,
                iif: None,
            }],
            table: self.delivered_table,
            priority: AFTER_ALL,
            ..self.route_of_device(&[], name, false)
        }
    }
}

/// Packets with `mark` that come in by one of `interfaces`, and this machine's own with the mark `local`.
fn packets(interfaces: &[String], mark: u32, local: u32) -> Vec<MarkedPackets> {
    let of = |iif: &str, mark| MarkedPackets {
        mark,
        iif: Some(iif.to_owned()),
    };
    let lan = interfaces.iter().map(|name| of(name, mark));
    lan.chain([of(OWN, local)]).collect()
}
