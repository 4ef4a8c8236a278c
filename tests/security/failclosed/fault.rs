//! A client that ends because it cannot go on, or cannot start: the rules stay, as those of one that was killed.

use std::process::Command;

use bentpipe_testbed::installed;
use bentpipe_testbed::site::with_config;
use bentpipe_testbed::strace::Strace;

use super::*;
use crate::SOON;

/// Fault that no client can go on from: the kernel says of its socket that it is none.
const NO_SOCKET: [&str; 4] = [
    "-e",
    "trace=recvmmsg",
    "-e",
    "inject=recvmmsg:error=ENOTSOCK",
];

#[test]
fn a_client_that_ends_by_a_fault_lets_nothing_out() {
    if !privileged("fail closed: a fault") || !installed("fail closed: a fault", "strace") {
        return;
    }
    let mut site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = end_by_a_fault(&mut site);
    expect_ok(result, &site);
}

fn end_by_a_fault(site: &mut Site) -> Result<()> {
    let routes = site.routes();
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    let mut downloads = start_downloads(&routes)?;
    let _strace = Strace::attach(site.client().id(), &NO_SOCKET)?;
    let (status, log) = site.client_ends()?;
    ensure!(status.code() == Some(1), "{status}:\n{log}");
    for download in &mut downloads {
        download.expect_user_reset(AT_ONCE)?;
    }
    expect_shut(&routes)?;
    let told = log.lines().filter(|line| {
        line.contains("ERROR the client ends by a fault: Socket operation on non-socket")
            && line.ends_with("what they take in is dropped until it runs again")
    });
    ensure!(told.count() == 1, "{log}");
    // As soon as a service manager does.
    site.start_client()?;
    for download in downloads {
        download.expect_server_reset(FOUND)?;
    }
    expect_echo(&routes)?;
    drop(prober);
    expect_tunnel_alone(capture)
}

/// A client was killed, and the next one cannot start: a fault of the machine ends one after the other.
#[test]
fn a_client_that_cannot_start_leaves_the_rules_of_one_that_was_killed() {
    if !privileged("fail closed: no start") {
        return;
    }
    let mut site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = start_in_vain(&mut site);
    expect_ok(result, &site);
}

fn start_in_vain(site: &mut Site) -> Result<()> {
    let routes = site.routes();
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    site.kill_client()?;
    // What it lacks it finds out when its rules are in force.
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-net_raw", "--bounding-set=-net_raw", "--"]);
    with_config(command.arg(BENTPIPE), site.client_home());
    let client = site.topology.spawn_in(site.topology.terminal(), command)?;
    let status = client.wait(SOON)?;
    let log = client.stderr_text();
    ensure!(status.code() == Some(4), "{status}:\n{log}");
    expect_shut(&routes)?;
    ensure!(
        log.contains("WARN the rules of the client that ran before stay in force"),
        "{log}"
    );
    site.start_client()?;
    expect_echo(&routes)?;
    drop(prober);
    expect_tunnel_alone(capture)
}
