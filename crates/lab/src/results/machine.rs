//! Where results were made, as far as it may explain them.

use std::collections::BTreeMap;
use std::{fmt, fs};

use bentpipe_sys::command::{run_command, tool};
use serde::{Deserialize, Serialize};

use crate::contender::hystart;

/// Settings of the machine that TCP's figures depend on.
const SYSCTLS: [&str; 8] = [
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_ecn",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/default_qdisc",
];
/// The one that is a parameter of the kernel's CUBIC.
const HYSTART: &str = "module.tcp_cubic.hystart";
/// Programs that the lab starts besides contenders, and how each tells its version.
const TOOLS: [(&str, &str); 5] = [
    ("ip", "-V"),
    ("nft", "--version"),
    ("iperf3", "--version"),
    ("chromium", "--version"),
    ("node", "--version"),
];

/// Machine that it ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and release of the kernel.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// Number of processors.
    pub cpus: usize,
    /// Settings of the kernel.
    pub sysctls: BTreeMap<String, String>,
    /// Versions of the tools that are there.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
}

impl Machine {
    /// The machine that this runs on.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let value = |line: &str| {
            line.split_once(':')
                .map(|(_, value)| value.trim().to_owned())
        };
        let sysctl = |key: &&str| {
            let text = fs::read_to_string(format!("/proc/sys/{key}")).ok()?;
            let words: Vec<&str> = text.split_whitespace().collect();
            Some((key.replace('/', "."), words.join(" ")))
        };
        let hystart = hystart::setting().map(|value| (HYSTART.to_owned(), value));
        Self {
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            cpu: info
                .lines()
                .find(|line| line.starts_with("model name"))
                .and_then(value)
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            sysctls: SYSCTLS.iter().filter_map(sysctl).chain(hystart).collect(),
            tools: TOOLS.iter().filter_map(version).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn example(kernel: &str) -> Self {
        Self {
            kernel: kernel.into(),
            cpu: "c".into(),
            cpus: 2,
            sysctls: BTreeMap::new(),
            tools: BTreeMap::new(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} × {}", self.kernel, self.cpus, self.cpu)
    }
}

fn version((name, argument): &(&str, &str)) -> Option<(String, String)> {
    let text = run_command(tool(name).arg(argument)).ok()?;
    let first = text.lines().next()?.trim().to_owned();
    Some(((*name).to_owned(), first))
}
