//! From nothing to a link: `server init`, `server add`, `client join`, both daemons, bytes.

mod faults;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::daemon::free_port;
use bentpipe_testbed::status::report;
use tempfile::TempDir;

use super::config_errors::home::{Ended, PATIENCE, Running, run};
use crate::BENTPIPE;

/// What the destination says.
const WORD: &[u8] = b"hello from the other side";

/// A server and the clients that join it, each in a directory of its own.
pub(crate) struct Site {
    directory: TempDir,
    port: u16,
}

fn bentpipe(arguments: &[&str]) -> Ended {
    run(Command::new(BENTPIPE).args(arguments))
}

/// Standard output of what must succeed.
pub(crate) fn said(arguments: &[&str]) -> String {
    let ended = bentpipe(arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    ended.stdout
}

impl Site {
    /// A server as `init` makes it, with what a test needs besides: places of its own, and no device.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let site = Self {
            directory,
            port: free_port(),
        };
        let public = format!("127.0.0.1:{}", site.port);
        let made = said(&[
            "server",
            "init",
            "--public",
            &public,
            "--config",
            &site.server(),
        ]);
        assert!(made.contains("bentpipe server add NAME"), "{made}");
        let text = fs::read_to_string(site.server()).expect("it was made");
        fs::write(
            site.server(),
            format!("{text}status_socket = \"server.sock\"\nstate_dir = \"state\"\n[packets]\nenabled = false # kept\n"),
        )
        .expect("it is ours");
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The server's configuration.
    pub(crate) fn server(&self) -> String {
        self.path("server.toml").display().to_string()
    }

    /// Adds a client, which may reach this machine; returns its code.
    pub(crate) fn add(&self, name: &str, more: &[&str]) -> String {
        let server = self.server();
        let arguments = [&["server", "add", name, "--config", &server], more].concat();
        let code = said(&arguments);
        assert_eq!(code.lines().count(), 1, "{code}");
        let text = fs::read_to_string(&server).expect("it is there");
        let name = format!("name = \"{name}\"");
        let allowed = format!("{name}\nallow = [\"127.0.0.0/8\"]");
        fs::write(&server, text.replace(&name, &allowed)).expect("it is ours");
        code.trim().to_owned()
    }

    /// Has `client` join by `code`; returns where its proxy listens.
    pub(crate) fn join(&self, client: &str, code: &str) -> u16 {
        let config = self.path(client).join("client.toml");
        let made = said(&[
            "client",
            "join",
            code,
            "--config",
            &config.display().to_string(),
        ]);
        assert!(made.contains("Next:  bentpipe client --config"), "{made}");
        // The unit reads another file.
        assert!(!made.contains("systemctl"), "{made}");
        let socks = free_port();
        let text = fs::read_to_string(&config).expect("it was made");
        let text = text
            .replace(
                "[server]",
                "status_socket = \"client.sock\"\nstate_dir = \"state\"\n[server]",
            )
            .replace("127.0.0.1:1080", &format!("127.0.0.1:{socks}"))
            .replace("127.0.0.1:8080", &format!("127.0.0.1:{}", free_port()));
        fs::write(&config, text).expect("it is ours");
        socks
    }

    fn start_server(&self) -> Running {
        self.start_server_by(Command::new(BENTPIPE), &[])
    }

    /// Starts the server by a command that ends in the program, with `more` arguments.
    pub(crate) fn start_server_by(&self, mut daemon: Command, more: &[&str]) -> Running {
        daemon
            .args(["server", "--config", &self.server()])
            .args(more);
        Running::start(daemon, &self.path("server.sock"))
    }

    fn start_client(&self, client: &str) -> Running {
        self.start_client_with(client, &[])
    }

    /// Starts a client with `more` arguments.
    pub(crate) fn start_client_with(&self, client: &str, more: &[&str]) -> Running {
        let directory = self.path(client);
        let mut daemon = Command::new(BENTPIPE);
        daemon
            .args(["client", "--config"])
            .arg(directory.join("client.toml"))
            .args(more);
        Running::start(daemon, &directory.join("client.sock"))
    }

    /// Health of `client`, as `status --check` says it, once it has `word` in it.
    pub(crate) fn wait_for(&self, client: &str, word: &str) {
        let socket = self.path(client).join("client.sock").display().to_string();
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let health = bentpipe(&["status", "--check", "--socket", &socket]).stdout;
            if health.contains(word) {
                return;
            }
            assert!(Instant::now() < deadline, "{client}: no `{word}`: {health}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What a destination on this machine says through the SOCKS5 proxy at `socks`.
fn hear(socks: u16) -> Vec<u8> {
    let source = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = source.local_addr().expect("an address").port();
    thread::spawn(move || {
        source
            .accept()
            .map(|(mut stream, _)| stream.write_all(WORD))
    });
    let mut stream = through(socks, port);
    let mut heard = Vec::new();
    stream
        .read_to_end(&mut heard)
        .expect("the flow ends in order");
    heard
}

/// A connection to a port of this machine through the SOCKS5 proxy at `socks`.
pub(crate) fn through(socks: u16, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", socks)).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let [high, low] = port.to_be_bytes();
    stream.write_all(&[5, 1, 0]).expect("a greeting");
    stream
        .write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low])
        .expect("a request");
    let mut answers = [0; 2 + 10];
    stream.read_exact(&mut answers).expect("SOCKS5 answers");
    stream
}

fn mode(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}

/// The client joins when it first connects: the server may start after it, and be restarted.
/// A router's own traffic stays outside, so its file has a proxy for `bentpipe measure`.
#[test]
fn a_router_takes_in_its_lan_and_can_measure_itself() {
    let site = Site::new();
    let code = site.add("router", &[]);
    let config = site
        .path("router")
        .join("client.toml")
        .display()
        .to_string();
    let ended = bentpipe(&[
        "client", "join", &code, "--lan", "lan0", "--lan", "lo", "--config", &config,
    ]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // The interface may come later; a name that was misspelt is told now.
    let absent = "there is no interface `lan0` on this machine now";
    assert!(ended.stderr.contains(absent), "{}", ended.stderr);
    assert!(!ended.stderr.contains("`lo`"), "{}", ended.stderr);
    let text = fs::read_to_string(&config).expect("it was made");
    for table in [
        "[intercept]\ninterfaces = [\"lan0\", \"lo\"]",
        "[socks5]\nlisten = \"127.0.0.1:1080\"",
    ] {
        assert!(text.contains(table), "{text}");
    }
    said(&["check", &config]);
}

#[test]
fn a_code_makes_a_link_for_one_client() {
    let site = Site::new();
    let code = site.add("terminal-1", &[]);
    let text = fs::read_to_string(site.server()).expect("it is there");
    assert!(text.contains("enabled = false # kept"), "{text}");
    assert!(text.contains("# Where clients reach it"), "{text}");
    let socks = site.join("one", &code);
    for secret in ["client.key", "join.key", "client.toml"] {
        assert_eq!(mode(&site.path("one").join(secret)), 0o600, "{secret}");
    }
    let _one = site.start_client("one");
    let server = site.start_server();
    site.wait_for("one", "ready");
    assert_eq!(hear(socks), WORD);
    // Its log and its status name the server as the operator does, though one socket of it reaches both families.
    let socket = site.path("one").join("client.sock");
    let status = report(BENTPIPE, &socket).expect("a report").to_string();
    let named = format!("at 127.0.0.1:{}, ", site.port);
    assert!(
        status.contains(&named) && !status.contains("ffff:"),
        "{status}"
    );
    let listed = said(&["server", "list", "--config", &site.server()]);
    let key = run(Command::new("sh")
        .args(["-c", "\"$0\" pubkey < \"$1\"", BENTPIPE])
        .arg(site.path("one").join("client.key")))
    .stdout;
    assert!(
        listed.contains("terminal-1") && listed.contains(key.trim()),
        "{listed}{key}"
    );

    site.join("thief", &code);
    let thief = site.start_client("thief");
    site.wait_for("thief", "the code was used on 20");

    // Whoever has the code may try as often as he likes.
    drop(thief);
    site.join("other", &code);
    let _other = site.start_client("other");
    site.wait_for("other", "the code was used on 20");

    let ended = server.stop();
    assert!(
        ended.stderr.contains("joined client=\"terminal-1\""),
        "{}",
        ended.stderr
    );
    let refused = "terminal-1 cannot join: its code was used on 20";
    assert_eq!(ended.stderr.matches(refused).count(), 1, "{}", ended.stderr);
    let _server = site.start_server();
    site.wait_for("one", "ready");
    fs::remove_file(site.path("one").join("join.key")).expect("it may be deleted");
    let removed = bentpipe(&["server", "remove", "terminal-1", "--config", &site.server()]);
    assert!(
        removed.stderr.contains("reads its clients again"),
        "{}",
        removed.stderr
    );
    site.wait_for("one", "does not know this client");
}

#[test]
fn clients_are_listed_below_what_init_has_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("server.toml").display().to_string();
    said(&["server", "init", "--public", "192.0.2.1", "--config", &file]);
    let before = fs::read_to_string(&file).expect("it was made");
    said(&["server", "add", "ship-1", "--config", &file]);
    let after = fs::read_to_string(&file).expect("it is there");
    let added = after.strip_prefix(&before);
    assert!(
        added.is_some_and(|text| text.trim_start().starts_with("[[client]]")),
        "{after}"
    );
}

/// Behind a NAT the port outside is another than the one that the server listens on.
#[test]
fn the_port_outside_may_be_another_than_the_servers_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let init = |name: &str, public: &str, more: &[&str]| {
        let file = directory.path().join(name).join("server.toml");
        let file = file.display().to_string();
        let words = ["server", "init", "--public", public, "--config", &file];
        let shown = said(&[&words, more].concat());
        let text = fs::read_to_string(&file).expect("it was made");
        (file, shown, text)
    };
    let (_, shown, text) = init("plain", "192.0.2.1:443", &[]);
    assert!(text.contains("listen = \":443\""), "{text}");
    assert!(shown.contains("listens on UDP port 443"), "{shown}");
    assert!(shown.contains("set that one as `listen`"), "{shown}");
    let (file, shown, text) = init("nat", "192.0.2.1:443", &["--listen", "4433"]);
    assert!(text.contains("listen = \":4433\""), "{text}");
    let wanted = "UDP port 443 there has to lead to UDP port 4433 of this machine.";
    assert!(shown.contains(wanted), "{shown}");
    // Codes bear the port outside.
    let code = said(&["server", "add", "ship-1", "--config", &file]);
    assert!(code.contains("192.0.2.1:443"), "{code}");
}

#[test]
fn a_client_joins_by_itself_once_the_servers_list_is_mended() {
    let site = Site::new();
    let code = site.add("early", &[]);
    let socks = site.join("early", &code);
    let list = site.path("state").join("enrolled.json");
    fs::create_dir(site.path("state")).expect("it is ours");
    fs::write(&list, "{").expect("it is ours");
    let _server = site.start_server();
    let _early = site.start_client("early");
    site.wait_for("early", "could not record this client's key");
    let damaged = fs::read_to_string(&list).expect("it is there");
    assert_eq!(damaged, "{", "an operator may mend it");
    fs::remove_file(&list).expect("it is ours");
    // The running server reads its clients again.
    site.add("other", &[]);
    site.wait_for("early", "ready");
    assert_eq!(hear(socks), WORD);
}
