//! Last bytes of connections that have ended for the daemon that stops: a slow host gets them from the kernel all the same.

use std::io::{self, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::peer::{Handler, Service, accept, payload, read_exactly, read_to_eof};
use bentpipe_testbed::route::{Place, Route};
use bentpipe_testbed::site::{Carried, Site, SiteConfig};
use bentpipe_testbed::transfer::Way;
use rustix::process::Signal;

use super::drain::Side;
use super::sealed::sealing;
use super::{RTT, SOON, echo_address, on_site, route};
use crate::BENTPIPE;

/// Bytes of a download: more than the host's kernel takes unread, less than the client's kernel holds for it.
pub(super) const LENGTH: usize = 30_000;

/// Bytes that a slow receiver takes at once.
const LITTLE: usize = 10_000;

/// Times that a slow receiver takes something.
const PIECES: usize = 50;

/// Time between two of these.
const PAUSE: Duration = Duration::from_millis(100);

/// Time in which all of a download has arrived at the client.
const PATIENTLY: Duration = Duration::from_secs(6);

/// Time in which a client that has nothing to wait for has stopped.
const STOPPED: Duration = Duration::from_secs(5);

/// Bytes of a download of which the client has to hold some itself, less than it takes in.
const MORE: usize = 150_000;

/// Sends [`MORE`] bytes and an end, and waits for the other end.
fn say_more(mut stream: TcpStream) -> Result<()> {
    stream.write_all(&payload(MORE))?;
    stream.shutdown(Shutdown::Write)?;
    read_to_eof(&mut stream).map(drop)
}

/// Sends [`LENGTH`] bytes and an end, and waits for the other end.
fn say_much(mut stream: TcpStream) -> Result<()> {
    stream.write_all(&payload(LENGTH))?;
    stream.shutdown(Shutdown::Write)?;
    read_to_eof(&mut stream).map(drop)
}

/// One direction of a connection, whose other direction has ended before: the receiver takes [`LITTLE`] bytes each [`PAUSE`], and must
/// get all and an end in order.
fn half_closed(route: &Route, way: Way) -> Result<JoinHandle<Result<()>>> {
    let (listener, address) = route.listen()?;
    let user = route.connect(address)?;
    let web = accept(&listener, route.patience)?;
    let (mut from, mut to) = match way {
        Way::Download => (web, user),
        Way::Upload => (user, web),
    };
    to.shutdown(Shutdown::Write)?;
    read_to_eof(&mut from)?;
    Ok(thread::spawn(move || {
        let sender = thread::spawn(move || {
            from.write_all(&payload(LITTLE * PIECES))?;
            from.shutdown(Shutdown::Write)?;
            io::Result::Ok(from)
        });
        for piece in 0..PIECES {
            thread::sleep(PAUSE);
            read_exactly(&mut to, LITTLE).with_context(|| format!("{way:?}, piece {piece}"))?;
        }
        ensure!(read_to_eof(&mut to)?.is_empty(), "more than was sent");
        sender.join().expect("no panic")?;
        Ok(())
    }))
}

/// Waits until the client has had a flow, and has none any more.
fn until_no_flow(site: &Site) -> Result<()> {
    let deadline = Instant::now() + SOON;
    loop {
        let status = site.client_report()?;
        let count = |part: &serde_json::Value, name: &str| part[name].as_u64().unwrap_or(0);
        let (tunnel, sealed) = (&status["flows"], &status["sle"]);
        let opened = count(tunnel, "opened_total") + count(sealed, "flows_total");
        let open = count(tunnel, "active") + count(sealed, "flows_active");
        if opened > 0 && open == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{open} of {opened} flows open");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A host that has read nothing when the client is told to stop; the flow of its download has ended. Returns what it reads, to an end
/// in order.
pub(super) fn read_late(
    site: &mut Site,
    handler: Handler,
    begin: impl FnOnce(&Site, &Service) -> Result<TcpStream>,
) -> Result<Vec<u8>> {
    Side::Client.set_drain_timeout(site, "60 s")?;
    let web = Service::start(&Place::from(site.topology.web()), echo_address(), handler)?;
    let mut host = begin(site, &web)?;
    until_no_flow(site)?;
    site.client().signal(Signal::TERM)?;
    site.client().wait_for_line("stopping", SOON)?;
    // One that waits for the host is still there.
    let _ = site.client().wait(STOPPED);
    let read = read_to_eof(&mut host)?;
    let status = site.client().wait(SOON)?;
    ensure!(status.code() == Some(0), "stopped with {status}");
    Ok(read)
}

#[test]
fn a_slow_host_gets_the_last_bytes_from_a_stopping_client() {
    for (name, config) in [
        ("a slow host", SiteConfig::new(BENTPIPE)),
        ("a slow host behind a splitter", splitter()),
        ("a slow host of sealed flows", sealing()),
    ] {
        on_site(name, config, |site| {
            let read = read_late(site, say_much, |site, web| {
                let host = route(site, RTT).connect_slowly(web.address)?;
                host.shutdown(Shutdown::Write)?;
                Ok(host)
            })?;
            ensure!(read == payload(LENGTH), "{} bytes arrived", read.len());
            Ok(())
        });
    }
}

/// Configuration of a site whose connections are split at both ends.
fn splitter() -> SiteConfig {
    SiteConfig {
        carried: Carried::Distributed,
        ..SiteConfig::new(BENTPIPE)
    }
}

/// Stops one daemon while both directions are under way, each of a connection of its own.
fn stop_while_receivers_are_slow(site: &mut Site, side: Side) -> Result<()> {
    side.set_drain_timeout(site, "60 s")?;
    let route = route(site, RTT);
    let ways = [Way::Download, Way::Upload].map(|way| half_closed(&route, way));
    thread::sleep(2 * RTT);
    side.of(site).signal(Signal::TERM)?;
    side.of(site).wait_for_line("stopping", SOON)?;
    for way in ways {
        way?.join().expect("no panic")?;
    }
    let status = side.of(site).wait(SOON)?;
    ensure!(status.code() == Some(0), "stopped with {status}");
    Ok(())
}

#[test]
fn connections_beside_the_tunnel_end_before_the_daemon_that_stops() {
    for side in [Side::Client, Side::Server] {
        for (name, config) in [("sealed", sealing()), ("split", splitter())] {
            let name = format!("{name} flows, and the {side:?} stops");
            on_site(&name, config, |site| {
                stop_while_receivers_are_slow(site, side)
            });
        }
    }
}

/// The client has all that either host is owed, and the end of its outer connection is no reason to reset one.
#[test]
fn a_slow_host_of_a_sealed_flow_gets_the_last_bytes_though_the_server_is_killed() {
    on_site("a slow host, and a server that dies", sealing(), |site| {
        let place = Place::from(site.topology.web());
        let web = Service::start(&place, echo_address(), say_more)?;
        let mut host = route(site, RTT).connect_slowly(web.address)?;
        host.shutdown(Shutdown::Write)?;
        thread::sleep(PATIENTLY);
        let sealed = site.client_report()?["sle"]["flows_active"].as_u64();
        ensure!(
            sealed == Some(1),
            "{sealed:?} sealed flows: the kernel has all"
        );
        site.kill_server()?;
        thread::sleep(2 * RTT);
        let read = read_to_eof(&mut host)?;
        ensure!(read == payload(MORE), "{} bytes arrived", read.len());
        Ok(())
    });
}
