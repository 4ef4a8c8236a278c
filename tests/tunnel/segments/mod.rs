//! TCP of unmodified hosts through two PEPs of an operator: what is relayed arrives whole or is reset, and what cannot be relayed
//! passes as without them.

mod clear;
mod fidelity;
mod forged;
mod kernel;
mod killed;
mod layered;
mod layered_site;
mod messages;
mod orders;
mod renewed;
mod silence;
mod site;
mod surroundings;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::command::run_with_input;
use bentpipe_testbed::peer::{
    self, Service, accept, digest, echo, payload, read_exactly, read_to_reset,
};
use bentpipe_testbed::route::Route;
use bentpipe_testbed::site::{lossy_geo, near};
use bentpipe_testbed::transfer::{Transfer, Way};

use crate::alone;
use crate::talk::{exchange, half_close, talk};
use site::{PORT, Pep, PepSite, SOON, on_site};

/// Length of a transfer, bytes.
const LENGTH: usize = 3_000_000;

/// Time in which a PEP notices that the other one does not answer, with transfers under way: a few round trips.
const NOTICED: Duration = Duration::from_secs(2);

/// Tables of PEPs that relay all TCP.
const CLEAR: &str = "[clear]\n";

fn joined() -> Result<PepSite> {
    PepSite::start(near(), CLEAR)
}

/// Time in which two PEPs agree on a flow, also on a busy machine: one that is reset before passes untouched.
const AGREED: Duration = Duration::from_secs(1);

/// A reset of either host is a reset at the other, and all bytes before it have arrived or none of an end.
fn reset(route: &Route) -> Result<()> {
    let (listener, address) = route.listen()?;
    let patience = route.patience;
    let server = thread::spawn(move || -> Result<()> {
        let mut stream = accept(&listener, patience)?;
        read_exactly(&mut stream, 5)?;
        thread::sleep(AGREED);
        peer::reset(stream)?;
        let mut stream = accept(&listener, patience)?;
        stream.write_all(b"hello")?;
        read_to_reset(&mut stream).map(drop)
    });
    let mut stream = route.connect(address)?;
    stream.write_all(b"hello")?;
    let heard = read_to_reset(&mut stream)?;
    ensure!(heard.is_empty(), "heard {} bytes", heard.len());
    let mut stream = route.connect(address)?;
    read_exactly(&mut stream, 5)?;
    thread::sleep(AGREED);
    peer::reset(stream)?;
    server.join().expect("no panic")
}

fn everything_crosses(site: &mut PepSite) -> Result<()> {
    let [ipv4, ipv6] = site.routes();
    let mut idle = talk(&ipv4)?;
    let download = Transfer::start(&ipv4, Way::Download, LENGTH)?;
    let upload = Transfer::start(&ipv6, Way::Upload, LENGTH)?;
    download.finish_whole()?;
    upload.finish_whole()?;
    let backwards = site.backwards();
    for route in [&ipv4, &ipv6].into_iter().chain(&backwards) {
        half_close(route).with_context(|| format!("half-close over {}", route.name))?;
        reset(route).with_context(|| format!("reset over {}", route.name))?;
    }
    exchange(&mut idle)?;
    for pep in Pep::BOTH {
        let relayed = site.figure(pep, "/relayed_total")?;
        ensure!(relayed == 15, "{relayed} flows relayed at {pep:?}");
        for path in [
            "/reset_total/tunnel",
            "/reset_total/fault",
            "/reset_total/silent",
            "/passed_total/damaged",
        ] {
            let figure = site.figure(pep, path)?;
            ensure!(figure == 0, "{path} is {figure} at {pep:?}");
        }
        let reset = site.figure(pep, "/reset_total/end")?;
        ensure!(reset == 8, "{reset} resets at {pep:?}");
        let carried = &site.status(pep)?["bytes"];
        let lan = |key: &str| carried[key].as_u64();
        ensure!(lan("lan_in") > Some(LENGTH as u64), "{carried}");
        ensure!(lan("lan_out") > Some(LENGTH as u64), "{carried}");
    }
    Ok(())
}

#[test]
fn tcp_of_unmodified_hosts_is_relayed() {
    on_site("two PEPs", joined, everything_crosses);
}

/// One connection is to be whole, or reset; says which.
fn whole_or_reset(name: &str, transfer: Transfer) -> Result<bool> {
    // Fails if a clean end comes early, or other bytes.
    let end = transfer.finish().with_context(|| name.to_owned())?.end;
    println!("{name}: {end:?}");
    let reset = end
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    ensure!(end.is_ok() || reset, "{name}: neither an end nor a reset");
    Ok(end.is_ok())
}

