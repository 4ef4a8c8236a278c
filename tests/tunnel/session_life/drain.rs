//! Orderly stops: open flows have `drain_timeout` to end, then everything is gone.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
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

/// Waits until the client's rules have what hosts begin wait for the next client: they come after the line that it stops.
fn until_in_force(site: &Site) -> Result<()> {
    let chain = ["list", "chain", "inet", "bentpipe_client", "draining"];
    let deadline = Instant::now() + SOON;
    while !site
        .topology
        .terminal()
        .run("nft", &chain)?
        .contains("drop")
    {
        ensure!(Instant::now() < deadline, "nothing has hosts wait");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
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
    let (download, told) = stop_in_mid_download(site, side, 1_000_000, 8_000_000)?;
    side.of(site).wait_for_line("stopping", SOON)?;
    let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
    if side == Side::Client {
        until_in_force(site)?;
        // Neither carried nor let through in clear, nor refused.
        let late = brief_attempt(site, web.address)?;
        ensure!(
            late == Some(ErrorKind::TimedOut),
            "while stopping: {late:?}"
        );
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

/// Outcome of an attempt of a host that waits for two round trips, longer than to the first repetition; `None`: it is connected.
fn brief_attempt(site: &Site, to: SocketAddr) -> Result<Option<ErrorKind>> {
    let connecting = || TcpStream::connect_timeout(&to, 3 * RTT);
    let outcome = Place::from(site.topology.user()).at(connecting)?;
    Ok(outcome.err().map(|error| error.kind()))
}

/// As an upgrade stops a client and starts the next: what hosts begin meanwhile is the next one's, and nothing leaves in clear.
fn hands_over(site: &mut Site, on_failure: &str) -> Result<()> {
    site.stop_client()?;
    let table = "[intercept]\n";
    edit(
        &site.client_file(),
        table,
        &format!("{table}on_failure = \"{on_failure}\"\n"),
    )?;
    let file = site.client_file();
    let guard = |arguments: &[&str]| -> Result<()> {
        let mut command = site.topology.terminal().command(BENTPIPE);
        let done = command.arg("guard").args(arguments).status()?;
        ensure!(done.success(), "guard {arguments:?}: {done}");
        Ok(())
    };
    guard(&["on", "--config", file.to_str().context("a path")?])?;
    site.start_client()?;
    Side::Client.set_drain_timeout(site, "30 s")?;
    let (download, _) = stop_in_mid_download(site, Side::Client, 1_000_000, 8_000_000)?;
    site.client().wait_for_line("stopping", SOON)?;
    let capture = site.watch()?;
    let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
    until_in_force(site)?;
    let (user, to) = (Place::from(site.topology.user()), web.address);
    let late = thread::spawn(move || user.at(|| TcpStream::connect_timeout(&to, SOON)));
    download.finish_whole()?;
    let status = site.client().wait(SOON)?;
    ensure!(status.code() == Some(0), "stopped with {status}");
    ensure!(!late.is_finished(), "taken in, or refused, while stopping");
    ensure!(web.accepted() == 0, "a connection reached the web");
    site.start_client()?;
    let late = late.join().map_err(|_| anyhow!("no outcome"))??;
    exchange(&mut late.context("a connection that was begun while stopping")?)?;
    capture.stop()?.expect_only_tunnel()?;
    site.topology
        .terminal()
        .command(BENTPIPE)
        .args(["guard", "off"])
        .status()?;
    Ok(())
}

#[test]
fn what_hosts_begin_while_a_client_stops_is_the_next_clients() {
    for on_failure in ["block", "direct"] {
        on_site("handing over", SiteConfig::new(BENTPIPE), |site| {
            hands_over(site, on_failure)
        });
    }
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
