//! Pages that bentpipe fetches ahead: what its files say of them, and the local CA that the user's browsers are given, as an
//! operator would give it to them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use bentpipe_emulator::topology::Topology;
use bentpipe_sys::command::{run_command, tool};

use crate::workload::{Hosts, corpus};

/// File in a topology's directory with the authority of the web's hosts; without it, a server trusts those of the system alone.
pub(crate) const WEB_AUTHORITY: &str = "web-ca.pem";

/// Local CA of the client, in the topology's directory.
const LOCAL_AUTHORITY: &str = "state/ca/ca.pem";

/// Pages whose objects are fetched ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagesAhead {
    /// Those in clear.
    Clear,
    /// Those of the web's hosts over TLS, too.
    Trusted,
}

impl PagesAhead {
    /// Tables of the server's file and of the client's.
    pub(super) fn tables(self, topology: &Topology) -> [String; 2] {
        let prefetch = "\n[web]\nprefetch = true\n";
        if self == Self::Clear {
            return [prefetch.to_owned(), prefetch.to_owned()];
        }
        let trusted = format!("{prefetch}tls = \"trusted\"\n");
        let roots = match topology.directory().join(WEB_AUTHORITY).exists() {
            true => format!("roots = \"{WEB_AUTHORITY}\"\n"),
            false => String::new(),
        };
        let names = Hosts::of_topology(corpus::HOSTS).names();
        [
            format!("{trusted}{roots}"),
            format!("{trusted}names = {names:?}\n"),
        ]
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
