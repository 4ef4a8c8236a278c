//! A release and today's program at the two ends of a link, as in the midst of an upgrade.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::GATEWAY_SAT;
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, TLS_PORT};

use super::{RTT, SOON, everything, on_site, route, talk};
use crate::BENTPIPE;
use crate::dns::resolver::Resolver;
use crate::dns::web;

/// Variable with the path of the release's program.
const OLDER: &str = "BENTPIPE_OLDER";

/// Either end may be upgraded first, on the files and the state that it has, and downgraded again; what the newer end alone knows is
/// not used.
#[test]
#[ignore = "needs the program of a release; `make compat-test` builds it"]
fn everything_crosses_between_a_release_and_today() {
    let Ok(older) = std::env::var(OLDER) else {
        println!("skipped: {OLDER} names no program; `make compat-test` does");
        return;
    };
    let older: &'static str = older.leak();
    let config = SiteConfig {
        program: older,
        server_program: older,
        ..everything::config()
    };
    on_site("a release and today", config, |site| {
        let _resolver = Resolver::start(&Place::from(site.topology.web()), web())?;
        let released = fs::read_to_string(site.server_file())?;
        name_what_servers_have_learnt(site)?;
        site.replace_server(BENTPIPE)?;
        found(site)?;
        everything::crosses(site, "first.example.com").context("a client of the release")?;

        fs::write(site.server_file(), released)?;
        site.replace_server(older)?;
        name_what_clients_have_learnt(site)?;
        site.replace_client(BENTPIPE)?;
        found(site)?;
        everything::crosses(site, "second.example.com").context("a server of the release")
    });
}

/// Configures of the server what releases may not know.
fn name_what_servers_have_learnt(site: &Site) -> Result<()> {
    let more = format!(
        "listen_tls = \"{GATEWAY_SAT}:{TLS_PORT}\"\n[sle]\nlisten = \"{GATEWAY_SAT}:4434\"\n[dns]\n"
    );
    edit(&site.server_file(), "[dns]\n", &more)
}

/// Configures of the client what releases may not know.
fn name_what_clients_have_learnt(site: &Site) -> Result<()> {
    let tls = format!("tls = \"{GATEWAY_SAT}:{TLS_PORT}\"\npublic_key");
    edit(&site.client_file(), "public_key", &tls)?;
    edit(&site.client_file(), "[intercept]\n", "[sle]\n[intercept]\n")
}

/// Returns once a connection crosses: the first one may be what finds out about a new server.
fn found(site: &Site) -> Result<()> {
    let began = Instant::now();
    while let Err(error) = talk(&route(site, RTT)) {
        ensure!(began.elapsed() < SOON, "{error:#}");
    }
    Ok(())
}
