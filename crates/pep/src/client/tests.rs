//! A client whose machine has slept, on loopback: its server has forgotten the tunnel meanwhile.
//!
//! ```text
//!   application ─SOCKS5─ client ══ QUIC ══ server, a process of its own ── echo
//! ```

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use bentpipe_testbed::daemon::free_port;
use bentpipe_testbed::in_own_process;
use bentpipe_testbed::peer::{Service, echo, read_exactly, set_patience};
use bentpipe_testbed::proxy::Proxy;
use bentpipe_testbed::route::Place;

use crate::config::{ClientFile, ServerFile};
use crate::keys::PrivateKey;
use crate::process::{Diagnosis, feign_sleep, now};

/// Variable that names the file of the server that [`serves`] is to be.
const FILE: &str = "BENTPIPE_TEST_SERVER";

/// Time in which each step is over on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Server in a process of its own, which ends with its guard, without a word.
struct Server(Child);

impl Server {
    /// Runs with this file until it listens at `address`, over TCP as well.
    fn start(file: &Path, address: SocketAddr) -> Self {
        let mut child = Command::new(env::current_exe().expect("this test"));
        child
            .args(["--exact", "client::tests::serves", "--ignored"])
            .env(FILE, file)
            .stdout(Stdio::null());
        let server = Self(child.spawn().expect("a process"));
        until_open(address);
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No test: the server that the one below starts.
#[test]
#[ignore = "started by new_connections_after_a_sleep_are_not_lost_with_the_tunnel"]
fn serves() {
    let Some(file) = env::var_os(FILE) else {
        return;
    };
    let file = ServerFile::load(Path::new(&file)).expect("a server's file");
    crate::server::run(file, &Diagnosis::default()).expect("a server");
}

/// Waits until somebody listens.
fn until_open(address: SocketAddr) {
    let began = now();
    while TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < PATIENCE, "nobody listens on {address}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a key file for `role`; returns the public key.
fn key(home: &Path, role: &str) -> String {
    let key = PrivateKey::generate().expect("random numbers");
    let file = home.join(format!("{role}.key"));
    fs::write(&file, key.to_base64()).expect("a key file");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our own file");
    key.public().to_string()
}

/// Writes the file of `role`.
fn file(home: &Path, role: &str, rest: &str) -> PathBuf {
    let file = home.join(format!("{role}.toml"));
    let text = format!(
        "private_key_file = \"{role}.key\"\nstatus_socket = \"{role}.sock\"\nstate_dir = \"{role}-state\"\nsandbox = false\n{rest}"
    );
    fs::write(&file, text).expect("a file");
    file
}

/// Has an application say something and hear it, `when`.
fn exchange(socks: SocketAddr, echo: SocketAddr, when: &str) {
    let mut stream = TcpStream::connect(socks).expect(when);
    set_patience(&stream, PATIENCE).expect(when);
    let answer = Proxy::Socks5.ask(&mut stream, "127.0.0.1", echo.port());
    assert_eq!(answer.expect(when), Proxy::Socks5.success(), "{when}");
    stream.write_all(b"who is there?").expect(when);
    let heard = read_exactly(&mut stream, 13).expect(when);
    assert_eq!(heard, b"who is there?", "{when}");
}

/// The server was restarted, or has lost patience, while the client's machine slept: nobody has told the client, and what it opened in the
/// old tunnel would be reset with that.
#[test]
fn new_connections_after_a_sleep_are_not_lost_with_the_tunnel() {
    if !in_own_process() {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let [tunnel, entrance, socks] = [free_port(), free_port(), free_port()]
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let [client_key, server_key] = ["client", "server"].map(|role| key(home.path(), role));
    let server = file(
        home.path(),
        "server",
        &format!(
            "listen = \"{tunnel}\"\n[dns]\nenabled = false\n[packets]\nenabled = false\n[sle]\nlisten = \"{entrance}\"\n\
             [[client]]\nname = \"one\"\npublic_key = \"{client_key}\"\nallow = [\"127.0.0.0/8\"]\n"
        ),
    );
    let client = file(
        home.path(),
        "client",
        &format!(
            "[server]\naddress = \"{tunnel}\"\npublic_key = \"{server_key}\"\n[socks5]\nlisten = \"{socks}\"\n"
        ),
    );
    let web = Service::start(&Place::here(), (Ipv4Addr::LOCALHOST, 0).into(), echo);
    let web = web.expect("a server");
    let echo = web.address;

    let running = Server::start(&server, entrance);
    thread::spawn(move || {
        let file = ClientFile::load(&client).expect("a client's file");
        crate::client::run(file, &Diagnosis::default()).expect("a client");
    });
    until_open(socks);
    exchange(socks, echo, "at first");
    drop(running);
    let _running = Server::start(&server, entrance);
    feign_sleep(8 * 3600);
    exchange(socks, echo, "after a long sleep, by the next tunnel");
    feign_sleep(2);
    exchange(
        socks,
        echo,
        "after a short sleep, by the tunnel that stands",
    );
}
