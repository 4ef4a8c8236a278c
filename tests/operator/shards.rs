//! Where tunnels live on a server of several threads: as many on one as on the other, whatever addresses their clients have.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_testbed::daemon::Daemon;
use bentpipe_testbed::keys::generate;
use bentpipe_testbed::status::report;

use crate::BENTPIPE;

/// Clients of one server of two shards.
const CLIENTS: usize = 8;

/// For a daemon to start, and for the status to show it.
const SOON: Duration = Duration::from_secs(20);

/// Writes the configuration of a server and of its clients.
fn configure(directory: &Path) -> Result<()> {
    let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
    let server = generate(BENTPIPE, &directory.join("server.key"))?;
    let mut text = format!(
        "private_key_file = \"server.key\"\nlisten = \"127.0.0.1:{port}\"\nshards = 2\nstate_dir = \"state\"\n\
         status_socket = \"server.sock\"\n[packets]\nenabled = false\n"
    );
    for number in 0..CLIENTS {
        let key = generate(BENTPIPE, &directory.join(format!("{number}.key")))?;
        text += &format!("[[client]]\nname = \"{number}\"\npublic_key = \"{key}\"\n");
        let client = format!(
            "private_key_file = \"{number}.key\"\nstatus_socket = \"{number}.sock\"\nstate_dir = \"state-{number}\"\n\
             [server]\naddress = \"127.0.0.1:{port}\"\npublic_key = \"{server}\"\n[socks5]\nlisten = \"127.0.0.1:0\"\n"
        );
        fs::write(directory.join(format!("{number}.toml")), client)?;
    }
    Ok(fs::write(directory.join("server.toml"), text)?)
}

/// How many tunnels each shard has, once there are `count` together.
fn tunnels(directory: &Path, count: usize) -> Result<[usize; 2]> {
    let began = Instant::now();
    loop {
        let status = report(BENTPIPE, &directory.join("server.sock"))?;
        let clients = status["clients"].as_array().context("clients")?;
        if clients.len() == count {
            let on = |shard: u64| {
                let shards = clients.iter().filter(|client| client["shard"] == shard);
                shards.count()
            };
            return Ok([on(0), on(1)]);
        }
        if began.elapsed() > SOON {
            bail!("{} tunnels instead of {count}", clients.len());
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn eight_tunnels_on_two_shards_are_four_and_four() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    configure(directory)?;
    let server = Daemon::start(BENTPIPE, "server", directory, "server")?;
    server.wait_for("ready", SOON);
    let start = |number: usize| Daemon::start(BENTPIPE, "client", directory, &number.to_string());
    // One by one, and then all at once: those must not choose the same at one instant.
    let mut clients = Vec::new();
    for count in 1..=3 {
        clients.push(start(count - 1)?);
        let [one, other] = tunnels(directory, count)?;
        ensure!(one.abs_diff(other) <= 1, "{one} and {other} of {count}");
    }
    for number in clients.len()..CLIENTS {
        clients.push(start(number)?);
    }
    let shared = tunnels(directory, CLIENTS)?;
    ensure!(shared == [CLIENTS / 2; 2], "shared as {shared:?}");
    Ok(())
}
