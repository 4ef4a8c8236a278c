//! What the client remembers on disk from one run to the next: the servers' last good addresses, for a ship's router
//! boots without DNS, the links that it has crossed (`link.rs`), and what servers assigned (`les/greetings.rs`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::StateFile;

/// More bytes than the addresses of all servers that anybody configures.
const MAX_FILE: u64 = 1 << 20;
/// Entries beyond this are forgotten, whichever they are: nobody has as many servers or home networks.
const MAX_ENTRIES: usize = 1000;

/// Values by name, in one file.
#[derive(Debug)]
pub(super) struct ClientMemory<V> {
    file: StateFile,
    known: BTreeMap<String, V>,
}

impl<V: Serialize + DeserializeOwned + PartialEq + Clone> ClientMemory<V> {
    /// Reads `name` in `dir`, which remembers `what`; a missing or damaged file is an empty memory.
    pub(super) fn load(dir: &Path, name: &str, what: &'static str) -> Self {
        let file = StateFile::new(dir.join(name), what);
        let known = file.load(MAX_FILE, |bytes| serde_json::from_slice(bytes));
        Self { file, known }
    }

    pub(super) fn get(&self, name: &str) -> Option<V> {
        self.known.get(name).cloned()
    }

    /// Remembers, on disk soon; a disk that cannot be written is logged once.
    pub(super) fn put(&mut self, name: &str, value: V) {
        if self.known.get(name) == Some(&value) {
            return;
        }
        self.known.insert(name.to_owned(), value);
        while self.known.len() > MAX_ENTRIES
            && let Some(other) = self.known.keys().find(|key| *key != name).cloned()
        {
            self.known.remove(&other);
        }
        let bytes = serde_json::to_vec_pretty(&self.known);
        self.file
            .replace_soon(bytes.expect("names are the only keys"));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn survives_a_restart_and_a_damaged_file() {
        let dir = std::env::temp_dir().join(format!("bentpipe-memory-{}", std::process::id()));
        let address: SocketAddr = "192.0.2.1:4433".parse().expect("an address");
        let load = || ClientMemory::<SocketAddr>::load(&dir, "servers.json", "a server");
        let mut memory = load();
        assert_eq!(memory.get("gw.example:4433"), None);
        memory.put("gw.example:4433", address);
        assert_eq!(load().get("gw.example:4433"), Some(address));
        fs::write(dir.join("servers.json"), "{").expect("the file is writable");
        assert_eq!(load().get("gw.example:4433"), None);
        fs::remove_dir_all(dir).expect("the directory is ours");
    }
}
