//! What this process may do: capabilities, the limit of open files, and a user namespace for those
//! who are not root.
//!
//! Used once, at start. It never drops or gains privileges of the machine itself: inside the user
//! namespace "root" is the caller, over networks that only this process sees.
#![expect(
    unsafe_code,
    reason = "unshare is unsafe in rustix because of CLONE_FILES"
)]

use std::fs;
use std::io;

use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, getgid, getrlimit, getuid, setrlimit};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe};

use crate::command::run;

/// True if the calling thread may configure the network of its namespace (CAP_NET_ADMIN).
#[must_use]
pub fn has_net_admin() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Raises the soft limit of open files to the hard one; returns both, as files (`u64::MAX`: none).
///
/// # Errors
/// The kernel refuses, which it does not do for a raise up to the hard limit.
pub fn raise_nofile() -> io::Result<(u64, u64)> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        let error = io::Error::from(error);
        let text = format!(
            "cannot raise RLIMIT_NOFILE from {:?} to {:?}: {error}",
            limit.current, limit.maximum
        );
        io::Error::new(error.kind(), text)
    })?;
    let files = limit.maximum.unwrap_or(u64::MAX);
    Ok((files, files))
}

/// Makes an unprivileged process root of user, mount and network namespaces of its own: TUN devices,
/// `ip netns` and nftables then work, on networks that exist for this process and its children alone.
/// `/run` becomes an empty tmpfs, loopback is up, and there is no way out to the machine's network.
///
/// Call it first thing in `main`: the kernel refuses once a second thread runs.
///
/// # Errors
/// The machine forbids user namespaces; the text names the setting that does.
pub fn enter_user_namespace() -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() > 1 {
        let text = "cannot enter a user namespace: this process already has several threads";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // Read now: afterwards both are the overflow id until the maps are written.
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET;
    // SAFETY: the hazard of `unshare` is CLONE_FILES, which would part the descriptor tables of
    // threads that share descriptors; it is not among the flags.
    unsafe { unshare_unsafe(flags) }.map_err(|error| forbidden("create", &error.into()))?;
    // The kernel lets an unprivileged process write a gid map only after it gave up setgroups.
    write_map("setgroups", "deny")?;
    write_map("uid_map", &format!("0 {uid} 1"))?;
    write_map("gid_map", &format!("0 {gid} 1"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", "/run", "tmpfs", flags, Some(c"mode=0755"))
        .map_err(|error| forbidden("mount a private /run in", &error.into()))?;
    run("ip", &["link", "set", "lo", "up"]).map(drop)
}

fn write_map(file: &str, content: &str) -> io::Result<()> {
    fs::write(format!("/proc/self/{file}"), content)
        .map_err(|error| forbidden(&format!("write {file} of"), &error))
}

fn forbidden(action: &str, error: &io::Error) -> io::Error {
    let mend = culprit().unwrap_or_else(|| {
        "run as root, or where user namespaces are allowed (containers often forbid them)".into()
    });
    io::Error::new(
        error.kind(),
        format!("cannot {action} a user namespace: {error}; {mend}"),
    )
}

/// The setting that forbids user namespaces here, if one of the known ones does.
fn culprit() -> Option<String> {
    const SETTINGS: [(&str, &str, &str); 3] = [
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "15000"),
    ];
    SETTINGS.iter().find_map(|(name, forbids, allows)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let value = fs::read_to_string(path).ok()?;
        (value.trim() == *forbids).then(|| {
            format!("{name} is {forbids}: run as root, or `sysctl {name}={allows}` as root")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_meets_the_hard_one() {
        let (soft, hard) = raise_nofile().unwrap();
        assert_eq!(soft, hard);
        assert_eq!(
            getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            hard
        );
    }

    #[test]
    fn several_threads_are_refused_by_name() {
        // The test harness itself is the second thread.
        let error = std::thread::spawn(|| enter_user_namespace().unwrap_err())
            .join()
            .unwrap();
        assert!(error.to_string().contains("several threads"), "{error}");
    }
}
