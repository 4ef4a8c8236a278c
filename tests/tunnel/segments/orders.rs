//! Orders of an operator to a PEP: what a reload takes over and what it does not, and what stays where stopping fails.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::failing::FailingTool;
use bentpipe_testbed::site::near;

use super::CLEAR;
use super::site::{Pep, PepSite, SOON, on_site};

/// PEP that gets the orders; the other one does not run.
const PEP: Pep = Pep::Gateway;

/// Has the PEP read its file again, which it then answers with a line that has all of these `words`.
fn reload(site: &PepSite, words: &[&str]) -> Result<()> {
    let before = site.log(PEP).len();
    site.hang_up(PEP)?;
    let deadline = Instant::now() + SOON;
    loop {
        let log = site.log(PEP);
        let mut lines = log[before..].lines();
        if lines.any(|line| words.iter().all(|word| line.contains(word))) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no line with {words:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Changes a key that needs a restart.
fn change(site: &PepSite, old: &str, new: &str) -> Result<()> {
    let line = |span: &str| format!("drain_timeout = \"{span}\"");
    edit(&site.home(PEP).join("pep.toml"), &line(old), &line(new))
}

fn clients_are_taken_over(site: &mut PepSite) -> Result<()> {
    let [one, other] = [Pep::Gateway, Pep::Terminal].map(|pep| site.key(pep).to_owned());
    site.add(PEP, &format!("[les]\nclients = [\"{one}\"]\n"))?;
    site.run(PEP)?;
    reload(site, &["INFO", "reloaded: 1 client of [les]"])?;
    let file = site.home(PEP).join("pep.toml");
    let clients = |keys: &str| format!("clients = [{keys}]");
    let quoted = format!("\"{one}\"");
    edit(
        &file,
        &clients(&quoted),
        &clients(&format!("{quoted}, \"{other}\"")),
    )?;
    change(site, "3 s", "4 s")?;
    let restart = "drain_timeout of ";
    let words = [
        "WARN",
        "reloaded: 2 clients of [les]",
        restart,
        "restart the PEP",
    ];
    reload(site, &words)?;
    change(site, "4 s", "soon")?;
    reload(
        site,
        &[
            "ERROR",
            "nothing was reloaded, and the PEP would not start again",
        ],
    )?;
    change(site, "soon", "3 s")?;
    reload(site, &["INFO", "reloaded: 2 clients of [les]"])
}

fn nothing_is_taken_over(site: &mut PepSite) -> Result<()> {
    site.run(PEP)?;
    reload(
        site,
        &["INFO", "nothing to reload", "is as it was at the start"],
    )?;
    change(site, "3 s", "4 s")?;
    reload(site, &["WARN", "nothing was reloaded: drain_timeout of "])
}

#[test]
fn a_reload_says_what_was_taken_over_and_what_needs_a_restart() {
    let cases = [
        ("clients", clients_are_taken_over as fn(&mut PepSite) -> _),
        ("nothing", nothing_is_taken_over),
    ];
    for (name, case) in cases {
        on_site(
            &format!("segments: reload of {name}"),
            || PepSite::plain(near(), CLEAR),
            case,
        );
    }
}

fn says_what_stays(site: &mut PepSite) -> Result<()> {
    let state = site.home(PEP).join("state");
    fs::create_dir(&state)?;
    let nft = FailingTool::new(&state, "nft")?;
    site.run_with(PEP, |command| nft.put_first(command))?;
    nft.fail()?;
    let log = site.stop(PEP)?;
    let stays = "table inet bentpipe_pep stays in the kernel: ";
    let mend = "remove it by hand: `nft delete table inet bentpipe_pep`";
    ensure!(log.contains(stays) && log.contains(mend), "{log}");
    // The next one replaces it, and stops without a word.
    nft.work()?;
    site.run_with(PEP, |command| nft.put_first(command))?;
    let log = site.stop(PEP)?;
    ensure!(!log.contains("stays in the kernel"), "{log}");
    let tables = site.place(PEP).run("nft", &["list", "tables"])?;
    ensure!(!tables.contains("bentpipe"), "{tables}");
    Ok(())
}

#[test]
fn a_pep_that_stops_says_what_stays_in_the_kernel() {
    on_site(
        "segments: a stop that fails",
        || PepSite::plain(near(), CLEAR),
        says_what_stays,
    );
}
