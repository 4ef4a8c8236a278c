//! The servers' last good addresses, on disk: a ship's router boots without DNS.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::state;

/// More bytes than the addresses of all servers that anybody configures.
const MAX_FILE: u64 = 1 << 20;

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
        let known = state::read(&file, MAX_FILE)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Self { file, known }
    }

    pub(super) fn get(&self, name: &str) -> Option<SocketAddr> {
        self.known.get(name).copied()
    }

    /// Remembers.
    pub(super) fn put(&mut self, name: &str, address: SocketAddr) -> io::Result<()> {
        if self.known.insert(name.to_owned(), address) == Some(address) {
            return Ok(());
        }
        state::replace(&self.file, &serde_json::to_vec_pretty(&self.known)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
