//! Rights that a daemon has given up, decisions of its rules, and parts of the kernel's state that it had to put back.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use super::format::span;
use crate::config::Action;

/// Restrictions of a daemon that has entered its sandbox, and of the programs that it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// The capabilities that are left, such as `net_admin`.
    pub capabilities: Vec<String>,
    /// True if no program that is started can gain privileges.
    pub no_new_privs: bool,
    /// Extent to which the file system is closed by Landlock: `enforced`, `partly` or `unavailable`, as the kernel has it.
    pub files: String,
}

/// Decisions of one rule since the client started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Place of the rule among the `[[rule]]` of the file, from 1.
    pub rule: usize,
    /// Action of the rule.
    pub action: Action,
    /// Packets of intercepted traffic, as they came in; at most a few seconds old.
    pub packets: u64,
    /// Bytes of the packets, from the IP header on.
    pub bytes: u64,
    /// Connections of proxies.
    pub connections: u64,
}

/// A part of the kernel's state that others took away or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRepair {
    /// Name of the part, such as `table inet bentpipe_client`.
    pub part: String,
    /// Times that it was put back.
    pub repairs_total: u64,
    /// Seconds since the last attempt to put it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_s: Option<u64>,
    /// The process that changed it last, as far as the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_by: Option<String>,
    /// Difference of the part now, or why it cannot be put back; absent while it is as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// True if others are the cause of the fault, hosts of the LAN for instance: the daemon is healthy all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_others: bool,
}

impl Display for KernelRepair {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let fault = self.fault.as_deref().unwrap_or("it waits for its turn");
        let times = match (self.repairs_total, self.last_s) {
            (0, None) => return write!(f, "{}: {fault}", self.part),
            (0, Some(last)) => {
                let last = span(last);
                return write!(
                    f,
                    "{} cannot be put back, last tried {last} ago: {fault}",
                    self.part
                );
            }
            (1, _) => "once".to_owned(),
            (number, _) => format!("{number} times"),
        };
        write!(f, "{} put back {times}", self.part)?;
        let by = self.last_by.as_ref().map(|by| format!(" by {by}"));
        if let Some(last) = self.last_s {
            write!(f, ", last{} {} ago", by.unwrap_or_default(), span(last))?;
        }
        match &self.fault {
            Some(fault) => write!(f, "; now: {fault}"),
            None => Ok(()),
        }
    }
}

impl Display for SandboxStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let capabilities = match self.capabilities.as_slice() {
            [] => "none".to_owned(),
            left => left.join(" "),
        };
        let privileges = if self.no_new_privs {
            "no new privileges, "
        } else {
            ""
        };
        write!(
            f,
            "files {}, {privileges}capabilities {capabilities}",
            self.files
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_put_back_is_not_counted() {
        let told = |repairs_total, last_s, fault: Option<&str>| {
            let part = KernelRepair {
                part: "interface lan0".into(),
                repairs_total,
                last_s,
                last_by: Some("\"ip\" (pid 7)".into()),
                fault: fault.map(str::to_owned),
                of_others: false,
            };
            part.to_string()
        };
        for (told, expected) in [
            (
                told(0, Some(3), Some("it was removed")),
                "interface lan0 cannot be put back, last tried 3 s ago: it was removed",
            ),
            (
                told(0, None, Some("cannot be seen")),
                "interface lan0: cannot be seen",
            ),
            (
                told(2, Some(60), None),
                "interface lan0 put back 2 times, last by \"ip\" (pid 7) 1 min 0 s ago",
            ),
        ] {
            assert_eq!(told, expected);
        }
    }
}
