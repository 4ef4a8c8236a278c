//! Hours of work of every kind over a link that breaks down again and again: nothing is lost, and the daemons take no more memory or
//! open files at the end than soon after the start.
//!
//! `make soak` runs them for a day; `SOAK_MINUTES` is how long each takes.

use std::env;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::usage::resident;
use bentpipe_testbed::peer::{accept, endless, read_exactly, read_to_reset, reset, set_patience};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Route;
use bentpipe_testbed::site::{Site, SiteConfig, near};
use bentpipe_testbed::transfer::{Transfer, Way};
use socket2::Socket;

use crate::BENTPIPE;
use crate::session_life::sealed::sealing;
use crate::session_life::{link, sealed_and_not, wire_is};
use crate::talk::{half_close, talk};

/// Users that do one thing after the other, half of them over IPv6.
const USERS: usize = 12;

/// Time from one look at the daemons to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Looks from one outage to the next, and how long one lasts.
const BETWEEN_OUTAGES: usize = 20;
const OUTAGE: Duration = Duration::from_secs(2);

/// Most memory at the end, of that after a quarter of the time.
const GROWTH: f64 = 1.05;

/// Open files that a daemon may have more at the end than before its first connection.
const FILES: usize = 8;

/// Time in which nothing of the connections is left, once no user opens another.
const AFTER: Duration = Duration::from_secs(10);

/// Time for which a port that has refused stays closed: longer than the client answers in its place.
const STAYS_CLOSED: Duration = Duration::from_secs(15);

/// Ports that have refused, and since when. Somebody who listened on one soon afterwards would be refused in its place.
type ClosedPorts = Vec<(Instant, Socket)>;

/// Memory of both daemons, bytes.
type Memory = [u64; 2];

#[test]
#[ignore = "takes SOAK_MINUTES, four if nothing is said"]
fn a_tunnel_over_udp_takes_no_more_memory_than_soon_after_its_start() {
    endure(SiteConfig::new(BENTPIPE), |site| wire_is(site, "udp"));
}

#[test]
#[ignore = "takes SOAK_MINUTES, four if nothing is said"]
fn a_tunnel_over_tls_takes_no_more_memory_than_soon_after_its_start() {
    endure(SiteConfig::new(BENTPIPE).with_tls("tls"), |site| {
        wire_is(site, "tls")
    });
}

#[test]
#[ignore = "takes SOAK_MINUTES, four if nothing is said"]
fn sealed_flows_take_no_more_memory_than_soon_after_the_start() {
    endure(sealing(), |site| {
        // After an outage flows go through the tunnel for a minute.
        let [sealed, in_tunnel] = sealed_and_not(site)?;
        println!("{sealed} flows sealed, {in_tunnel} in the tunnel");
        ensure!(sealed > 0, "all {in_tunnel} flows were in the tunnel");
        Ok(())
    });
}

/// Works on a site of `config` and watches its daemons; what has carried all that is for `carried` to say.
fn endure(config: SiteConfig, carried: impl FnOnce(&Site) -> Result<()>) {
    if !privileged("endurance") {
        return;
    }
    let _alone = crate::alone();
    let scenario = near();
    let site = Site::start(SiteConfig { scenario, ..config }).expect("a site");
    let result = work_and_watch(&site, duration()).and_then(|()| carried(&site));
    assert!(result.is_ok(), "{:#}\n{}", result.unwrap_err(), site.logs());
}

fn duration() -> Duration {
    let said = env::var("SOAK_MINUTES").ok();
    let minutes = said.map_or(4, |minutes| minutes.parse().expect("SOAK_MINUTES"));
    Duration::from_secs(60 * minutes)
}

