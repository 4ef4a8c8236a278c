//! Policy routing of intercepted packets: those with our mark are delivered to this machine.
//!
//! TPROXY chooses the socket, routing must still be told that a foreign destination is local: one `ip
//! rule` per family and a routing table of ours with one route. Nothing else's rules are touched.

use std::fs;
use std::io;

use crate::command::run;

/// Packets whose mark, under `mask`, is `mark` are local whatever their destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalRoute {
    /// The mark to match.
    pub mark: u32,
    /// Which bits of the mark count.
    pub mask: u32,
    /// The number of a routing table that nobody else uses.
    pub table: u32,
    /// The rule's priority; before 32766, where the table `main` is consulted.
    pub priority: u32,
}

impl LocalRoute {
    /// Installs rule and route for IPv4 and, unless the kernel has it disabled, IPv6. Leftovers of a
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

    /// Removes rules and routes of both families; what is not there is no error.
    ///
    /// # Errors
    /// The privilege is missing or `ip` is not installed.
    pub fn remove(&self) -> io::Result<()> {
        let table = self.table.to_string();
        for family in ["-4", "-6"] {
            // `rule add` permits duplicates, so a leftover may exist more than once.
            while present(run("ip", &self.rule(family, "del")))? {}
            let route = [
                "route", "del", "local", "default", "dev", "lo", "table", &table,
            ];
            let route = [&[family][..], &route].concat();
            while present(run("ip", &route))? {}
        }
        Ok(())
    }

    fn install_family(&self, family: &str) -> io::Result<()> {
        let table = self.table.to_string();
        let route = [
            "route", "replace", "local", "default", "dev", "lo", "table", &table,
        ];
        run("ip", &[&[family][..], &route].concat()).map_err(|error| {
            let mend = match error.to_string().contains("Network is down") {
                true => "; loopback is down: `ip link set lo up`",
                false => "",
            };
            io::Error::new(error.kind(), format!("{error}{mend}"))
        })?;
        run("ip", &self.rule(family, "add")).map(drop)
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
    // The file is absent when the kernel has no IPv6 (`ipv6.disable=1`).
    fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
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
