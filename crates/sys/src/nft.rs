//! One nftables table of ours: replaced and removed whole, in one transaction, through `nft -f -`.
//!
//! Control path only. It names no table but its own, so that the rules of firewalls, containers and
//! VPNs stay as they are. What the rules say is written elsewhere (`pep`).

use std::io;
use std::time::Duration;

use crate::command::{run, run_with_input, tool};

/// A table in the calling thread's namespace: of the family `inet` (IPv4 and IPv6 together), or of frames of bridges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    family: &'static str,
    name: String,
}

impl Table {
    /// Names the table of the family `inet`; nothing happens in the kernel. `name` must be a plain identifier.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            family: "inet",
            name: name.to_owned(),
        }
    }

    /// As [`Table::new`], for frames that cross bridges. A kernel may have no such family.
    #[must_use]
    pub fn of_bridges(name: &str) -> Self {
        Self {
            family: "bridge",
            ..Self::new(name)
        }
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts the table with `body` (sets and chains, as between the braces of `table FAMILY NAME {…}`) in
    /// place of whatever had its name. Packets see the old table or the new one, never half of one.
    ///
    /// # Errors
    /// `nft` is missing, the privilege is missing, or the body is wrong; then nothing has changed.
    pub fn replace(&self, body: &str) -> io::Result<()> {
        apply(&self.replacement(body))
    }

    /// The script that [`Table::replace`] runs.
    #[must_use]
    pub fn replacement(&self, body: &str) -> String {
        let Self { family, name } = self;
        format!("{}table {family} {name} {{\n{body}}}\n", self.removal())
    }

    /// Removes the table; one that is not there is no error.
    ///
    /// # Errors
    /// `nft` or the privilege is missing.
    pub fn remove(&self) -> io::Result<()> {
        apply(&self.removal())
    }

    /// The table as `nft` shows it.
    ///
    /// # Errors
    /// There is none, or `nft` or the privilege is missing.
    pub fn list(&self) -> io::Result<String> {
        run("nft", &["list", "table", self.family, &self.name])
    }

    /// True if the table exists, for instance as the leftover of a process that was killed.
    ///
    /// # Errors
    /// `nft` or the privilege is missing.
    pub fn exists(&self) -> io::Result<bool> {
        match self.list() {
            Ok(_) => Ok(true),
            Err(error) if error.to_string().contains("No such file") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds `element` to a set of the table, for `timeout` (whole milliseconds) or for good. An element
    /// that is already there keeps its time.
    ///
    /// # Errors
    /// There is no such table or set, the set is full, or the element does not fit its type.
    pub fn add_element(
        &self,
        set: &str,
        element: &str,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let timeout = timeout.map(|time| format!(" timeout {}ms", time.as_millis()));
        let timeout = timeout.unwrap_or_default();
        apply(&format!(
            "add element {} {} {set} {{ {element}{timeout} }}\n",
            self.family, self.name
        ))
    }

    /// `destroy table` is unknown to the nft of Debian 12 (1.0.6): adding first makes deleting safe.
    fn removal(&self) -> String {
        let Self { family, name } = self;
        format!("add table {family} {name}\ndelete table {family} {name}\n")
    }
}

/// Has the kernel look at every expression of a script and then forget it.
///
/// # Errors
/// `nft` or the privilege is missing, or kernel or `nft` do not know an expression; the text says which.
pub fn check(script: &str) -> io::Result<()> {
    run_with_input(tool("nft").args(["--check", "-f", "-"]), script).map(drop)
}

/// Runs a script as one transaction: all of it happens, or nothing.
///
/// # Errors
/// `nft` or the privilege is missing, or the script is wrong.
pub fn apply(script: &str) -> io::Result<()> {
    run_with_input(tool("nft").args(["-f", "-"]), script)
        .map(drop)
        .map_err(|error| {
            if error.kind() == io::ErrorKind::PermissionDenied {
                let text =
                    format!("{error}; needs CAP_NET_ADMIN (run as root or in a user namespace)");
                io::Error::new(error.kind(), text)
            } else {
                error
            }
        })
}
