//! Losses that are not the model's: packets that the kernel dropped in the namespaces of the run.
//!
//! Read before and after the run, by a thread inside each namespace. An emulation that lost packets elsewhere than in
//! its model measured the host, and says so.

use std::fs;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;

/// Counters of one namespace, or their growth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelDrops {
    /// Packets that found the emulator's device full or absent (`tx_dropped` of the device).
    pub device: u64,
    /// Datagrams that found a receiver's socket buffer full (`RcvbufErrors`).
    pub socket_buffers: u64,
}

impl KernelDrops {
    /// Counts of `namespace` at present; `device` is the emulator's, if it has one there.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn now(namespace: &NetNs, device: Option<&str>) -> Result<Self> {
        namespace.enter(|| -> Result<Self> {
            let read = |name: &str| {
                let path = format!("/proc/thread-self/net/{name}");
                fs::read_to_string(&path).context(path)
            };
            let devices = read("dev")?;
            // Absent where the kernel has no IPv6.
            let v6 = read("snmp6").unwrap_or_default();
            Ok(Self {
                device: device.map_or(0, |device| transmit_drops(&devices, device)),
                socket_buffers: udp_buffer_errors(&read("snmp")?) + udp6_buffer_errors(&v6),
            })
        })?
    }

    /// Growth since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            device: self.device.saturating_sub(before.device),
            socket_buffers: self.socket_buffers.saturating_sub(before.socket_buffers),
        }
    }

    /// Both together with another namespace's.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            device: self.device + other.device,
            socket_buffers: self.socket_buffers + other.socket_buffers,
        }
    }
}

/// In /proc/net/dev: behind the name eight columns of reception, then bytes, packets, errors and drops.
fn transmit_drops(table: &str, device: &str) -> u64 {
    const COLUMN: usize = 8 + 3;
    table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == device)
        .and_then(|(_, counters)| counters.split_whitespace().nth(COLUMN)?.parse().ok())
        .unwrap_or(0)
}

/// In /proc/net/snmp: a line of names, then a line of values.
fn udp_buffer_errors(table: &str) -> u64 {
    let mut lines = table.lines().filter(|line| line.starts_with("Udp:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    names
        .split_whitespace()
        .zip(values.split_whitespace())
        .find(|(name, _)| *name == "RcvbufErrors")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

/// In /proc/net/snmp6: a name and a value per line.
fn udp6_buffer_errors(table: &str) -> u64 {
    table
        .lines()
        .find_map(|line| line.strip_prefix("Udp6RcvbufErrors")?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found() {
        let devices = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed \
            multicast|bytes packets errs drop fifo colls carrier compressed\n  sat0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(
            (
                transmit_drops(devices, "sat0"),
                transmit_drops(devices, "sat")
            ),
            (12, 0)
        );
        let snmp =
            "Tcp: RcvbufErrors\nTcp: 3\nUdp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 5 6 7\n";
        assert_eq!((udp_buffer_errors(snmp), udp_buffer_errors("")), (6, 0));
        assert_eq!(
            udp6_buffer_errors("Udp6InErrors 1\nUdp6RcvbufErrors   \t9\n"),
            9
        );
    }

    #[test]
    fn the_kernels_own_tables_are_read() {
        let here = NetNs::current().unwrap();
        // As root the thread may enter; without, there is nothing to check.
        if let Ok(drops) = KernelDrops::now(&here, Some("lo")) {
            assert_eq!(drops.device, 0);
        }
    }
}
