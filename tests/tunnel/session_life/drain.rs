//! Orderly stops: open flows have `drain_timeout` to end, then everything is gone.

use std::io::Read as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::Process;
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::{Service, echo};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::snapshot::Snapshot;
use bentpipe_testbed::transfer::{Transfer, Way};
use rustix::process::Signal;

use super::{RTT, SLACK, SOON, connect, echo_address, exchange, on_site, route};
use crate::BENTPIPE;

/// Whose stop it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn of(self, site: &Site) -> &Process {
        match self {
            Self::Client => site.client(),
            Self::Server => site.server(),
        }
    }

    /// Gives open flows `time` to end; takes a restart.
    pub(super) fn set_drain_timeout(self, site: &mut Site, time: &str) -> Result<()> {
        site.stop_client()?;
        site.stop_server()?;
        let file = match self {
            Self::Client => site.client_file(),
            Self::Server => site.server_file(),
        };
        edit(
            &file,
            "drain_timeout = \"5 s\"",
            &format!("drain_timeout = \"{time}\""),
        )?;
        site.start_server()?;
        site.start_client()
    }
}

/// SIGTERM in the middle of a download of `length` bytes, after `half` of them.
fn stop_in_mid_download(
    site: &mut Site,
    side: Side,
    half: usize,
    length: usize,
) -> Result<(Transfer, Instant)> {
    let download = Transfer::start(&route(site, RTT), Way::Download, length)?;
    download.until(half, SOON)?;
    side.of(site).signal(Signal::TERM)?;
    Ok((download, Instant::now()))
}

fn drains(site: &mut Site, side: Side) -> Result<()> {
    side.set_drain_timeout(site, "30 s")?;
    let (download, told) = stop_in_mid_download(site, side, 1_000_000, 5_000_000)?;
    side.of(site).wait_for_line("stopping", SOON)?;
    let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
    if side == Side::Client {
        // Neither carried nor let through in clear.
        let refused = connect(site, web.address, RTT).and_then(|mut late| Ok(late.read(&mut [0])?));
        ensure!(refused.is_err(), "a connection was taken in while stopping");
        ensure!(
            web.accepted() == 0,
            "a connection reached the web while stopping"
        );
    }
    let ended = download.finish_whole()?.ended;
    ensure!(ended > told + RTT, "the download was over before the stop");
    let status = side.of(site).wait(SOON)?;
    let lingered = ended.elapsed();
    ensure!(status.code() == Some(0), "stopped with {status}");
    ensure!(
        lingered <= 4 * RTT + SLACK,
        "stopped {lingered:?} after the last flow"
    );
    if side == Side::Server {
        // The client is still there, and so is its service once there is a server again.
        site.client().wait_for_line("tunnel is down", SOON)?;
        let mut late = connect(site, web.address, SOON)?;
        site.start_server()?;
        exchange(&mut late)?;
    }
    Ok(())
}

fn gives_up(site: &mut Site, side: Side) -> Result<()> {
    side.set_drain_timeout(site, "1 s")?;
    let (download, told) = stop_in_mid_download(site, side, 1_000_000, 30_000_000)?;
    let ended = download.finish_reset()?.ended - told;
    let least = Duration::from_secs(1);
    // When the server stops, the news cross the link, through its full queue.
    let most = least + 2 * RTT + SLACK;
    ensure!((least..=most).contains(&ended), "reset after {ended:?}");
    let status = side.of(site).wait(SOON)?;
    ensure!(status.code() == Some(0), "stopped with {status}");
    ensure!(
        told.elapsed() <= most + 2 * RTT,
        "stopped after {:?}",
        told.elapsed()
    );
    Ok(())
}

/// A second signal ends at once what the first one has begun.
fn hurries(site: &mut Site, side: Side) -> Result<()> {
    side.set_drain_timeout(site, "30 s")?;
    let (download, _) = stop_in_mid_download(site, side, 1_000_000, 30_000_000)?;
    side.of(site).wait_for_line("stopping: open flows", SOON)?;
    side.of(site).signal(Signal::TERM)?;
    let told = Instant::now();
    let ended = download.finish_reset()?.ended - told;
    ensure!(ended <= 2 * RTT + SLACK, "reset after {ended:?}");
    side.of(site)
        .wait_for_line("stopping at once, signalled again", SOON)?;
    let status = side.of(site).wait(SOON)?;
    ensure!(status.code() == Some(0), "stopped with {status}");
    let took = told.elapsed();
    ensure!(took <= 4 * RTT + SLACK, "stopped after {took:?}");
    Ok(())
}

/// Runs `case`, and expects the namespaces to be as before once both daemons have stopped.
fn leaving_nothing(name: &str, case: fn(&mut Site, Side) -> Result<()>, side: Side) {
    on_site(name, SiteConfig::new(BENTPIPE), |site| {
        site.stop_client()?;
        site.stop_server()?;
        let before = Snapshot::take(&site.topology)?;
        site.start_server()?;
        site.start_client()?;
        case(site, side)?;
        let _ = site.stop_client();
        let _ = site.stop_server();
        before.expect_same(&Snapshot::take(&site.topology)?)
    });
}

#[test]
fn a_stopping_client_lets_flows_end() {
    leaving_nothing("stopping client", drains, Side::Client);
}

#[test]
fn a_stopping_server_lets_flows_end() {
    leaving_nothing("stopping server", drains, Side::Server);
}

#[test]
fn a_stopping_client_does_not_wait_for_ever() {
    leaving_nothing("impatient client", gives_up, Side::Client);
}

#[test]
fn a_stopping_server_does_not_wait_for_ever() {
    leaving_nothing("impatient server", gives_up, Side::Server);
}

#[test]
fn a_client_that_is_signalled_twice_ends_at_once() {
    leaving_nothing("hurried client", hurries, Side::Client);
}

#[test]
fn a_server_that_is_signalled_twice_ends_at_once() {
    leaving_nothing("hurried server", hurries, Side::Server);
}
