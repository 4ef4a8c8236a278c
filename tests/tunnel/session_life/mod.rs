//! A session outlives outages, restarts and changes of address, and ends in order: over an RTT of 500 ms.
//!
//! The real daemons between namespaces, with transfers under way through each event. Needs root.
mod drain;
mod everything;
mod known_link;
mod known_path;
mod last_bytes;
mod layered;
pub(crate) mod link;
mod older;
mod over_tls;
mod reload;
mod reverse_path;
pub(crate) mod sealed;
mod silence;
mod silent_tls;
mod stopping_proxy;
mod tls_restart;
mod trace;
mod transparent;
mod two_addresses;
mod two_servers;
mod wire;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{TERMINAL_SAT, WEB};
use bentpipe_link::Orbit;
use bentpipe_testbed::moving::change_address;
use bentpipe_testbed::peer::{Service, accept, echo, read_exactly};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::{Place, Route};
use bentpipe_testbed::site::{Site, SiteConfig, geo};
use bentpipe_testbed::start;
use bentpipe_testbed::transfer::{Arrivals, Transfer, Way};

pub(crate) use layered::{layering, les_alone_has_carried, until_it_stands};
pub(crate) use transparent::{all_are_sealed, says_all_are_sealed, sealed_and_not};
pub(crate) use wire::wire_is;

use crate::BENTPIPE;
use crate::talk::{exchange, talk};

/// Of the emulated satellite, without queueing.
const RTT: Duration = Duration::from_millis(500);

/// How soon the end of an outage, a restarted server or a new path must be found while flows wait: a probe interval of
/// 3 s with a quarter of jitter, and 2 RTT.
const FOUND: Duration = Duration::from_millis(3750 + 2 * 500);

/// What a busy machine is given on top.
const SLACK: Duration = Duration::from_millis(1500);

