//! A table of ours beside what it held when it was last written, so that what others have changed in it is seen.

use std::io;

use crate::nft::Table;
use crate::nftables::{Fingerprint, fingerprint};

/// A table of ours, and what it held when it was last written.
#[derive(Debug)]
pub struct WrittenTable {
    table: Table,
    written: Option<Fingerprint>,
}

impl WrittenTable {
    /// Names the table; nothing happens in the kernel. `name` must be a plain identifier.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            table: Table::new(name),
            written: None,
        }
    }

    /// The table itself.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Puts the table with `body` in place of whatever had its name.
    ///
    /// # Errors
    /// As [`Table::replace`]; or the kernel does not say what it holds now.
    pub fn write(&mut self, body: &str) -> io::Result<()> {
        self.table.replace(body)?;
        self.written = fingerprint(self.table.name())?;
        Ok(())
    }

    /// Difference between the table and what was written, as the log tells it; `None` without one.
    ///
    /// # Errors
    /// The privilege is missing.
    pub fn fault(&self) -> io::Result<Option<&'static str>> {
        Ok(match fingerprint(self.table.name())? {
            None => Some("is gone"),
            now if now != self.written => Some("was changed"),
            Some(_) => None,
        })
    }
}
