//! Policy routing by our marks: packets with one mark are delivered to this machine, those with another
//! go into our device.
//!
//! TPROXY chooses the socket, routing must still be told that a foreign destination is local: one `ip
//! rule` per family and a routing table of ours. Nothing else's rules are touched.

use std::fs;
use std::io;

use crate::command::run;

/// The metric of what catches packets while the device is missing: worse than any other.
const LAST: &str = "4294967295";

/// Where packets go whose mark, under `mask`, is `mark`, whatever their destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedRoute {
    /// The mark to match.
    pub mark: u32,
    /// Which bits of the mark count.
    pub mask: u32,
    /// The number of a routing table that nobody else uses.
    pub table: u32,
    /// The rule's priority; before 32766, where the table `main` is consulted.
    pub priority: u32,
    /// Where they go.
    pub target: Target,
}

/// Where marked packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To this machine.
    Local,
    /// Into a device.
    Device {
        /// Its name.
        name: String,
        /// Nowhere while it does not exist or is down; otherwise where the machine's other routes lead.
        or_nowhere: bool,
    },
}

impl MarkedRoute {
    /// Installs rule and routes for IPv4 and, unless the kernel has it disabled, IPv6. Leftovers of a
    /// process that was killed are replaced; on failure nothing stays behind.
    ///
    /// # Errors
    /// The privilege is missing, `ip` is not installed, or loopback is down.
    pub fn install(&self) -> io::Result<()> {
        self.remove()?;
        let families: &[&str] = if ipv6_usable() {
            &["-4", "-6"]
        } else {
            &["-4"]
        };
        families
            .iter()
            .try_for_each(|family| self.install_family(family))
            .inspect_err(|_| {
                // The first error is the one to report.
                let _ = self.remove();
            })
    }

    /// Leads into the device, which must be up; when it goes, so do these routes. Nothing to do for [`Target::Local`].
    ///
    /// # Errors
    /// There is no such device, the privilege is missing or `ip` is not installed.
    pub fn attach(&self) -> io::Result<()> {
        let Target::Device { name: device, .. } = &self.target else {
            return Ok(());
        };
        self.route("-4", "replace", &["default", "dev", device])?;
        if ipv6_enabled(device) {
            self.route("-6", "replace", &["default", "dev", device])?;
        }
        Ok(())
    }

    /// Removes rules and routes of both families; what is not there is no error.
    ///
    /// # Errors
    /// The privilege is missing or `ip` is not installed.
    pub fn remove(&self) -> io::Result<()> {
        for family in ["-4", "-6"] {
            // `rule add` permits duplicates, so a leftover may exist more than once.
            while present(run("ip", &self.rule(family, "del")))? {}
            present(self.route(family, "flush", &[]))?;
        }
        Ok(())
    }

    fn install_family(&self, family: &str) -> io::Result<()> {
        let route: &[&str] = match self.target {
            Target::Local => &["local", "default", "dev", "lo"],
            Target::Device {
                or_nowhere: true, ..
            } => &["blackhole", "default", "metric", LAST],
            Target::Device { .. } => &[],
        };
        if !route.is_empty() {
            self.route(family, "replace", route).map_err(|error| {
                let mend = match error.to_string().contains("Network is down") {
                    true => "; loopback is down: `ip link set lo up`",
                    false => "",
                };
                io::Error::new(error.kind(), format!("{error}{mend}"))
            })?;
        }
        run("ip", &self.rule(family, "add")).map(drop)
    }

    fn route(&self, family: &str, action: &str, route: &[&str]) -> io::Result<String> {
        let table = self.table.to_string();
        let line = [&[family, "route", action], route, &["table", &table]];
        run("ip", &line.concat())
    }

    fn rule(&self, family: &str, action: &str) -> Vec<String> {
        let mark = format!("{:#x}/{:#x}", self.mark, self.mask);
        let (priority, table) = (self.priority.to_string(), self.table.to_string());
        [
            family, "rule", action, "priority", &priority, "fwmark", &mark, "lookup", &table,
        ]
        .map(str::to_owned)
        .to_vec()
    }
}

/// Whether IPv6 exists in the calling thread's namespace and may be used on loopback.
#[must_use]
pub fn ipv6_usable() -> bool {
    ipv6_enabled("lo")
}

fn ipv6_enabled(device: &str) -> bool {
    // The file is absent when the kernel has no IPv6 (`ipv6.disable=1`).
    fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"))
        .is_ok_and(|text| text.trim() == "0")
}

/// True when a deletion found something, false when there was nothing (left) to delete.
fn present(outcome: io::Result<String>) -> io::Result<bool> {
    match outcome {
        Ok(_) => Ok(true),
        Err(error) => {
            let text = error.to_string();
            let nothing = [
                "No such file",
                "No such process",
                "does not exist",
                "not supported",
            ];
            if nothing.iter().any(|part| text.contains(part)) {
                Ok(false)
            } else {
                Err(error)
            }
        }
    }
}
