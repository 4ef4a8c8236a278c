//! Properties of nodes and of the network behind the gateway, where they differ from the usual.

use std::fmt::Write as _;
use std::time::Duration;

use bentpipe_units::{BitRate, ByteCount, Ratio};

use super::setup::Congestion;

/// Properties of a topology's nodes and of the network behind its gateway.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ground {
    /// Congestion control of TCP, in all of the namespaces.
    pub tcp: Congestion,
    /// First congestion window of all nodes, in segments; the kernel's own if absent.
    pub initial_window: Option<u32>,
    /// The end hosts.
    pub end_hosts: EndHosts,
    /// The way between gateway and web.
    pub behind: Behind,
}

/// TCP of the end hosts, user and web, where it is older than the kernel's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndHosts {
    /// The most that a host offers to receive, below 64 KiB, for its windows are not scaled then; the kernel's own, which grows,
    /// if absent.
    pub window: Option<ByteCount>,
    /// First congestion window, in segments; that of the other nodes if absent.
    pub initial_window: Option<u32>,
}

/// The way between gateway and web. Without rates and losses, frames that an offload has merged pass it in one piece.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Behind {
    /// Delay, each way.
    pub delay: Duration,
    /// IP-layer rate from web to gateway; too fast to matter if absent.
    pub uplink: Option<BitRate>,
    /// IP-layer rate from gateway to web; too fast to matter if absent.
    pub downlink: Option<BitRate>,
    /// Probability of losing a packet, each way; none is lost if absent.
    pub loss: Option<Ratio>,
}

impl Behind {
    /// True if frames pass it as if gateway and web were neighbours.
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// True if packets count one by one.
    pub(super) fn is_by_packet(&self) -> bool {
        self.uplink.is_some() || self.downlink.is_some() || self.loss.is_some()
    }
}

/// Attributes of a node's routes by which its TCP is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteAttributes {
    congestion: Congestion,
    initial_window: Option<u32>,
}

impl Ground {
    /// Of terminals and gateway.
    pub(super) fn of_routers(&self) -> RouteAttributes {
        RouteAttributes {
            congestion: self.tcp,
            initial_window: self.initial_window,
        }
    }

    /// Of user and web.
    pub(super) fn of_end_hosts(&self) -> RouteAttributes {
        RouteAttributes {
            congestion: self.tcp,
            initial_window: self.end_hosts.initial_window.or(self.initial_window),
        }
    }
}

impl RouteAttributes {
    /// `lines` of `ip -batch` with the attributes on every route.
    pub(super) fn put_on(self, lines: &str) -> String {
        let mut attributes = format!(" congctl {}", self.congestion.kernel());
        // Writing into a String cannot fail.
        if let Some(segments) = self.initial_window {
            let _ = write!(attributes, " initcwnd {segments}");
        }
        let line = |line: &str| match line.starts_with("route ") {
            true => format!("{line}{attributes}\n"),
            false => format!("{line}\n"),
        };
        lines.lines().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_say_how_tcp_sends() {
        let lines = "addr add 10.0.0.1/8 dev eth0\nroute add default via 10.0.0.2\n";
        let mut ground = Ground {
            initial_window: Some(30),
            ..Ground::default()
        };
        assert_eq!(
            ground.of_end_hosts().put_on(lines),
            "addr add 10.0.0.1/8 dev eth0\nroute add default via 10.0.0.2 congctl cubic initcwnd 30\n"
        );
        ground.end_hosts = EndHosts {
            window: None,
            initial_window: Some(3),
        };
        let hosts = ground.of_end_hosts().put_on(lines);
        assert!(hosts.ends_with(" congctl cubic initcwnd 3\n"), "{hosts}");
        let routers = ground.of_routers().put_on(lines);
        assert!(
            routers.ends_with(" congctl cubic initcwnd 30\n"),
            "{routers}"
        );
    }
}
