//! Bytes that crossed a device of some namespace, read from anywhere.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result};
use bentpipe_sys::netns::NetNs;

/// More than the table of a namespace's few devices.
const MOST: usize = 16 * 1024;

/// Counters of one device.
#[derive(Debug)]
pub struct DeviceBytes {
    /// Table of the namespace in which it was opened, whoever reads it.
    table: File,
    device: &'static str,
}

impl DeviceBytes {
    /// Counters of `device` in `node`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or its table not be opened.
    pub fn open(node: &NetNs, device: &'static str) -> Result<Self> {
        let table = node.enter(|| File::open("/proc/thread-self/net/dev"))?;
        Ok(Self {
            table: table.context("cannot open the table of devices")?,
            device,
        })
    }

    /// Bytes received and sent so far, with IP headers where the device carries IP packets.
    ///
    /// # Errors
    /// The table cannot be read, or the device is gone.
    pub fn now(&self) -> Result<u64> {
        let mut bytes = vec![0; MOST];
        let length = self.table.read_at(&mut bytes, 0)?;
        let table = String::from_utf8_lossy(&bytes[..length]);
        both_ways(&table, self.device).with_context(|| format!("there is no {}", self.device))
    }
}

/// Bytes of `device` in /proc/net/dev: the first of eight columns of reception, and the first behind these.
fn both_ways(table: &str, device: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, counters) = lines.find(|(name, _)| name.trim() == device)?;
    let numbers: Vec<u64> = counters
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    Some(numbers.first()? + numbers.get(8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_both_ways_are_added() {
        let table = "face |bytes\n  sat0: 1 2 3 4 5 6 7 8 90 10 11 12 13 14 15 16\n";
        assert_eq!(both_ways(table, "sat0"), Some(91));
        assert_eq!(both_ways(table, "sat"), None);
    }
}
