//! The servers' last good addresses, on disk: a ship's router boots without DNS.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Addresses by the `NAME:PORT` of the configuration.
#[derive(Debug)]
pub(super) struct AddressMemory {
    file: PathBuf,
    known: BTreeMap<String, SocketAddr>,
}

impl AddressMemory {
    /// Reads `servers.json` in `dir`; a missing or damaged file is an empty memory.
    pub(super) fn load(dir: &Path) -> Self {
        let file = dir.join("servers.json");
        let known = fs::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Self { file, known }
    }

    pub(super) fn get(&self, name: &str) -> Option<SocketAddr> {
        self.known.get(name).copied()
    }

    /// Remembers; written aside and renamed, so that a power cut leaves the old file or the new.
    pub(super) fn put(&mut self, name: &str, address: SocketAddr) -> io::Result<()> {
        if self.known.insert(name.to_owned(), address) == Some(address) {
            return Ok(());
        }
        if let Some(dir) = self.file.parent() {
            fs::create_dir_all(dir)?;
        }
        let aside = self.file.with_extension("new");
        fs::write(&aside, serde_json::to_vec_pretty(&self.known)?)?;
        fs::rename(aside, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_a_restart_and_a_damaged_file() {
        let dir = std::env::temp_dir().join(format!("bentpipe-memory-{}", std::process::id()));
        let address: SocketAddr = "192.0.2.1:4433".parse().expect("an address");
        let mut memory = AddressMemory::load(&dir);
        assert_eq!(memory.get("gw.example:4433"), None);
        memory
            .put("gw.example:4433", address)
            .expect("the directory is writable");
        assert_eq!(
            AddressMemory::load(&dir).get("gw.example:4433"),
            Some(address)
        );
        fs::write(dir.join("servers.json"), "{").expect("the file is writable");
        assert_eq!(AddressMemory::load(&dir).get("gw.example:4433"), None);
        fs::remove_dir_all(dir).expect("the directory is ours");
    }
}
