//! Mark of the uplink's device and table: whose they are, by which interface, and what was before. The device's alias
//! outlives the process and every flush of rules, the table's comment also the device.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow};
use bentpipe_sys::command::run;

use crate::usage::start_time;

const START: &str = "bentpipe-uplink";

/// A mark: owner, interface, and whether the interface forwarded before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    process: u32,
    started: u64,
    forwarded: bool,
    interface: String,
}

impl Mark {
    /// Mark of this process.
    pub(super) fn here(interface: &str, forwarded: bool) -> Result<Self> {
        let process = std::process::id();
        Ok(Self {
            process,
            started: start_time(process).context("cannot tell when this process began")?,
            forwarded,
            interface: interface.to_owned(),
        })
    }

    /// Mark of a device.
    pub(super) fn of(device: &str) -> Result<Self> {
        let text = run("ip", &["link", "show", "dev", device])?;
        let alias = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("alias "));
        let mark = alias.and_then(|alias| alias.parse().ok());
        mark.with_context(|| {
            format!(
                "`{device}` is not bentpipe's; rename it, or remove it by `ip link del {device}`"
            )
        })
    }

    /// Mark of a table of nftables; `None` if there is no such table, or it has none.
    pub(super) fn of_table(table: &str) -> Option<Self> {
        let text = run("nft", &["list", "table", "inet", table]).ok()?;
        let comment = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("comment \""));
        comment?.strip_suffix('"')?.parse().ok()
    }

    pub(super) fn put_on(&self, device: &str) -> Result<()> {
        run(
            "ip",
            &["link", "set", "dev", device, "alias", &self.to_string()],
        )?;
        Ok(())
    }

    /// Process that made the mark, if it lives.
    pub(super) fn owner(&self) -> Option<u32> {
        let same = start_time(self.process).is_ok_and(|started| started == self.started);
        same.then_some(self.process)
    }

    pub(super) fn interface(&self) -> &str {
        &self.interface
    }

    /// True if the interface forwarded before.
    pub(super) fn forwarded(&self) -> bool {
        self.forwarded
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            started,
            forwarded,
            interface,
        } = self;
        let forwarded = u8::from(*forwarded);
        write!(f, "{START} {process} {started} {forwarded} {interface}")
    }
}

impl FromStr for Mark {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(' ').collect();
        let [START, process, started, forwarded, interface] = parts[..] else {
            return Err(anyhow!("`{text}` is no mark of an uplink"));
        };
        Ok(Self {
            process: process.parse()?,
            started: started.parse()?,
            forwarded: forwarded != "0",
            interface: interface.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_knows_the_living() {
        let here = Mark::here("eth0", true).unwrap();
        assert_eq!(here.to_string().parse::<Mark>().unwrap(), here);
        assert_eq!(here.owner(), Some(std::process::id()));
        let earlier = Mark {
            started: here.started + 1,
            ..here
        };
        assert_eq!(earlier.owner(), None);
        for wrong in [
            "",
            "eth0",
            "bentpipe-uplink 1 2 3",
            "bentpipe-uplink x 2 0 eth0",
        ] {
            assert!(wrong.parse::<Mark>().is_err(), "{wrong}");
        }
    }
}
