//! Nothing of a host that speaks LES crosses the link in clear, whatever becomes of its daemon, the other end's, and the PEPs.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{LINK_DEVICE, WEB};
use bentpipe_lab::capture::Capture;
use bentpipe_lab::leaks::Prober;
use bentpipe_testbed::peer::{Service, echo};
use bentpipe_testbed::site::near;
use bentpipe_testbed::transfer::{Transfer, Way};

use super::LENGTH;
use super::layered::of_les;
use super::layered_site::{LayeredSite, Role, on_layered_site};
use super::site::{Pep, SOON};
use crate::alone;

/// Time for which each state is watched: twenty rounds of probes.
const WATCHED: Duration = Duration::from_secs(1);

/// Step that brings the site into a state.
type State = fn(&mut LayeredSite) -> Result<()>;

/// States, in order, and whether the ends carry something in them.
const STATES: [(&str, bool, State); 17] = [
    ("guarded, and nothing runs", false, |_| Ok(())),
    ("the daemons start", true, |les| {
        les.run(Role::Server)?;
        les.run(Role::Client)?;
        les.until_keyed()
    }),
    ("all of it runs", true, |_| Ok(())),
    ("SIGKILL of the PEP at the terminal", true, |les| {
        les.site.kill(Pep::Terminal)
    }),
    ("that is started again", true, |les| {
        restart(les, Pep::Terminal)
    }),
    ("SIGKILL of the PEP at the gateway", true, |les| {
        les.site.kill(Pep::Gateway)
    }),
    ("that is started again", true, |les| {
        restart(les, Pep::Gateway)
    }),
    ("the PEPs' tables are flushed", true, |les| {
        for pep in Pep::BOTH {
            let place = les.site.place(pep);
            place.run("nft", &["flush", "ruleset"])?;
        }
        Ok(())
    }),
    ("the host's tables are flushed", true, |les| {
        let user = les.site.topology.user();
        user.run("nft", &["flush", "ruleset"])?;
        Ok(())
    }),
    ("the host's routing rules are deleted", true, |les| {
        let user = les.site.topology.user();
        for priority in ["99", "99", "100"] {
            // As many as there are.
            let _ = user.run("ip", &["rule", "del", "priority", priority]);
        }
        Ok(())
    }),
    ("SIGKILL of the client", false, |les| les.kill(Role::Client)),
    ("the client is started again", true, |les| {
        les.run(Role::Client)?;
        les.until_keyed()
    }),
    ("SIGKILL of the server", false, |les| les.kill(Role::Server)),
    ("the server is started again", false, |les| {
        les.run(Role::Server)
    }),
    ("the server stops", false, |les| les.stop(Role::Server)),
    ("and is started again", false, |les| les.run(Role::Server)),
    ("the client stops", false, |les| les.stop(Role::Client)),
];

fn restart(les: &mut LayeredSite, pep: Pep) -> Result<()> {
    les.site.run(pep)?;
    les.site.until_joined()
}

#[test]
fn nothing_of_a_host_that_speaks_les_leaves_in_clear_in_any_state() {
    let _alone = alone();
    let site = || LayeredSite::plain(near(), "short");
    on_layered_site("LES in clear", site, |les| {
        les.guard()?;
        let [route, _] = les.site.routes();
        // Not everything is refused.
        let _service = Service::start(&route.web, (WEB, 9999).into(), echo)?;
        let _prober = Prober::start(les.site.topology.user())?;
        for (state, carries, step) in STATES {
            let watched = les.site.topology.terminal();
            let capture = Capture::start(watched, LINK_DEVICE, of_les())?;
            step(les).context(state)?;
            thread::sleep(WATCHED);
            let crossed = capture.stop()?;
            println!("{state}: {crossed}");
            let clear = crossed.clear_packets + crossed.marker_packets + crossed.missed;
            ensure!(clear == 0, "{state}: {crossed}");
            let enough = !carries || crossed.tunnel_packets + crossed.idle_packets > 20;
            ensure!(enough, "{state}: {crossed}");
        }
        Ok(())
    });
}

/// Programs of the server's own machine have connections to clients, which another route would lead out once the device is gone.
#[test]
fn a_server_that_stops_lets_no_program_of_its_machine_go_on_in_clear() {
    on_layered_site("a server that stops", LayeredSite::start, |les| {
        let [route, _] = les.site.routes();
        let download = Transfer::start(&route, Way::Download, 20 * LENGTH)?;
        download.until(LENGTH / 4, SOON)?;
        let web = les.site.topology.web().clone();
        let capture = Capture::start(les.site.topology.gateway(), "wan0", of_les())?;
        les.stop(Role::Server)?;
        // TCP repeats what is not acknowledged after 0.2 s, and then later and later.
        thread::sleep(4 * WATCHED);
        let crossed = capture.stop()?;
        println!("a server that stops: {crossed}");
        let clear = crossed.clear_packets + crossed.marker_packets + crossed.missed;
        ensure!(clear == 0, "{crossed}");
        let table = web.run("nft", &["list", "table", "inet", "bentpipe_server"]);
        ensure!(table.is_err(), "its table stays");
        Ok(())
    });
}

/// Without the guard the same host is heard in clear: a capture that does not see that sees nothing.
#[test]
fn a_host_without_les_is_seen_in_clear() {
    let site = || LayeredSite::plain(near(), "short");
    on_layered_site("a host in clear", site, |les| {
        let watched = les.site.topology.terminal();
        let capture = Capture::start(watched, LINK_DEVICE, of_les())?;
        let prober = Prober::start(les.site.topology.user())?;
        thread::sleep(WATCHED);
        drop(prober);
        let crossed = capture.stop()?;
        ensure!(
            crossed.clear_packets > 100 && crossed.marker_packets > 100,
            "{crossed}"
        );
        Ok(())
    });
}
