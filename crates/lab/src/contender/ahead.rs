//! Pages that bentpipe fetches ahead: what its files say of them, the local CA that the user's browsers are given, as an
//! operator would give it to them, and the origin of DSSL before the web server.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result};
use bentpipe_emulator::topology::{Process, Topology};
use bentpipe_sys::command::{run_command, run_with_input, tool};

use super::bentpipe::{keys, run_daemon, write};
use crate::workload::{HTTP_PORT, HTTPS_PORT, Hosts, MOST_SERVERS, corpus};

/// File in a topology's directory with the authority of the web's hosts; without it, a server trusts those of the system alone.
pub(crate) const WEB_AUTHORITY: &str = "web-ca.pem";

/// Files in a topology's directory with the certificate of the web's hosts, and its key, for who stands before the web server.
pub(crate) const WEB_CERTIFICATE: &str = "web-site.pem";
pub(crate) const WEB_KEY: &str = "web-site.key";

/// Port of the first origin of DSSL; the others have the next ones.
const ORIGIN_PORT: u16 = 8443;

/// Local CA of the client, in the topology's directory.
const LOCAL_AUTHORITY: &str = "state/ca/ca.pem";

/// Pages whose objects are fetched ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagesAhead {
    /// Pages in clear.
    Clear,
    /// Those of the web's hosts over TLS, too.
    Trusted,
    /// Those of the web's hosts over TLS that nobody on the way reads, with an origin of DSSL before the web server.
    Sealed(DsslMode),
}

/// Order of the handshakes of DSSL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DsslMode {
    /// One after the other.
    Full,
    /// With the hub first, then with the origin.
    TwoPhase,
    /// All at one time.
    Quick,
}

impl DsslMode {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Full, Self::TwoPhase, Self::Quick];

    /// Word for it in a client's file, and behind `dssl-` as a contender's name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::TwoPhase => "two-phase",
            Self::Quick => "quick",
        }
    }
}

impl PagesAhead {
    /// Tables of the server's file and of the client's.
    pub(super) fn tables(self, topology: &Topology) -> [String; 2] {
        let prefetch = "\n[web]\nprefetch = true\n";
        if self == Self::Clear {
            return [prefetch.to_owned(), prefetch.to_owned()];
        }
        let roots = match topology.directory().join(WEB_AUTHORITY).exists() {
            true => format!("roots = \"{WEB_AUTHORITY}\"\n"),
            false => String::new(),
        };
        let names = Hosts::of_topology(corpus::HOSTS).names();
        if let Self::Sealed(mode) = self {
            let mode = mode.name();
            return [
                format!("\n[web]\nhub = true\n{roots}"),
                format!("\n[dssl]\norigins = {names:?}\nmode = \"{mode}\"\n{roots}"),
            ];
        }
        let trusted = format!("{prefetch}tls = \"trusted\"\n");
        [
            format!("{trusted}{roots}"),
            format!("{trusted}names = {names:?}\n"),
        ]
    }

    /// Starts the origins that this needs, each before a web server of its own, with the server's key on its list: one before
    /// each of the first hosts, of which the first is also before all hosts behind them.
    pub(super) fn start_origins(
        self,
        bentpipe: &Path,
        topology: &Topology,
    ) -> Result<Vec<Process>> {
        let Self::Sealed(_) = self else {
            return Ok(Vec::new());
        };
        let hub = keys(bentpipe, topology.directory(), "server")?;
        let web = topology.web();
        let hosts = Hosts::of_topology(MOST_SERVERS);
        // The web servers have the port already.
        run_with_input(web.command("nft").args(["-f", "-"]), &redirection(&hosts))?;
        let start = |(place, (_, address)): (u16, (&str, IpAddr))| {
            let name = format!("origin-{place}");
            let (port, upstream) = (ORIGIN_PORT + place, SocketAddr::new(address, HTTP_PORT));
            let text = format!(
                "status_socket = \"{name}.sock\"\n[origin]\nlisten = \":{port}\"\nupstream = \"http://{upstream}\"\n\
                 certificate = \"{WEB_CERTIFICATE}\"\nkey = \"{WEB_KEY}\"\nhubs = [\"{hub}\"]\n"
            );
            write(topology, &name, &text)?;
            run_daemon(bentpipe, topology, web, "origin", &name)
        };
        (0..).zip(hosts.iter()).map(start).collect()
    }

    /// Makes the local CA that the client's file, which is written, asks for.
    pub(super) fn prepare(self, bentpipe: &Path, client_file: &Path) -> Result<()> {
        if self == Self::Clear {
            return Ok(());
        }
        let mut command = tool(bentpipe);
        command.args(["ca", "init", "--config"]).arg(client_file);
        run_command(&mut command).map(drop).context("no local CA")
    }
}

/// Rules of nft that lead TLS of each of `hosts` to its own origin, and of all others to the first one.
fn redirection(hosts: &Hosts) -> String {
    let mut rules = String::new();
    for (port, (_, address)) in (ORIGIN_PORT..).zip(hosts.iter()).skip(1) {
        let family = if address.is_ipv4() { "ip" } else { "ip6" };
        rules +=
            &format!("    {family} daddr {address} tcp dport {HTTPS_PORT} redirect to :{port}\n");
    }
    format!(
        "table inet bentpipe_lab_origin {{\n  chain prerouting {{\n    type nat hook prerouting priority dstnat;\n{rules}    \
         tcp dport {HTTPS_PORT} redirect to :{ORIGIN_PORT}\n  }}\n}}\n"
    )
}

/// Certificate, in PEM, of the local CA that `topology`'s browsers are to trust; `None` without one.
///
/// # Errors
/// The file cannot be read.
pub(super) fn local_authority(topology: &Topology) -> Result<Option<String>> {
    let file = topology.directory().join(LOCAL_AUTHORITY);
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file);
    text.with_context(|| format!("cannot read {}", file.display()))
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_web_server_is_behind_an_origin_of_its_own() {
        let rules = redirection(&Hosts::of_topology(MOST_SERVERS));
        let led: Vec<&str> = rules
            .lines()
            .map(str::trim)
            .filter(|line| line.contains("redirect"))
            .collect();
        assert_eq!(
            led,
            [
                "ip6 daddr fd00:30::11 tcp dport 443 redirect to :8444",
                "ip daddr 10.30.0.12 tcp dport 443 redirect to :8445",
                "ip6 daddr fd00:30::13 tcp dport 443 redirect to :8446",
                "tcp dport 443 redirect to :8443",
            ]
        );
    }
}
