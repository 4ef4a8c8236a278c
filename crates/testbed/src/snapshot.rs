//! The state of the kernel that daemons change: what must be the same after they have gone.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Result, bail};
use bentpipe_emulator::topology::Topology;
use bentpipe_sys::netns::NetNs;

/// One namespace's links, addresses, rules, routes, tables, settings, sockets and processes, as text to compare.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("ip", &["-o", "link"]),
    ("ip", &["-o", "addr"]),
    ("ip", &["rule"]),
    ("ip", &["-6", "rule"]),
    ("ip", &["route", "show", "table", "all"]),
    ("ip", &["-6", "route", "show", "table", "all"]),
    ("nft", &["-s", "list", "ruleset"]),
    ("ss", &["-Hlntu"]),
    ("ip", &["-o", "tunnel"]),
];

/// State of the four namespaces.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot(Vec<String>);

impl Snapshot {
    /// Reads the state of all namespaces of `topology`.
    pub fn take(topology: &Topology) -> Result<Self> {
        topology
            .namespaces()
            .into_iter()
            .map(namespace)
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Fails with the lines that have come and gone.
    pub fn expect_same(&self, after: &Self) -> Result<()> {
        let mut changes = String::new();
        for (before, after) in self.0.iter().zip(&after.0) {
            for (mark, from, to) in [('-', before, after), ('+', after, before)] {
                for line in from
                    .lines()
                    .filter(|line| !to.lines().any(|other| other == *line))
                {
                    let _ = writeln!(changes, "{mark} {line}");
                }
            }
        }
        if self == after {
            return Ok(());
        }
        bail!("the namespaces are not as before:\n{changes}");
    }
}

fn namespace(netns: &NetNs) -> Result<String> {
    let mut text = format!("namespace {}\n", netns.name());
    for (program, args) in COMMANDS {
        let _ = writeln!(text, "{program} {}:", args.join(" "));
        text += &netns.run(program, args)?;
    }
    text += &netns.enter(settings)??;
    for process in processes(netns)? {
        let _ = writeln!(text, "process {process}");
    }
    Ok(text)
}

/// Every setting of the namespace's interfaces.
fn settings() -> Result<String> {
    let mut text = String::new();
    for family in ["ipv4", "ipv6"] {
        for interface in fs::read_dir(format!("/proc/sys/net/{family}/conf"))? {
            for setting in fs::read_dir(interface?.path())? {
                let path = setting?.path();
                // Some may only be written.
                let value = fs::read_to_string(&path).unwrap_or_default();
                let _ = writeln!(text, "{} = {}", path.display(), value.trim());
            }
        }
    }
    Ok(text)
}

/// The processes in it, by name.
fn processes(netns: &NetNs) -> Result<Vec<String>> {
    let inside = rustix::fs::fstat(netns)?.st_ino;
    let mut names = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Not a process, or one that has just ended.
        let Ok(namespace) = fs::metadata(path.join("ns/net")) else {
            continue;
        };
        if namespace.ino() == inside {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            names.push(format!("{} {}", path.display(), name.trim()));
        }
    }
    Ok(names)
}