/// What comes up or goes down without a link in between, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Runs `case` on a site with bentpipe on both sides, and shows the daemons' logs if it fails.
fn on_site(name: &str, config: SiteConfig, case: impl FnOnce(&mut Site) -> Result<()>) {
    if !privileged(name) {
        return;
    }
    let mut site = Site::start(config).expect("a site");
    let result = case(&mut site);
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

/// From the user to the web over IPv4; operations may take as long as an outage and a minute.
fn route(site: &Site, outage: Duration) -> Route {
    let [mut route, _] = site.routes();
    route.patience += outage;
    route
}

/// Something arrived within `limit` after `then`; says when.
fn resumed(arrivals: &Arrivals, then: Instant, limit: Duration) -> Result<Duration> {
    let first = arrivals.first_since(then);
    let Some(after) = first.map(|first| first - then) else {
        anyhow::bail!("nothing arrived any more");
    };
    ensure!(after <= limit, "nothing arrived for {after:?} after");
    Ok(after)
}

fn flows_survive_an_outage(site: &mut Site, duration: Duration) -> Result<()> {
    let mut routes = site.routes();
    for route in &mut routes {
        route.patience += duration;
    }
    let mut idle = talk(&routes[0])?;
    let download = Transfer::start(&routes[0], Way::Download, 6_000_000)?;
    let upload = Transfer::start(&routes[1], Way::Upload, 6_000_000)?;
    download.until(1_000_000, SOON)?;
    upload.until(1_000_000, SOON)?;

    let began = Instant::now();
    let over = link::outage(&site.topology, duration)?;
    for (name, transfer) in [("download", download), ("upload", upload)] {
        let arrivals = transfer.finish_whole()?;
        // What was on its way when the outage began has long arrived.
        let early = arrivals.first_since(began + Duration::from_secs(2));
        ensure!(early.is_none_or(|early| early >= over), "{name}: no outage");
        let after = resumed(&arrivals, over, FOUND + SLACK)?;
        let rest = arrivals.ended - over;
        println!("{duration:?} of outage: {name} goes on after {after:?}, ends after {rest:?}");
    }
    exchange(&mut idle)
}

fn echo_address() -> SocketAddr {
    SocketAddr::new(WEB.into(), 0)
}

/// Connects from the user; operations may take as long as an outage and a minute.
fn connect(site: &Site, address: SocketAddr, outage: Duration) -> Result<TcpStream> {
    route(site, outage).connect(address)
}

#[test]
fn flows_survive_a_minute_of_outage() {
    on_site("outage", SiteConfig::new(BENTPIPE), |site| {
        flows_survive_an_outage(site, Duration::from_secs(60))
    });
}

#[test]
#[ignore = "takes four minutes"]
fn flows_survive_three_minutes_of_outage() {
    let _alone = crate::alone();
    on_site("long outage", SiteConfig::new(BENTPIPE), |site| {
        flows_survive_an_outage(site, Duration::from_secs(180))
    });
}

#[test]
fn a_restarted_server_is_found() {
    on_site("restarted server", SiteConfig::new(BENTPIPE), |site| {
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        let download = Transfer::start(&route(site, RTT), Way::Download, 30_000_000)?;
        download.until(1_000_000, SOON)?;
        site.kill_server()?;
        // Nobody can know yet; what is opened now may go down with the old tunnel, but must not hang.
        let mut early = connect(site, web.address, SOON)?;
        let early = thread::spawn(move || exchange(&mut early).map_or_else(drop, drop));
        // By now it has been quiet for a while: what is opened now waits.
        thread::sleep(Duration::from_secs(8));
        let mut late = connect(site, web.address, SOON)?;
        let late = thread::spawn(move || exchange(&mut late).map(|()| Instant::now()));
        thread::sleep(Duration::from_secs(2));
        site.start_server()?;
        let up = Instant::now();
        let ended = download.finish_reset()?.ended;
        // "ready" is read a moment after it was written.
        ensure!(ended + SLACK >= up, "reset before the server was back");
        let found = ended.saturating_duration_since(up);
        ensure!(found <= FOUND + SLACK, "found after {found:?}");
        early.join().expect("an end");
        let answered = late.join().expect("a verdict")? - up;
        // A handshake and the exchange itself.
        ensure!(
            answered <= FOUND + 3 * RTT + SLACK,
            "answered after {answered:?}"
        );
        println!("found after {found:?}; the waiting flow is answered after {answered:?}");
        Ok(())
    });
}

/// A download goes on after `event`, and so does an idle flow.
fn survives(site: &mut Site, event: impl FnOnce(&Site) -> Result<()>) -> Result<()> {
    let mut idle = talk(&route(site, RTT))?;
    let download = Transfer::start(&route(site, RTT), Way::Download, 10_000_000)?;
    download.until(1_000_000, SOON)?;
    event(site)?;
    let then = Instant::now();
    let arrivals = download.finish_whole()?;
    let silence = arrivals.longest_silence(then);
    ensure!(silence <= FOUND + SLACK, "nothing arrived for {silence:?}");
    let rest = arrivals.ended.saturating_duration_since(then);
    ensure!(rest > 2 * RTT, "the download was over before");
    println!("silent for {silence:?}, ends after {rest:?}");
    exchange(&mut idle)
}

/// Figures of one `status` are counted since the client's start, whatever becomes of servers.
#[test]
fn figures_of_status_do_not_begin_anew_with_a_tunnel() {
    on_site("one epoch", SiteConfig::new(BENTPIPE), |site| {
        let figures = |site: &Site| -> Result<[u64; 3]> {
            let report = site.client_report()?;
            let ledger = report["ledger_bytes"]["received"].as_object();
            let received: u64 = ledger
                .context("a ledger")?
                .values()
                .filter_map(serde_json::Value::as_u64)
                .sum();
            let number = |at: &str| report.pointer(at).and_then(serde_json::Value::as_u64);
            let opened = number("/flows/opened_total").context("a count")?;
            Ok([number("/bytes/lan_out").context("bytes")?, opened, received])
        };
        talk(&route(site, RTT))?;
        Transfer::start(&route(site, RTT), Way::Download, 1_000_000)?.finish_whole()?;
        let before = figures(site)?;
        site.kill_server()?;
        site.start_server()?;
        // The first connection may be the one that finds out.
        let deadline = Instant::now() + SOON;
        while let Err(error) = talk(&route(site, RTT)) {
            ensure!(Instant::now() < deadline, "{error:#}");
        }
        let after = figures(site)?;
        let grown = before
            .iter()
            .zip(&after)
            .all(|(before, after)| after > before);
        ensure!(before[0] > 1_000_000 && grown, "{before:?}, then {after:?}");
        Ok(())
    });
}

/// A machine on which IPv6 is switched off, before the client's start or while it runs, carries IPv4.
#[test]
fn ipv6_that_is_switched_off_leaves_ipv4_alone() {
    if !privileged("no IPv6") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let set = |site: &Site, off: &str| {
        let key = format!("net.ipv6.conf.all.disable_ipv6={off}");
        let terminal = site.topology.terminal();
        terminal.run("sysctl", &["-qw", &key]).expect("a setting");
    };
    let result = (|| {
        site.start_server()?;
        set(&site, "1");
        site.start_client()?;
        talk(&route(&site, RTT))?;
        set(&site, "0");
        talk(&route(&site, RTT))?;
        set(&site, "1");
        let mut stream = talk(&route(&site, RTT))?;
        exchange(&mut stream)
    })();
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

#[test]
fn flows_survive_a_changed_address() {
    on_site("changed address", SiteConfig::new(BENTPIPE), |site| {
        survives(site, |site| {
            let new = "10.20.0.77".parse()?;
            change_address(site.topology.terminal(), TERMINAL_SAT, new)
        })?;
        let log = site.client().stderr_text();
        ensure!(!log.contains("tunnel is down"), "the tunnel was given up");
        Ok(())
    });
}

/// The terminal's NAT gives the tunnel another port.
fn change_port(site: &Site) -> Result<()> {
    let log = site.server().stderr_text();
    let address = log.rsplit("address=").next().context("a client")?;
    let address: SocketAddr = address.split_whitespace().next().context("it")?.parse()?;
    link::change_port(&site.topology, address.port(), 40_404)
}

#[test]
fn flows_survive_a_changed_port() {
    on_site("changed port", SiteConfig::new(BENTPIPE), |site| {
        survives(site, change_port)?;
        let log = site.client().stderr_text();
        ensure!(!log.contains("tunnel is down"), "the tunnel was given up");
        Ok(())
    });
}

#[test]
fn a_client_that_only_listens_is_found_at_its_new_port() {
    on_site(
        "changed port of a listener",
        SiteConfig::new(BENTPIPE),
        |site| {
            let route = route(site, RTT);
            let (listener, address) = route.listen()?;
            let mut user = route.connect(address)?;
            let mut web = accept(&listener, route.patience)?;
            user.write_all(b"news?")?;
            read_exactly(&mut web, 5)?;
            // Until everything is acknowledged: the client then has no reason to send.
            thread::sleep(4 * RTT);
            change_port(site)?;
            // The server speaks to the old port, in vain; only the client can tell it better.
            let told = Instant::now();
            web.write_all(b"news!")?;
            read_exactly(&mut user, 5)?;
            let after = told.elapsed();
            println!("heard after {after:?}");
            ensure!(after <= FOUND + SLACK, "heard after {after:?}");
            Ok(())
        },
    );
}

#[test]
fn a_tunnel_comes_up_over_several_seconds() {
    if !privileged("far away") {
        return;
    }
    let mut scenario = geo();
    scenario.orbit = Orbit::constant(Duration::from_secs(2));
    let config = SiteConfig {
        scenario,
        ..SiteConfig::new(BENTPIPE)
    };
    let mut site = Site::plain(config).expect("a site");
    site.start_server().expect("a server");
    let started = Instant::now();
    site.start_client().expect("a tunnel");
    let up = started.elapsed();
    // A new attempt every three seconds must not stop the ones before.
    assert!(
        up <= 4 * 2 * Duration::from_secs(2) + SLACK,
        "up after {up:?}"
    );
}

#[test]
fn a_flow_waits_for_the_tunnel_no_longer_than_configured() {
    let config = SiteConfig {
        client_keys: "open_wait = \"2 s\"".into(),
        ..SiteConfig::new(BENTPIPE)
    };
    on_site("impatient flow", config, |site| {
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        site.stop_server()?;
        site.client().wait_for_line("tunnel is down", SOON)?;
        let opened = Instant::now();
        let mut flow = connect(site, web.address, RTT)?;
        let end = flow.read(&mut [0]);
        let waited = opened.elapsed();
        let reset = |error: &io::Error| error.kind() == ErrorKind::ConnectionReset;
        ensure!(end.as_ref().is_err_and(reset), "not reset: {end:?}");
        let wait = Duration::from_secs(2);
        ensure!(
            (wait..=wait + SLACK).contains(&waited),
            "reset after {waited:?}"
        );
        Ok(())
    });
}

#[test]
fn a_flow_waits_for_a_link_that_comes_up_later() {
    if !privileged("late link") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let web = Place::from(site.topology.web());
    let web = Service::start(&web, echo_address(), echo).expect("a server");
    site.start_server().expect("a server");
    let (waiting, over) = thread::scope(|scope| {
        let outage = scope.spawn(|| link::outage(&site.topology, Duration::from_secs(8)));
        thread::sleep(Duration::from_secs(1));
        let client = start::client(&site, |_| ()).expect("a client");
        // Interception is in force before there is a tunnel.
        thread::sleep(Duration::from_secs(2));
        let mut flow = connect(&site, web.address, SOON).expect("taken in");
        exchange(&mut flow).unwrap_or_else(|error| panic!("{error:#}\n{}", client.stderr_text()));
        (
            Instant::now(),
            outage.join().expect("no panic").expect("an outage"),
        )
    });
    // A handshake, HELLO and the exchange itself.
    let after = waiting.saturating_duration_since(over);
    println!("answered {after:?} after the link came up");
    assert!(waiting > over, "no outage");
    assert!(after <= FOUND + 2 * RTT + SLACK, "answered after {after:?}");
}
