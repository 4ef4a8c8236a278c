//! The command lines of `demo` and `emulate`.

use std::path::PathBuf;

use bentpipe_lab::TimeSpan;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave everything up until Ctrl-C, and print how to enter it
    #[arg(long)]
    pub(crate) keep: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  bentpipe emulate geo
  bentpipe emulate geo --uplink eth0
  bentpipe emulate my.toml --join terminal,gateway --probes probes.jsonl
  bentpipe emulate my.toml --interfaces eth1,eth2 --plot run.html
  bentpipe emulate --plot run.html --from probes.jsonl
  bentpipe emulate --selftest --quick";

#[derive(Debug, Args)]
pub(crate) struct Emulate {
    /// A scenario file, or the name of a preset (--presets lists them)
    #[arg(required_unless_present_any = ["selftest", "from", "presets"])]
    pub(crate) scenario: Option<String>,

    /// The namespaces of the terminals and, last, of the gateway, as names or paths
    #[arg(long, value_name = "TERMINAL_NETNS,GATEWAY_NETNS", value_parser = several)]
    pub(crate) join: Option<Namespaces>,

    /// Two Ethernet interfaces of this machine, towards the terminal and towards the gateway
    #[arg(long, value_name = "TERMINAL_IF,GATEWAY_IF", value_parser = pair, conflicts_with = "join")]
    pub(crate) interfaces: Option<(String, String)>,

    /// Beginning of the names of whole namespaces, as in NAME-user [default: bp-PROCESS]
    #[arg(long, value_name = "NAME", value_parser = beginning, conflicts_with_all = ["join", "interfaces"])]
    pub(crate) prefix: Option<String>,

    /// Let hosts of the emulated LAN reach this machine's real network by this interface, over the link: outwards alone, in IPv4
    #[arg(long, value_name = "INTERFACE", conflicts_with_all = ["join", "interfaces"])]
    pub(crate) uplink: Option<String>,

    /// Stop after this time, as in "60 s"
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<TimeSpan>,

    #[command(flatten)]
    pub(crate) outputs: Outputs,

    /// Draw a plot of an earlier run's probes into --plot, and do nothing else
    #[arg(long, value_name = "PROBES", requires = "plot", conflicts_with_all = ["scenario", "join", "interfaces", "uplink"])]
    pub(crate) from: Option<PathBuf>,

    /// List the presets
    #[arg(long)]
    pub(crate) presets: bool,

    /// Check the emulator on this machine against closed forms and published figures; exits with 1 if it fails
    #[arg(long, conflicts_with_all = ["scenario", "join", "interfaces", "uplink", "from"])]
    pub(crate) selftest: bool,

    /// The shorter self-test, of less than a minute
    #[arg(long, requires = "selftest")]
    pub(crate) quick: bool,

    /// Of the self-test only what has this in its title, as in "TCP reno", "rate 50" or "from outside"
    #[arg(long, value_name = "TEXT", requires = "selftest")]
    pub(crate) only: Option<String>,
}

/// Records of an emulation.
#[derive(Debug, Args)]
pub(crate) struct Outputs {
    /// Write snapshots here, as lines of JSON; their period is the scenario's
    #[arg(long, value_name = "FILE")]
    pub(crate) probes: Option<PathBuf>,

    /// Write every packet's arrival, delivery or drop here, a line each
    #[arg(long, value_name = "FILE")]
    pub(crate) packet_log: Option<PathBuf>,

    /// Capture both ends of the link here, as pcapng with nanoseconds
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,

    /// Draw rate, queue, C/N, delay and drops over time into this HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// Names of namespaces. A type of its own: clap reads a bare list as an option that is given several times.
#[derive(Clone, Debug)]
pub(crate) struct Namespaces(pub(crate) Vec<String>);

fn several(text: &str) -> Result<Namespaces, &'static str> {
    let names: Vec<_> = text.split(',').map(str::to_owned).collect();
    if names.len() < 2 || names.iter().any(String::is_empty) {
        return Err("name at least two namespaces with a comma between them");
    }
    Ok(Namespaces(names))
}

/// Names of namespaces are given to `ip netns exec` as one word, and are names of files.
fn beginning(text: &str) -> Result<String, &'static str> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !begins_well || !text.chars().all(is_fit) || text.len() > 64 {
        return Err(
            "begin with a letter or digit, and go on with letters, digits, `-`, `_` and `.`, 64 at most",
        );
    }
    Ok(text.to_owned())
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once(',') {
        Some((terminal, gateway)) if terminal == gateway && !terminal.is_empty() => {
            Err("terminal and gateway need two interfaces, not one twice")
        }
        Some((terminal, gateway)) if !terminal.is_empty() && !gateway.is_empty() => {
            Ok((terminal.to_owned(), gateway.to_owned()))
        }
        _ => Err("name two interfaces with a comma between them"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::{Cli, Command};

    #[test]
    fn what_cannot_be_a_name_of_a_namespace_is_refused() {
        let parse =
            |value: &str| Cli::try_parse_from(["bentpipe", "emulate", "geo", "--prefix", value]);
        for value in ["", ".", "a b", "../a", "-a", "a/b"] {
            assert!(parse(value).is_err(), "{value}");
        }
        assert!(parse("site-1_a.b").is_ok());
        let twice = ["bentpipe", "emulate", "geo", "--interfaces", "lo,lo"];
        assert!(Cli::try_parse_from(twice).is_err());
    }

    #[test]
    fn a_list_of_namespaces_is_one_value() {
        let line = ["bentpipe", "emulate", "geo", "--join", "t1,t2,g"];
        let Command::Emulate(options) = Cli::parse_from(line).command else {
            panic!("another command");
        };
        assert_eq!(options.join.expect("it was given").0, ["t1", "t2", "g"]);
    }
}
