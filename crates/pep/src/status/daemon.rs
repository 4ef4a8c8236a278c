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
}

impl Display for KernelRepair {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let times = match self.repairs_total {
            1 => "once".to_owned(),
            number => format!("{number} times"),
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
