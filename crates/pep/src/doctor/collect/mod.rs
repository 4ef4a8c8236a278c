//! The shell: asks the kernel, the tools, the files and the servers.

mod handshake;
mod machine;
mod network;
mod sockets;
mod subject;

use std::path::{Path, PathBuf};

use super::facts::{Facts, Trial};

/// Longest file of `/proc` and `/etc` that is read, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Collects everything.
pub(super) fn collect(files: &[PathBuf], built: Option<i16>) -> Facts {
    let machine = machine::collect(built);
    let network = network::collect(machine.net_admin);
    let subjects = files.iter().map(|file| subject::collect(file)).collect();
    Facts {
        machine,
        network,
        subjects,
    }
}

/// Text of a file; empty if it cannot be read.
fn text(path: impl AsRef<Path>) -> String {
    let bytes = crate::state::read(path.as_ref(), MAX_FILE).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Outcome of `trial`, if this process is `privileged` to make it.
fn tried<T>(privileged: bool, trial: impl FnOnce() -> std::io::Result<T>) -> Trial<T> {
    privileged.then(|| trial().map_err(|error| error.to_string()))
}
