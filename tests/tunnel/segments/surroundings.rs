//! Obstacles of a PEP on its machine: a firewall, forwarding, a full disk. Each is told with its mend, and so is its end.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::LINK_DEVICE;
use bentpipe_sys::command::run_with_input;
use bentpipe_testbed::site::near;
use serde_json::Value;

use super::site::{Pep, PepSite, SOON, on_site};
use super::{CLEAR, joined};
use crate::talk::half_close;

/// Reasons that `status` of the PEP at the terminal gives.
fn reasons(site: &PepSite) -> Result<Vec<String>> {
    let status = site.status(Pep::Terminal)?;
    let all = status["reasons"].as_array().into_iter().flatten();
    Ok(all.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Waits until one of the reasons has `words`, or none has.
fn until_reason(site: &PepSite, words: &str, there: bool) -> Result<String> {
    let deadline = Instant::now() + SOON;
    loop {
        let all = reasons(site)?;
        let found = all.iter().find(|reason| reason.contains(words));
        if found.is_some() == there {
            return Ok(found.cloned().unwrap_or_default());
        }
        ensure!(Instant::now() < deadline, "{words}, {there}: {all:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Lines of this level in the log of the PEP at the terminal that have `words`.
fn lines(site: &PepSite, level: &str, words: &str) -> usize {
    let log = site.log(Pep::Terminal);
    let told = log.lines().filter(|line| line.contains(level));
    told.filter(|line| line.contains(words)).count()
}

#[test]
fn a_firewall_that_drops_what_is_forwarded_is_told_with_a_mend_that_works() {
    on_site("a PEP and a firewall", joined, |site| {
        let [ipv4, ipv6] = site.routes();
        // As a router's firewall is written: it knows its two interfaces.
        let rules = format!(
            "table inet filter {{\n chain forward {{\n type filter hook forward priority 0; policy drop;\n \
             iifname \"lan0\" oifname \"{LINK_DEVICE}\" accept\n iifname \"{LINK_DEVICE}\" oifname \"lan0\" accept\n }}\n}}\n"
        );
        let terminal = site.topology.terminal();
        run_with_input(terminal.command("nft").args(["-f", "-"]), &rules)?;
        let reason = until_reason(site, "chain `inet filter forward`", true)?;
        ensure!(lines(site, "WARN", "chain `inet filter forward`") == 1);
        let commands: Vec<_> = reason
            .split('`')
            .filter(|it| it.starts_with("nft"))
            .collect();
        ensure!(commands.len() == 2, "{reason}");
        for command in commands {
            terminal.run("sh", &["-c", command])?;
        }
        until_reason(site, "chain", false)?;
        ensure!(
            lines(
                site,
                "INFO",
                "over: the firewall's chain `inet filter forward`"
            ) == 1
        );
        let before = site.figure(Pep::Terminal, "/relayed_total")?;
        half_close(&ipv4)?;
        half_close(&ipv6)?;
        ensure!(site.figure(Pep::Terminal, "/relayed_total")? == before + 2);
        Ok(())
    });
}

#[test]
fn forwarding_that_is_off_is_told_by_family() {
    let site = || PepSite::plain(near(), CLEAR);
    on_site("a PEP that does not forward", site, |site| {
        let set = |family: &str, value: &str| {
            let file = format!("/proc/sys/net/{family}/conf/all/forwarding");
            let command = format!("echo {value} > {file}");
            site.topology.terminal().run("sh", &["-c", &command])
        };
        set("ipv6", "0")?;
        let [ipv4, _] = site.routes();
        site.run(Pep::Terminal)?;
        let words = "net.ipv6.conf.all.forwarding is 0";
        until_reason(site, words, true)?;
        ensure!(lines(site, "WARN", words) == 1);
        half_close(&ipv4)?;
        let set = |family: &str, value: &str| {
            let file = format!("/proc/sys/net/{family}/conf/all/forwarding");
            let command = format!("echo {value} > {file}");
            site.topology.terminal().run("sh", &["-c", &command])
        };
        set("ipv6", "1")?;
        until_reason(site, words, false)?;
        set("ipv4", "0")?;
        let told = until_reason(site, "does not forward what comes in by", true)?;
        ensure!(told.contains("lan0"), "{told}");
        set("ipv4", "1")?;
        until_reason(site, "does not forward", false)?;
        Ok(())
    });
}

/// File system of its own at a directory.
struct Mounted(PathBuf);

impl Mounted {
    fn new(directory: PathBuf, options: &str) -> Result<Self> {
        fs::create_dir_all(&directory)?;
        let mounted = Self(directory);
        mounted.mount(options)?;
        Ok(mounted)
    }

    fn mount(&self, options: &str) -> Result<()> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let done = command.arg(&self.0).status().context("mount")?;
        ensure!(done.success(), "mount: {done}");
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_a_reason_of_its_own() {
    let site = || PepSite::plain(near(), CLEAR);
    on_site("a PEP whose disk is full", site, |site| {
        // No file fits beside the directory itself.
        let disk = Mounted::new(site.home(Pep::Terminal).join("state"), "nr_inodes=1")?;
        for pep in Pep::BOTH {
            site.run(pep)?;
        }
        site.until_joined()?;
        let words = "pep-flows cannot be written";
        until_reason(site, words, true)?;
        let [ipv4, _] = site.routes();
        let [back, _] = site.backwards();
        // Offered here, and offered by the other PEP.
        half_close(&back)?;
        half_close(&ipv4)?;
        let count = |path| site.figure(Pep::Terminal, path);
        ensure!(site.figure(Pep::Gateway, "/relayed_total")? == 0);
        ensure!(count("/refused_total/no_disk")? == 2);
        ensure!(count("/refused_total/no_tunnel")? == 0);
        ensure!(lines(site, "ERROR", words) == 1);
        disk.mount("remount,nr_inodes=100")?;
        half_close(&ipv4)?;
        until_reason(site, words, false)?;
        ensure!(site.figure(Pep::Gateway, "/relayed_total")? == 1);
        Ok(())
    });
}

#[test]
fn a_stop_that_drained_everything_leaves_an_empty_list() {
    on_site("a PEP that has nothing to reset", joined, |site| {
        let routes = site.routes();
        for route in routes.iter().chain(&site.backwards()) {
            half_close(route)?;
        }
        ensure!(site.figure(Pep::Terminal, "/relayed_total")? == 4);
        let file = site.home(Pep::Terminal).join("state/pep-flows");
        site.stop(Pep::Terminal)?;
        let text = fs::read_to_string(&file)?;
        ensure!(
            text.lines().count() == 1 && text.starts_with("boot "),
            "{text}"
        );
        // So does a process that was killed, but for what it has not written yet.
        site.run(Pep::Terminal)?;
        site.until_joined()?;
        half_close(&routes[0])?;
        thread::sleep(Duration::from_secs(1));
        site.kill(Pep::Terminal)?;
        site.run(Pep::Terminal)?;
        ensure!(lines(site, "INFO", "of an earlier process") == 0);
        Ok(())
    });
}

#[test]
fn no_program_is_given_the_devices_address() {
    on_site("a PEP's address", joined, |site| {
        for pep in Pep::BOTH {
            let listed = site.place(pep).run("ip", &["-o", "-4", "addr", "show"])?;
            let own: Vec<_> = listed
                .lines()
                .filter(|it| it.contains("192.0.0.8"))
                .collect();
            ensure!(own.len() == 2, "{listed}");
            ensure!(own.iter().all(|it| it.contains("scope link")), "{own:?}");
        }
        Ok(())
    });
}
