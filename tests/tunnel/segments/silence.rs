//! Two PEPs of which one hears the other and is not heard, or neither hears: both notice, say so once, and let packets pass.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sys::command::run_with_input;
use bentpipe_testbed::transfer::{Transfer, Way};

use super::site::{PORT, Pep, PepSite, SOON, on_site};
use super::{LENGTH, joined};
use crate::talk::{exchange, half_close, talk};

/// Time in which both PEPs notice that a direction delivers nothing, idle or not.
const NOTICED: Duration = Duration::from_secs(20);

/// Drops what `pep` gets of the tunnel.
fn deafen(site: &PepSite, pep: Pep) -> Result<()> {
    let end = match pep {
        Pep::Gateway => "dport",
        Pep::Terminal => "sport",
    };
    let rules = format!(
        "table inet deaf {{\n chain take {{\n type filter hook prerouting priority raw; udp {end} {PORT} drop\n }}\n}}\n"
    );
    run_with_input(site.place(pep).command("nft").args(["-f", "-"]), &rules)?;
    Ok(())
}

fn hear_again(site: &PepSite, pep: Pep) -> Result<()> {
    let place = site.place(pep);
    place.run("nft", &["delete", "table", "inet", "deaf"])?;
    Ok(())
}

/// Looks again and again until there is no lack; an error, with the last lack, if that takes longer than `patience`.
fn until(patience: Duration, lack: impl Fn() -> Result<Option<String>>) -> Result<()> {
    let deadline = Instant::now() + patience;
    while let Some(lack) = lack()? {
        ensure!(Instant::now() < deadline, "{lack}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Waits until `pep` says in `status` that its tunnel is in this state.
fn until_state(site: &PepSite, pep: Pep, state: &str, patience: Duration) -> Result<()> {
    until(patience, || {
        let tunnel = &site.status(pep)?["tunnel"];
        Ok((tunnel["state"] != state).then(|| format!("not {state} at {pep:?}: {tunnel}")))
    })
}

/// Waits until `pep` gives as reason that the other one is heard, or is not: what came just before it fell silent counts for a while.
fn until_heard(site: &PepSite, pep: Pep, heard: bool) -> Result<()> {
    until(SOON, || {
        let status = site.status(pep)?;
        let told = status["tunnel"]["last_error"].as_str();
        let told = told.context("no reason")?;
        Ok((told.contains("it is heard") != heard).then(|| format!("{pep:?}: {told}")))
    })
}

/// Waits until `pep` has told its log that the other one does not answer.
fn until_told(site: &PepSite, pep: Pep) -> Result<()> {
    until(NOTICED, || {
        let silent = warned(site, pep, "does not answer") == 0;
        Ok(silent.then(|| format!("{pep:?} does not say that it is silent")))
    })
}

/// Times that the log of `pep` has `words` as a warning.
fn warned(site: &PepSite, pep: Pep, words: &str) -> usize {
    let log = site.log(pep);
    let lines = log.lines().filter(|line| line.contains("WARN"));
    lines.filter(|line| line.contains(words)).count()
}

/// New connections of both families cross, both ways, though the tunnel carries nothing.
fn new_ones_pass(site: &PepSite) -> Result<()> {
    for route in &site.routes() {
        Transfer::start(route, Way::Download, LENGTH / 10)?
            .finish_whole()
            .with_context(|| format!("{} while a PEP is deaf", route.name))?;
        half_close(route)?;
    }
    for route in &site.backwards() {
        half_close(route).with_context(|| format!("{} while a PEP is deaf", route.name))?;
    }
    Ok(())
}

fn one_is_deaf(site: &mut PepSite, deaf: &[Pep]) -> Result<()> {
    let routes = site.routes();
    let mut idle = talk(&routes[0])?;
    exchange(&mut idle)?;
    for pep in deaf {
        deafen(site, *pep)?;
    }
    for pep in Pep::BOTH {
        until_told(site, pep)?;
        until_state(site, pep, "silent", SOON)?;
        until_heard(site, pep, deaf != Pep::BOTH && !deaf.contains(&pep))?;
    }
    new_ones_pass(site)?;
    let words = "flows pass untouched";
    for pep in Pep::BOTH {
        let lines = warned(site, pep, words);
        ensure!(lines == 1, "{lines} warnings at {pep:?}");
    }
    for pep in deaf {
        hear_again(site, *pep)?;
    }
    for pep in Pep::BOTH {
        until_state(site, pep, "ready", SOON)?;
        let log = site.log(pep);
        let again = log
            .lines()
            .filter(|line| line.contains("answers again after"));
        ensure!(again.count() == 1, "{pep:?} does not say that it is over");
    }
    // What was relayed before goes on, and new flows are relayed.
    exchange(&mut idle)?;
    let before = site.figure(Pep::Gateway, "/relayed_total")?;
    half_close(&routes[0])?;
    ensure!(site.figure(Pep::Gateway, "/relayed_total")? > before);
    exchange(&mut idle)
}

#[test]
fn a_gateway_that_does_not_hear_the_terminal_is_noticed() {
    on_site("a deaf PEP at the gateway", joined, |site| {
        one_is_deaf(site, &[Pep::Gateway])
    });
}

#[test]
fn a_terminal_that_does_not_hear_the_gateway_is_noticed() {
    on_site("a deaf PEP at the terminal", joined, |site| {
        one_is_deaf(site, &[Pep::Terminal])
    });
}

#[test]
fn a_link_that_carries_nothing_either_way_is_told_once() {
    on_site("two deaf PEPs", joined, |site| {
        one_is_deaf(site, &Pep::BOTH)
    });
}

#[test]
fn flows_that_begin_before_a_deaf_terminal_is_noticed_are_whole() {
    on_site("flows and a deaf terminal", joined, |site| {
        let routes = site.routes();
        half_close(&routes[0])?;
        deafen(site, Pep::Terminal)?;
        // Before anybody can have noticed. The terminal hears no offer, so all of it passes.
        let began = [
            Transfer::start(&routes[0], Way::Download, LENGTH / 10)?,
            Transfer::start(&routes[1], Way::Upload, LENGTH / 10)?,
        ];
        for transfer in began {
            transfer.finish_whole()?;
        }
        Pep::BOTH
            .iter()
            .try_for_each(|pep| until_told(site, *pep))?;
        new_ones_pass(site)
    });
}

/// The terminal hears the offer and takes the flow over; the gateway does not hear that, and lets it pass: nobody can carry it.
#[test]
fn a_flow_that_begins_before_a_deaf_gateway_is_noticed_is_reset() {
    on_site("a flow and a deaf gateway", joined, |site| {
        let [ipv4, _] = site.routes();
        half_close(&ipv4)?;
        deafen(site, Pep::Gateway)?;
        let (_listener, address) = ipv4.listen()?;
        let mut stream = ipv4.connect(address)?;
        stream.write_all(b"hello")?;
        stream.set_read_timeout(Some(NOTICED))?;
        let heard = stream.read(&mut [0; 8]);
        let reset = |error: &Error| error.kind() == ErrorKind::ConnectionReset;
        ensure!(heard.as_ref().is_err_and(reset), "it hangs: {heard:?}");
        ensure!(warned(site, Pep::Terminal, "flows are reset: they were taken over") == 1);
        Pep::BOTH
            .iter()
            .try_for_each(|pep| until_told(site, *pep))?;
        new_ones_pass(site)
    });
}
