//! How much the process may have: descriptors, and memory of the machine or of its control group.

use std::io;
use std::path::{Path, PathBuf};

use bentpipe_units::ByteCount;
use rustix::io::Errno;

use super::now;
use crate::throttle::Throttle;

/// Memory that a process is taken to have where the system does not say.
const MEMORY_UNKNOWN: u64 = 1 << 30;

/// Descriptors below which a busy site runs out: two per flow.
const COMFORTABLE_FILES: u64 = 65_536;

/// Descriptors that a process is taken to have where the system does not say: what POSIX shells give.
const FILES_UNKNOWN: u64 = 1024;

/// Files in which the kernel says how many connections its table has, and may have.
const CONNECTIONS: [&str; 2] = [
    "/proc/sys/net/netfilter/nf_conntrack_count",
    "/proc/sys/net/netfilter/nf_conntrack_max",
];

/// Raises RLIMIT_NOFILE to its hard limit, or names the shortfall. Once nothing else can go wrong: a daemon that cannot
/// start says why in one line.
pub(crate) fn raise_file_limit() {
    #[cfg(target_os = "linux")]
    match bentpipe_sys::privilege::raise_nofile() {
        Ok((_, hard)) if hard < COMFORTABLE_FILES => tracing::warn!(
            "at most {hard} open files: enough for {} connections; raise LimitNOFILE",
            hard / 2
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!("cannot raise the limit on open files: {error}"),
    }
}

/// Files that this process may have open, after the limit was raised as far as it goes.
pub(crate) fn file_limit() -> usize {
    #[cfg(target_os = "linux")]
    let limit = bentpipe_sys::privilege::raise_nofile().map_or(FILES_UNKNOWN, |(soft, _)| soft);
    #[cfg(not(target_os = "linux"))]
    let limit = FILES_UNKNOWN;
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Says, at most once a minute, that this process has no descriptors left, if that is what `error` means: then true.
pub(crate) fn tell_of_files(error: &io::Error) -> bool {
    static TOLD: Throttle = Throttle::new();

    let used_up = |errno| matches!(errno, Errno::MFILE | Errno::NFILE);
    if !Errno::from_io_error(error).is_some_and(used_up) {
        return false;
    }
    if !TOLD.is_due(now()) {
        return true;
    }
    let limit = file_limit();
    tracing::warn!(
        "no file descriptors left ({error}; limit {limit}): new connections fail until others end; raise LimitNOFILE"
    );
    true
}

/// Says, at most once a minute, that the kernel finds no local port for a connection, if that is what `error` means.
pub(crate) fn tell_of_ports(error: &io::Error) {
    static TOLD: Throttle = Throttle::new();

    if error.kind() == io::ErrorKind::AddrNotAvailable && TOLD.is_due(now()) {
        tracing::warn!(
            "no local port or address left for a connection ({error}): those to one destination fail until others end; widen \
             net.ipv4.ip_local_port_range, or find out who opens so many"
        );
    }
}

/// Says, at most once a minute, that the kernel's table of connections is full, if it is: whatever is new is then dropped without
/// a word to anybody.
pub(crate) fn tell_of_connections() {
    static TOLD: Throttle = Throttle::new();

    let number = |file: &str| -> Option<u64> {
        let bytes = crate::state::read(Path::new(file), 64).ok()?;
        String::from_utf8(bytes).ok()?.trim().parse().ok()
    };
    // Kernels without such a table have no files.
    let [Some(count), Some(most)] = CONNECTIONS.map(number) else {
        return;
    };
    if is_full(count, most) && TOLD.is_due(now()) {
        tracing::warn!(
            "the kernel's table of connections is full ({count} of {most}): new ones are dropped, of this machine as of its LANs; \
             raise net.netfilter.nf_conntrack_max, or find out by `conntrack -L` who has so many"
        );
    }
}

/// True if `count` of at most `most` entries leave too little room: the table is cleared of what is old in steps. 0 is no limit.
const fn is_full(count: u64, most: u64) -> bool {
    most > 0 && count >= most - most / 20
}

/// Ceiling of what all tunnels hold together where the configuration names none: half of the memory that the process may use,
/// of the machine or of its control group.
pub(crate) fn total_memory(configured: Option<ByteCount>) -> u64 {
    configured.map_or_else(|| usable_memory() / 2, ByteCount::as_u64)
}

fn usable_memory() -> u64 {
    let text = |path: &Path| {
        let bytes = crate::state::read(path, 1 << 16).ok()?;
        String::from_utf8(bytes).ok()
    };
    let machine = text(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kilobytes = line.trim().strip_suffix(" kB")?;
        Some(kilobytes.trim().parse::<u64>().ok()? << 10)
    });
    let groups = text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = memory_limits(&groups).filter_map(|file| text(&file)?.trim().parse::<u64>().ok());
    let known = machine.into_iter().chain(limits).min();
    known.unwrap_or(MEMORY_UNKNOWN)
}

/// Files that may hold a limit of this process's memory, in bytes, of what `/proc/self/cgroup` says: of its group and of all groups
/// around that, in either version of control groups. "max" and a number beyond all memory are no limits.
fn memory_limits(groups: &str) -> impl Iterator<Item = PathBuf> {
    let of = |root: &'static str, path: &str, file: &'static str| {
        let group = Path::new(root).join(path);
        let inside = group.ancestors().filter(|group| group.starts_with(root));
        inside.map(|group| group.join(file)).collect::<Vec<_>>()
    };
    groups.lines().flat_map(move |line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next(), parts.next().unwrap_or_default());
        let path = path.trim_start_matches('/');
        match controllers {
            Some("") => of("/sys/fs/cgroup", path, "memory.max"),
            Some(list) if list.split(',').any(|name| name == "memory") => {
                of("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
            }
            _ => Vec::new(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_connections_is_full_with_little_room_left() {
        let full = [(300, 300), (295, 300), (301, 300), (1, 1)];
        let free = [(200, 300), (0, 300), (70_000, 0), (0, 1)];
        assert!(full.iter().all(|(count, most)| is_full(*count, *most)));
        assert!(!free.iter().any(|(count, most)| is_full(*count, *most)));
    }

    #[test]
    fn limits_of_both_versions_of_control_groups_are_looked_for() {
        let files = |groups: &str| -> Vec<String> {
            let files = memory_limits(groups);
            files.map(|file| file.display().to_string()).collect()
        };
        let second = [
            "/sys/fs/cgroup/a/b/memory.max",
            "/sys/fs/cgroup/a/memory.max",
        ];
        assert_eq!(files("0::/a/b\n")[..2], second);
        assert_eq!(files("0::/a/b\n").len(), 3, "the root, and nothing above");
        let first = ["/sys/fs/cgroup/memory/sat/memory.limit_in_bytes"];
        let groups = "12:cpu,cpuacct:/other\n4:hugetlb,memory:/sat\n1:name=systemd:/\n";
        assert_eq!(files(groups)[..1], first);
        assert!(files("broken\n").is_empty());
    }
}
