//! From nothing to a link: `server init`, `server add`, `client join`, both daemons, bytes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_testbed::daemon::free_port;
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
    let socket = site.path("one").join("client.sock").display().to_string();
    let status = said(&["status", "--json", "--socket", &socket]);
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
    let _thief = site.start_client("thief");
    site.wait_for("thief", "the code was used on 20");

    let ended = server.stop();
    assert!(
        ended.stderr.contains("joined client=\"terminal-1\""),
        "{}",
        ended.stderr
    );
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

/// A configuration that is kept elsewhere and linked to stays so: the file behind the link is changed, whole or not at all.
#[test]
fn a_link_to_a_configuration_stays_a_link() {
    let directory = tempfile::tempdir().expect("a directory");
    let [place, kept] = ["etc", "kept"].map(|name| directory.path().join(name));
    let file = place.join("server.toml");
    let shown = file.display().to_string();
    said(&[
        "server",
        "init",
        "--public",
        "192.0.2.1",
        "--config",
        &shown,
    ]);
    fs::create_dir(&kept).expect("a directory");
    let target = kept.join("gateway.toml");
    fs::rename(&file, &target).expect("it is ours");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("it is ours");
    symlink("../kept/gateway.toml", &file).expect("a link");
    // The key stays beside the link, to which the names in the file are relative.
    said(&["server", "add", "ship-1", "--config", &shown]);
    let is_link = || file.symlink_metadata().expect("it is there").is_symlink();
    assert!(is_link(), "the link has gone");
    let text = fs::read_to_string(&target).expect("it is there");
    assert!(text.contains("ship-1"), "{text}");
    let mode = target.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    said(&["server", "remove", "ship-1", "--config", &shown]);
    assert!(
        is_link()
            && !fs::read_to_string(&target)
                .expect("it is there")
                .contains("ship-1")
    );
    for left in [&place, &kept].map(|place| fs::read_dir(place).expect("a directory")) {
        let mut names = left.map(|entry| entry.expect("an entry").file_name());
        assert!(names.all(|name| !name.to_string_lossy().ends_with("new")));
    }
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

#[test]
fn a_code_expires() {
    let site = Site::new();
    let code = site.add("late", &[]);
    site.join("late", &code);
    // Nobody waits for a minute, which is the least that a code lasts.
    let text = fs::read_to_string(site.server()).expect("it is there");
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("enrolment_expires", _)) => "enrolment_expires = \"2020-01-01T00:00:00Z\"",
        _ => line,
    });
    let lines: Vec<_> = lines.collect();
    fs::write(site.server(), lines.join("\n") + "\n").expect("it is ours");
    let listed = said(&["server", "list", "--config", &site.server()]);
    let flag = format!("late --config {}`", site.server());
    for command in ["bentpipe server remove", "bentpipe server add"] {
        assert!(listed.contains(&format!("`{command} {flag}")), "{listed}");
    }
    let _server = site.start_server();
    let _late = site.start_client("late");
    site.wait_for("late", "the code has expired on 2020");
}

#[test]
fn nothing_is_overwritten_and_faults_are_named() {
    let site = Site::new();
    let again = bentpipe(&[
        "server",
        "init",
        "--public",
        "gateway.example.com",
        "--config",
        &site.server(),
    ]);
    assert_eq!(again.code, Some(1), "{}", again.stderr);
    assert!(
        again.stderr.contains("exists and stays as it is"),
        "{}",
        again.stderr
    );
    let code = site.add("terminal-1", &[]);
    let short = ["server", "add", "x", "--expires", "59 s"];
    let long = ["server", "add", "x", "--expires", "99999999 h"];
    for (arguments, code, word) in [
        (
            &["server", "add", "terminal-1"][..],
            1,
            "lists a client `terminal-1` already",
        ),
        (
            &["server", "add", "two words"],
            2,
            "is no name for a client",
        ),
        (&short, 2, "allow \"1 min\" at least"),
        (&long, 2, "is more than a time span can be"),
        (&["server", "remove", "terminal-2"], 3, "has no such client"),
        (&["server", "init", "--public", "a b"], 2, "is no address"),
        (&["server", "init", "--public", ""], 2, "is no address"),
    ] {
        let server = site.server();
        let ended = bentpipe(&[arguments, &["--config", &server]].concat());
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains(word), "{}", ended.stderr);
    }
    let config = site.path("x").join("client.toml").display().to_string();
    for cut in [10, code.len() - 3] {
        let ended = bentpipe(&["client", "join", &code[..cut], "--config", &config]);
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains("is it whole?"), "{}", ended.stderr);
    }
    assert!(!site.path("x").exists(), "nothing was made");
    // A fault of the command is seen before anything is made, so that the mended one succeeds.
    let join = |lan| bentpipe(&["client", "join", &code, "--config", &config, "--lan", lan]);
    let faulty = join("lan 0");
    faulty.must_say(
        2,
        "bentpipe: ",
        &["bad interface name `lan 0`", "nothing was made"],
    );
    assert!(!site.path("x").exists(), "nothing was made");
    let mended = join("lan0");
    assert_eq!(mended.code, Some(0), "{}", mended.stderr);
    // A place in which nothing can be made is named, and no file aside that nobody knows.
    let place = format!("{config}/below/a.key");
    let out = bentpipe(&["genkey", "--out", &place]);
    out.must_say(1, "bentpipe: cannot make ", &["a.key: Not a directory"]);
    let out = bentpipe(&["genkey", "--out", "/proc/a.key"]);
    out.must_say(1, "bentpipe: cannot make /proc/a.key: ", &["os error"]);
    assert!(!out.stderr.contains(".bentpipe-"), "{}", out.stderr);
}

/// A disk that is full at the first file, and one that is at the third: what is made is made whole, or not at all.
#[test]
fn a_full_disk_leaves_nothing_that_was_begun() {
    let site = Site::new();
    let code = site.add("terminal-1", &[]);
    let directory = site.path("full");
    fs::create_dir(&directory).expect("a directory");
    let config = directory.join("client.toml");
    let limited = |blocks: &str, arguments: &[&str]| {
        // Beyond its limit a file takes nothing, as on a full disk; who ignores the signal is told so.
        let limited = "trap '' XFSZ; ulimit -f $0; exec \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", limited, blocks, BENTPIPE])
            .args(arguments);
        run(&mut command)
    };
    let config = config.display().to_string();
    let join = ["client", "join", &code, "--config", &config];
    let key = directory.join("a.key").display().to_string();
    for (blocks, culprit, arguments) in [
        ("0", "client.key: ", &join[..]),
        ("1", "client.toml: ", &join),
        ("0", "a.key: ", &["genkey", "--out", &key]),
    ] {
        let ended = limited(blocks, arguments);
        assert!(matches!(ended.code, Some(1 | 3)), "{:?}", ended.code);
        assert!(ended.stderr.contains(culprit), "{}", ended.stderr);
        let left: Vec<_> = fs::read_dir(&directory).expect("a directory").collect();
        assert!(left.is_empty(), "after {arguments:?}: {left:?}");
    }
    // Nothing is in the way of another attempt.
    said(&join);
}