/// A long download by the first route and an upload by the second, of which a part has arrived.
fn transfers([down, up]: [&Route; 2]) -> Result<[Transfer; 2]> {
    let download = Transfer::start(down, Way::Download, 10 * LENGTH)?;
    let upload = Transfer::start(up, Way::Upload, 10 * LENGTH)?;
    download.until(LENGTH / 4, SOON)?;
    upload.until(LENGTH / 4, SOON)?;
    Ok([download, upload])
}

/// [`whole_or_reset`] of a download and an upload.
fn both_whole_or_reset([download, upload]: [Transfer; 2]) -> Result<[bool; 2]> {
    Ok([
        whole_or_reset("download", download)?,
        whole_or_reset("upload", upload)?,
    ])
}

/// Both transfers are to be reset: what a PEP that was killed had acknowledged is lost.
fn expect_both_reset(under_way: [Transfer; 2]) -> Result<()> {
    let ends = both_whole_or_reset(under_way)?;
    ensure!(
        ends == [false; 2],
        "what was acknowledged is lost: {ends:?}"
    );
    Ok(())
}

/// A connection that began `between` two lives of a PEP goes on, and a new one is relayed: `relayed` counts at each PEP.
fn go_on_and_relay<const PEPS: usize>(
    route: &Route,
    between: &mut TcpStream,
    relayed: impl Fn() -> Result<[u64; PEPS]>,
) -> Result<()> {
    exchange(between)?;
    let before = relayed()?;
    half_close(route)?;
    let after = relayed()?;
    let more = before.iter().zip(&after).all(|(one, other)| one < other);
    ensure!(more, "{before:?} were relayed, and {after:?} after it");
    exchange(between)
}

/// Transfers until one is whole: before the other PEP notices, what begins is offered to the dead one, and reset afterwards.
fn until_whole(route: &Route) -> Result<()> {
    let deadline = Instant::now() + SOON;
    loop {
        let transfer = Transfer::start(route, Way::Download, LENGTH / 10)?;
        if whole_or_reset("while a PEP is dead", transfer)? {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "nothing but resets");
    }
}

/// One PEP is killed in the middle of transfers and started again.
fn killed(site: &mut PepSite, pep: Pep) -> Result<()> {
    let [ipv4, ipv6] = site.routes();
    let under_way = transfers([&ipv4, &ipv6])?;
    site.kill(pep)?;
    // What begins before the other PEP notices is offered to the dead one, and reset afterwards.
    thread::sleep(NOTICED);
    // Without the PEP, new connections pass as if there had never been one.
    for route in [&ipv4, &ipv6] {
        until_whole(route).with_context(|| format!("{} while {pep:?} is dead", route.name))?;
    }
    let mut between = talk(&ipv4)?;
    site.run(pep)?;
    site.until_joined()?;
    expect_both_reset(under_way)?;
    go_on_and_relay(&ipv4, &mut between, || {
        site.figure(pep, "/relayed_total").map(|relayed| [relayed])
    })
}

#[test]
fn a_pep_that_connects_and_is_killed_cuts_nothing_short() {
    on_site("a killed PEP at the terminal", joined, |site| {
        killed(site, Pep::Terminal)
    });
}

#[test]
fn a_pep_that_listens_and_is_killed_cuts_nothing_short() {
    on_site("a killed PEP at the gateway", joined, |site| {
        killed(site, Pep::Gateway)
    });
}

#[test]
fn peps_that_are_both_killed_know_what_they_had_relayed() {
    on_site("two killed PEPs", joined, |site| {
        let [ipv4, ipv6] = site.routes();
        let download = Transfer::start(&ipv4, Way::Download, 10 * LENGTH)?;
        let upload = Transfer::start(&ipv6, Way::Upload, 10 * LENGTH)?;
        download.until(LENGTH / 4, SOON)?;
        upload.until(LENGTH / 4, SOON)?;
        for pep in Pep::BOTH {
            site.kill(pep)?;
        }
        for pep in Pep::BOTH {
            site.run(pep)?;
        }
        // Nobody is left who remembers them but two files.
        let ends = [
            whole_or_reset("download", download)?,
            whole_or_reset("upload", upload)?,
        ];
        ensure!(ends == [false; 2], "{ends:?}");
        // Either resets both ends of a flow; who hears of it first does.
        let reset = Pep::BOTH.map(|pep| site.figure(pep, "/reset_total/earlier"));
        let reset = reset.into_iter().sum::<Result<u64>>()?;
        ensure!(reset > 0, "nothing of an earlier process was reset");
        site.until_joined()?;
        half_close(&ipv4)
    });
}

