//! What an experiment leaves whose owner was killed: namespaces, processes, a directory, sockets of wireguard-go, HyStart.
//!
//! All of it carries a prefix that names the owner, by process ID and by the instant at which that process began: an ID
//! alone may be a stranger's by now. What is removed belongs to an owner that is gone, and to no one else; nothing is
//! looked for by the name of a program. Rules of nftables and devices live in the namespaces, and end with them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bentpipe_sys::netns::NetNs;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::contender::{hystart, wireguard};
use bentpipe_emulator::topology::EXPERIMENT_VARIABLE;
use bentpipe_emulator::usage::start_time;

const NAMESPACES: &str = "/run/netns";
const START: &str = "bp-lab-";
/// For killed processes to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The prefix of this process's experiments: what carries it is removed by the next [`super::run`] if this process is killed.
///
/// # Errors
/// `/proc` is not mounted.
pub fn prefix() -> Result<String> {
    let process = std::process::id();
    let start = start_time(process).context("cannot tell when this process began")?;
    Ok(format!("{START}{process}-{start}"))
}

/// Removes what owners left that are gone; how many owners those were.
///
/// # Errors
/// Something of it cannot be removed; the text names it.
pub(super) fn clear() -> Result<usize> {
    let temporary = std::env::temp_dir();
    // Shards start together, and what one removes the others would fail to find. Unlocked when closed.
    let one_at_a_time = File::open(&temporary)?;
    one_at_a_time
        .lock()
        .with_context(|| format!("cannot lock {}", temporary.display()))?;
    let mut prefixes: BTreeSet<String> =
        processes().into_iter().map(|(_, prefix)| prefix).collect();
    for directory in [Path::new(NAMESPACES), &temporary] {
        prefixes.extend(names(directory).iter().filter_map(|name| orphan(name)));
    }
    // Processes first: they would find their namespace and directory gone.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left: Vec<_> = processes();
        if left.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            bail!(
                "process {} of an earlier experiment does not end",
                left[0].0
            );
        }
        for (process, prefix) in left {
            kill(process, &prefix);
        }
        thread::sleep(POLL);
    }
    for prefix in &prefixes {
        remove(prefix)?;
    }
    hystart::clear()?;
    Ok(prefixes.len())
}

fn remove(prefix: &str) -> Result<()> {
    let belongs = |name: &&String| orphan(name).as_deref() == Some(prefix);
    for name in names(Path::new(NAMESPACES)).iter().filter(belongs) {
        NetNs::delete(name).with_context(|| format!("cannot remove network namespace {name}"))?;
    }
    let temporary = std::env::temp_dir();
    for name in names(&temporary).iter().filter(belongs) {
        let path = temporary.join(name);
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    if let Some((process, _)) = owner(prefix) {
        for socket in wireguard::sockets(process) {
            // Most experiments had none.
            let _ = fs::remove_file(socket);
        }
    }
    Ok(())
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    entries.filter_map(name).collect()
}

/// The owner that a name names: process ID and start.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(START)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The prefix of a name whose owner is gone.
fn orphan(name: &str) -> Option<String> {
    let (process, start) = owner(name)?;
    let alive = start_time(process).is_ok_and(|found| found == start);
    (!alive).then(|| format!("{START}{process}-{start}"))
}

/// Processes of experiments whose owner is gone, with its prefix.
fn processes() -> Vec<(u32, String)> {
    let all = names(Path::new("/proc"));
    let ids = all.iter().filter_map(|name| name.parse().ok());
    ids.filter_map(|process| Some((process, experiment(process)?)))
        .collect()
}

fn experiment(process: u32) -> Option<String> {
    // Processes end while one looks at them, and those of others are closed.
    let environment = fs::read(format!("/proc/{process}/environ")).ok()?;
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        entry.strip_prefix(EXPERIMENT_VARIABLE)?.strip_prefix('=')
    })?;
    orphan(value)
}

fn kill(process: u32, prefix: &str) {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let Some(handle) = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return;
    };
    // Asked again: from here on the handle is that process, whoever has its number later.
    if experiment(process).as_deref() == Some(prefix) {
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_owners_that_are_gone_are_orphans() {
        let own = prefix().unwrap();
        assert_eq!(orphan(&own), None);
        assert_eq!(orphan(&format!("{own}-user")), None);
        // The same number, but another process.
        let gone = format!("{START}{}-1", std::process::id());
        assert_eq!(orphan(&format!("{gone}-gateway")), Some(gone));
        for other in ["bp-1-user", "bp-lab-x-1-user", "bp-lab-1", "lab", "bp-lab-"] {
            assert_eq!(orphan(other), None, "{other}");
        }
    }
}
