//! Hosts behind another router of the LAN to which no route leads back: the client says so, with the mend. Needs root.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_WAN, USER, WEB};
use bentpipe_testbed::peer::{PATIENCE, Service, read_to_eof, set_patience, who};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use socket2::{Domain, Socket, Type};

use crate::BENTPIPE;

/// Address of a host behind the user, which is a router here.
const HOST: [u8; 4] = [10, 77, 0, 5];

/// Time for which a host tries: its fourth segment leaves after seven seconds.
const TRIES: Duration = Duration::from_secs(14);

/// Name of what is missing.
const MISSING: &str = "way back by lan0 to hosts of 10.77.0.0/24";

fn connect(user: &Place, to: SocketAddr, time: Duration) -> Result<TcpStream> {
    let connecting = || -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((HOST, 0)).into())?;
        socket.connect_timeout(&to.into(), time)?;
        Ok(socket.into())
    };
    Ok(user.at(connecting)??)
}

/// What `status` says; the client is healthy meanwhile, for a host may forge addresses.
fn status(site: &Site) -> Result<String> {
    let ask = |options: &[&str]| {
        let mut command = Command::new(BENTPIPE);
        let socket = site.client_home().join("client.sock");
        command.arg("status").args(options);
        command.arg("--socket").arg(socket).output()
    };
    let health = ask(&["--check"])?;
    ensure!(health.status.success(), "{health:?}");
    Ok(String::from_utf8(ask(&[])?.stdout)?)
}

fn tell_and_mend(site: &Site) -> Result<()> {
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let address = IpAddr::from(HOST).to_string();
    let user_space = site.topology.user();
    user_space.run("ip", &["addr", "add", &address, "dev", "lo"])?;
    let service = Service::start(&web, SocketAddr::new(WEB.into(), 0), who)?;
    let to = service.address;
    thread::scope(|scope| {
        let trying = scope.spawn(|| connect(&user, to, TRIES));
        let line = format!("{MISSING} is missing and cannot be put back: ");
        site.client().wait_for_line(&line, TRIES)?;
        let log = site.client().stderr_text();
        let mend = "`ip route add 10.77.0.0/24 via ROUTER dev lan0`";
        ensure!(log.contains(mend), "{log}");
        ensure!(status(site)?.contains(MISSING), "{}", status(site)?);
        ensure!(trying.join().is_ok_and(|tried| tried.is_err()), "answered");
        anyhow::Ok(())
    })?;
    let route = ["route", "add", "10.77.0.0/24", "via", &USER.to_string()];
    site.topology.terminal().run("ip", &route)?;
    let deadline = Instant::now() + PATIENCE;
    while status(site)?.contains("way back") {
        ensure!(Instant::now() < deadline, "{}", status(site)?);
        thread::sleep(Duration::from_millis(100));
    }
    let mut stream = connect(&user, to, PATIENCE).context("with a route")?;
    set_patience(&stream, PATIENCE)?;
    let seen = String::from_utf8(read_to_eof(&mut stream)?)?;
    ensure!(seen.trim() == GATEWAY_WAN.to_string(), "seen: {seen}");
    let log = site.client().stderr_text();
    ensure!(log.matches(MISSING).count() == 1, "once:\n{log}");
    Ok(())
}

#[test]
fn hosts_to_which_no_route_leads_back_are_named_until_one_does() {
    if !privileged("way back") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = tell_and_mend(&site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}