fn work_and_watch(site: &Site, duration: Duration) -> Result<()> {
    let files_before = files(site)?;
    let (over, done) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let looks = thread::scope(|scope| {
        let begin = |user| scope.spawn(move || work(site, user, over, done));
        let users: Vec<_> = (0..USERS).map(begin).collect();
        let looks = watch(site, duration, over);
        over.store(true, Ordering::Relaxed);
        for user in users {
            user.join().expect("no panic")?;
        }
        looks
    })?;
    thread::sleep(AFTER);
    let files_after = files(site)?;
    println!(
        "{} things done; files {files_before:?}, then {files_after:?}",
        done.load(Ordering::Relaxed)
    );
    for (before, after) in files_before.into_iter().zip(files_after) {
        ensure!(
            after <= before + FILES,
            "{after} open files, {before} at first"
        );
    }
    expect_level(&looks)
}

/// Memory of both daemons at each look. The link breaks down now and then.
fn watch(site: &Site, duration: Duration, over: &AtomicBool) -> Result<Vec<Memory>> {
    let end = Instant::now() + duration;
    let mut looks = Vec::new();
    while Instant::now() < end && !over.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        looks.push([resident(site.client().id())?, resident(site.server().id())?]);
        if looks.len() % BETWEEN_OUTAGES == 0 {
            link::outage(&site.topology, OUTAGE)?;
        }
    }
    Ok(looks)
}

/// The last quarter of `looks` shows no more memory than the second one.
fn expect_level(looks: &[Memory]) -> Result<()> {
    let quarter = looks.len() / 4;
    for (daemon, name) in ["client", "server"].into_iter().enumerate() {
        let median = |from: usize| {
            let mut part: Vec<_> = looks[from..from + quarter]
                .iter()
                .map(|look| look[daemon])
                .collect();
            part.sort_unstable();
            part[quarter / 2]
        };
        let (early, late) = (median(quarter), median(looks.len() - quarter));
        let growth = late as f64 / early as f64;
        println!("{name}: {early} B, then {late} B: {growth:.3}");
        ensure!(
            growth <= GROWTH,
            "the {name} took {early} B, and then {late}"
        );
    }
    Ok(())
}

/// Open files of both daemons.
fn files(site: &Site) -> Result<[usize; 2]> {
    let count = |process: u32| anyhow::Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count());
    Ok([count(site.client().id())?, count(site.server().id())?])
}

/// Does one thing after the other until it is `over`, which it is for all as soon as one fails.
fn work(site: &Site, user: usize, over: &AtomicBool, done: &AtomicU64) -> Result<()> {
    let route = &site.routes()[user % 2];
    let mut closed = ClosedPorts::new();
    for task in user.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        if let Err(error) = one(route, task, &mut closed) {
            over.store(true, Ordering::Relaxed);
            return Err(error.context(format!("task {task} of user {user}")));
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// One thing of those that applications do.
fn one(route: &Route, task: usize, closed: &mut ClosedPorts) -> Result<()> {
    match task % 7 {
        0 | 1 => talk(route).map(drop),
        2 => half_close(route),
        3 => Transfer::start(route, Way::Download, 3_000_000)?
            .finish_whole()
            .map(drop),
        4 => Transfer::start(route, Way::Upload, 1_000_000)?
            .finish_whole()
            .map(drop),
        5 => leave(route),
        _ => be_refused(route, closed),
    }
}

/// Connects to where nobody listens: the connection is refused, or reset as soon as that is known.
fn be_refused(route: &Route, closed: &mut ClosedPorts) -> Result<()> {
    let (held, address) = route.closed_port()?;
    closed.retain(|(since, _)| since.elapsed() < STAYS_CLOSED);
    closed.push((Instant::now(), held));
    match route.try_connect(address)? {
        Ok(mut stream) => read_to_reset(&mut stream).map(drop),
        Err(_) => Ok(()),
    }
}

/// Begins a download without end and resets it in its midst, which ends the sender's side too.
fn leave(route: &Route) -> Result<()> {
    let (listener, address) = route.listen()?;
    let mut user = route.connect(address)?;
    let web = accept(&listener, route.patience)?;
    set_patience(&web, route.patience)?;
    let sender = thread::spawn(move || endless(web));
    read_exactly(&mut user, 100_000)?;
    reset(user)?;
    // Its connection breaks, else it would not end.
    sender.join().expect("no panic").map_or_else(|_| Ok(()), Ok)
}