#[test]
fn a_pep_that_is_stopped_lets_flows_end_and_leaves_nothing_behind() {
    on_site("a stopped PEP", joined, |site| {
        let [ipv4, ipv6] = site.routes();
        let mut idle = talk(&ipv6)?;
        let download = Transfer::start(&ipv4, Way::Download, LENGTH)?;
        download.until(LENGTH / 4, SOON)?;
        site.stop(Pep::Terminal)?;
        ensure!(whole_or_reset("download", download)?, "it had time to end");
        let heard = read_to_reset(&mut idle)?;
        ensure!(heard.is_empty(), "heard {} bytes", heard.len());
        let terminal = site.topology.terminal();
        let tables = terminal.run("nft", &["list", "tables"])?;
        ensure!(!tables.contains("bentpipe_pep"), "{tables}");
        let rules = terminal.run("ip", &["rule"])?;
        ensure!(!rules.contains("2520"), "{rules}");
        half_close(&ipv4)
    });
}

#[test]
fn without_a_tunnel_flows_pass_untouched() {
    let site = || PepSite::plain(near(), CLEAR);
    on_site("PEPs whose tunnel is blocked", site, |site| {
        let blocked = format!(
            "table inet blocked {{\n chain block {{\n type filter hook prerouting priority raw; udp dport {PORT} drop\n }}\n}}\n"
        );
        let gateway = site.topology.gateway();
        run_with_input(gateway.command("nft").args(["-f", "-"]), &blocked)?;
        for pep in Pep::BOTH {
            site.run(pep)?;
        }
        let [ipv4, ipv6] = site.routes();
        for route in [&ipv4, &ipv6] {
            Transfer::start(route, Way::Download, LENGTH / 10)?.finish_whole()?;
            half_close(route)?;
            reset(route)?;
        }
        let mut between = talk(&ipv4)?;
        ensure!(site.figure(Pep::Terminal, "/relayed_total")? == 0);
        let passed = site.figure(Pep::Terminal, "/passed_total/no_tunnel")?;
        ensure!(passed == 9, "{passed} flows without a tunnel");
        let said = &site.status(Pep::Terminal)?["tunnel"];
        ensure!(said["state"] == "connecting", "{said}");
        site.topology
            .gateway()
            .run("nft", &["delete", "table", "inet", "blocked"])?;
        site.until_joined()?;
        half_close(&ipv4)?;
        ensure!(site.figure(Pep::Terminal, "/relayed_total")? == 1);
        exchange(&mut between)
    });
}

#[test]
fn many_flows_at_once_are_relayed_within_their_bounds() {
    const FLOWS: usize = 200;
    let site = || PepSite::start(near(), "[clear]\n[limits]\nmax_flows = 150\n");
    on_site("many flows through two PEPs", site, |site| {
        let [ipv4, _] = site.routes();
        let service = Service::start(&ipv4.web, (ipv4.server, 0).into(), echo)?;
        let address = service.address;
        let words = payload(30_000);
        let flow = |route: &Route| -> Result<()> {
            let mut stream = route.connect(address)?;
            stream.write_all(&words)?;
            stream.shutdown(Shutdown::Write)?;
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard)?;
            ensure!(digest(&heard) == digest(&words), "{} bytes", heard.len());
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..FLOWS).map(|_| scope.spawn(|| flow(&ipv4))).collect();
            threads
                .into_iter()
                .try_for_each(|one| one.join().expect("no panic"))
        })?;
        for pep in Pep::BOTH {
            let relayed = site.figure(pep, "/relayed_total")?;
            ensure!(
                (100..=FLOWS as u64).contains(&relayed),
                "{relayed} relayed at {pep:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn prefixes_choose_what_is_relayed() {
    let site = || PepSite::start(near(), "[clear]\nprefixes = [\"10.30.0.0/24\"]\n");
    on_site("PEPs for some prefixes", site, |site| {
        let [ipv4, ipv6] = site.routes();
        half_close(&ipv6)?;
        ensure!(site.figure(Pep::Gateway, "/relayed_total")? == 0);
        half_close(&ipv4)?;
        ensure!(site.figure(Pep::Gateway, "/relayed_total")? == 1);
        Ok(())
    });
}

/// Time that a download takes.
fn timed(route: &Route, length: usize) -> Result<Duration> {
    let began = Instant::now();
    let arrivals = Transfer::start(route, Way::Download, length)?.finish_whole()?;
    Ok(arrivals.ended - began)
}

#[test]
#[ignore = "half a minute"]
fn a_link_that_loses_is_faster_with_peps() {
    let _alone = alone();
    let site = || PepSite::start(lossy_geo(), CLEAR);
    on_site("PEPs over a link that loses", site, |site| {
        let [ipv4, _] = site.routes();
        let relayed = timed(&ipv4, LENGTH / 6)?;
        for pep in Pep::BOTH {
            site.stop(pep)?;
        }
        let plain = timed(&ipv4, LENGTH / 6)?;
        let ratio = plain.as_secs_f64() / relayed.as_secs_f64();
        println!(
            "{} bytes at 2 % of loss: {plain:?} end to end, {relayed:?} relayed: {ratio:.1}",
            LENGTH / 6
        );
        ensure!(ratio > 3.0, "only {ratio:.2} times as fast");
        Ok(())
    });
}
