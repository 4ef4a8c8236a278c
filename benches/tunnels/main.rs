//! Cost of idle tunnels for a server, and the time until all are back after it was killed and started again.
//!
//! `cargo bench --bench tunnels` runs 1,000 and 10,000 of them, from a hundred addresses of 127/8, and fails above the
//! ceilings. The clients are quinn connections of this process with the keys of listed clients; they say HELLO and then
//! nothing, and connect anew when their connection has ended, as `bentpipe client` does.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_emulator::usage::{cpu_seconds, resident};
use bentpipe_testbed::clients::Clients;
use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::keys::generate;
use bentpipe_tunnel::engine::identity::{PrivateKey, PublicKey};

/// Program under test, which cargo builds before this binary.
pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

/// Tunnels of each experiment.
const NUMBERS: [usize; 2] = [1_000, 10_000];

/// How long they are idle while their cost is counted: each keeps alive once in 25 s.
const IDLE: Duration = Duration::from_secs(50);

/// The most memory that a tunnel may take of the server, in bytes.
const MEMORY: f64 = 100_000.0;

/// The most of a core that the server may need for 10,000 idle tunnels.
const CORES: f64 = 0.3;

/// Until all are back after a restart: 25 s until the last has asked after its tunnel, the handshakes of both ends on this
/// machine (23 s with two cores), and what a busy machine is given on top.
const BACK: Duration = Duration::from_secs(75);

/// Time that the server is given to come up.
const READY: Duration = Duration::from_secs(10);

/// How long any of it may take.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let met: Vec<bool> = NUMBERS.into_iter().map(experiment).collect();
    if met.into_iter().all(|met| met) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the figures for `number` tunnels; true if they are below the ceilings.
fn experiment(number: usize) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let keys: Vec<_> = (0..number)
        .map(|_| PrivateKey::generate().expect("a key"))
        .collect();
    let public = configure(directory.path(), address, &keys);
    let server = start(directory.path());
    let empty = memory_of(&server);
    let began = Instant::now();
    let clients = Clients::start(address, public, keys);
    clients.wait_for(1, PATIENCE);
    let came = began.elapsed();
    let (cpu, from) = (cpu_of(&server), Instant::now());
    thread::sleep(IDLE);
    let memory = (memory_of(&server) - empty) as f64 / number as f64;
    let cores = (cpu_of(&server) - cpu) / from.elapsed().as_secs_f64();
    assert_eq!(clients.entered(1), number, "all stay");
    drop(server);
    let killed = Instant::now();
    let _server = start(directory.path());
    clients.wait_for(2, PATIENCE);
    let back = killed.elapsed();
    println!(
        "{number:6} tunnels: {:.1} kB each, {cores:.3} cores; came in {:.1} s, all back {:.1} s after the server was killed",
        memory / 1e3,
        came.as_secs_f64(),
        back.as_secs_f64(),
    );
    memory <= MEMORY && cores <= CORES && back <= BACK
}

/// Starts the server that is configured in `directory`, and waits until it is ready.
fn start(directory: &Path) -> Daemon {
    let server = Daemon::start(BENTPIPE, "server", directory, "server").expect("a daemon");
    server.wait_for("ready", READY);
    server
}

fn memory_of(server: &Daemon) -> u64 {
    resident(server.id()).expect("the server lives")
}

fn cpu_of(server: &Daemon) -> f64 {
    cpu_seconds(server.id()).expect("the server lives")
}

/// Writes the server's configuration; returns its public key.
fn configure(directory: &Path, address: SocketAddr, keys: &[PrivateKey]) -> PublicKey {
    let public = generate(BENTPIPE, &directory.join("server.key")).expect("a key");
    let mut text = format!(
        "private_key_file = \"server.key\"\nlisten = \"{address}\"\nstatus_socket = \"server.sock\"\n\
         state_dir = \"state\"\n[dns]\nenabled = false\n[packets]\nenabled = false\n"
    );
    for (number, key) in keys.iter().enumerate() {
        let key = key.public();
        write!(
            text,
            "[[client]]\nname = \"c{number}\"\npublic_key = \"{key}\"\n"
        )
        .expect("text");
    }
    fs::write(directory.join("server.toml"), text).expect("a file");
    public.parse().expect("a public key")
}
