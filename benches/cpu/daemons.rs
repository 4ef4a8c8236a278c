//! bentpipe as its users run it: two processes, SOCKS5 on one side, a TCP source on the other.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_emulator::usage::cpu_seconds;
use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::keys::generate;

use crate::Run;

/// Path of bentpipe.
const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");

/// Time that a daemon is given to come up.
const READY: Duration = Duration::from_secs(10);

/// Downloads `bytes` through a fresh pair of daemons; counts the CPU seconds of both.
pub(crate) fn run(bytes: u64) -> Run {
    let directory = tempfile::tempdir().expect("a directory");
    let source = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = source.local_addr().expect("an address").port();
    thread::spawn(move || serve(&source, bytes));
    let socks = free_port();
    configure(directory.path(), free_port(), socks);
    let [server, client] = ["server", "client"].map(|role| {
        let daemon = Daemon::start(BENTPIPE, role, directory.path(), role).expect("a daemon");
        daemon.wait_for("ready", READY);
        daemon
    });
    // A first small transfer opens the window's first rounds and fills caches.
    download(socks, port, 20_000_000.min(bytes));
    let cpu = || {
        let used = [&server, &client].map(|daemon| cpu_seconds(daemon.id()));
        used.map(|used| used.expect("a daemon lives"))
            .iter()
            .sum::<f64>()
    };
    let (before, began) = (cpu(), Instant::now());
    download(socks, port, bytes);
    Run {
        seconds: began.elapsed().as_secs_f64(),
        cpu: cpu() - before,
    }
}

/// Sends bytes to whoever connects, until it leaves.
fn serve(listener: &TcpListener, bytes: u64) {
    let block = vec![0x5a; 1 << 18];
    for stream in listener.incoming() {
        let mut stream = stream.expect("a connection");
        let mut left = bytes;
        while left > 0 {
            let size = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if stream.write_all(&block[..size]).is_err() {
                break;
            }
            left -= size as u64;
        }
    }
}

fn download(socks: u16, port: u16, bytes: u64) {
    let mut stream = TcpStream::connect(("127.0.0.1", socks)).expect("the client listens");
    stream.write_all(&[5, 1, 0]).expect("a greeting");
    let [high, low] = port.to_be_bytes();
    stream
        .write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low])
        .expect("a request");
    let mut answers = [0; 2 + 10];
    stream.read_exact(&mut answers).expect("SOCKS5 answers");
    let mut buffer = vec![0; 1 << 18];
    let mut got = 0;
    while got < bytes {
        match stream.read(&mut buffer).expect("the flow lives") {
            0 => panic!("the flow ended after {got} bytes"),
            n => got += n as u64,
        }
    }
}

fn configure(directory: &Path, udp: u16, socks: u16) {
    let [client, server] = ["client", "server"]
        .map(|name| generate(BENTPIPE, &directory.join(format!("{name}.key"))).expect("a key"));
    let text = format!(
        "private_key_file = \"server.key\"\nlisten = \"127.0.0.1:{udp}\"\nstatus_socket = \"server.sock\"\n\
         state_dir = \"state\"\n[packets]\nenabled = false\n\
         [[client]]\nname = \"bench\"\npublic_key = \"{client}\"\nallow = [\"127.0.0.0/8\"]\n"
    );
    fs::write(directory.join("server.toml"), text).expect("a file");
    let text = format!(
        "private_key_file = \"client.key\"\nstatus_socket = \"client.sock\"\nstate_dir = \"state\"\n\
         [server]\naddress = \"127.0.0.1:{udp}\"\npublic_key = \"{server}\"\n[socks5]\nlisten = \"127.0.0.1:{socks}\"\n"
    );
    fs::write(directory.join("client.toml"), text).expect("a file");
}
