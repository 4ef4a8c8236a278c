//! What an operator sees when a daemon cannot start: one line that names the culprit, and a documented exit code.
//!
//! The real binary on real files, ports and capabilities. What needs a network namespace is skipped without root.
mod faults;
pub(super) mod home;
mod keys;
mod signals;

use std::fs::{self, Permissions};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_emulator::topology::unique_prefix;
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::privileged;
use rustix::process::geteuid;

use crate::BENTPIPE;
use faults::FAULTS;
use home::{Home, PATIENCE, Running, run};

#[test]
fn a_fault_in_a_file_is_one_line_with_its_place() {
    for fault in FAULTS {
        let home = Home::new();
        let file = format!("{}.toml", fault.role);
        home.edit(&file, fault.old, fault.new);
        let place = format!("{file}:{}: ", fault.line);
        let daemon = run(&mut home.daemon(fault.role));
        daemon.must_say(3, &place, fault.words);
        let mut check = Command::new(BENTPIPE);
        check
            .args(["check", "--role", fault.role, &file])
            .current_dir(home.directory.path());
        let check = run(&mut check);
        assert_eq!((check.code, check.stderr), (daemon.code, daemon.stderr));
    }
}

#[test]
fn a_file_that_is_missing_or_no_text_is_one_line() {
    let home = Home::new();
    fs::remove_file(home.path("client.toml")).expect("it was there");
    run(&mut home.daemon("client")).must_say(3, "client.toml:1: ", &["No such file"]);
    fs::create_dir(home.path("client.toml")).expect("a directory");
    run(&mut home.daemon("client")).must_say(3, "client.toml:1: ", &["Is a directory"]);
    fs::write(home.path("server.toml"), [0xff, 0xfe, 0]).expect("a file");
    run(&mut home.daemon("server")).must_say(3, "server.toml:1: ", &["UTF-8"]);
}

#[test]
fn a_file_that_may_not_be_read_is_one_line() {
    let home = Home::new();
    let closed = Permissions::from_mode(0o000);
    fs::set_permissions(home.path("client.toml"), closed.clone()).expect("a file of ours");
    let denied = run(&mut home.daemon_of_nobody("client"));
    denied.must_say(3, "client.toml:1: ", &["cannot read", "Permission denied"]);

    let home = Home::new();
    fs::set_permissions(home.path("client.key"), closed).expect("a file of ours");
    let denied = run(&mut home.daemon_of_nobody("client"));
    denied.must_say(3, "client.toml:1: ", &["client.key", "Permission denied"]);
    // There is a key, so making one is no mend.
    assert!(!denied.stderr.contains("genkey"), "{}", denied.stderr);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    for role in ["client", "server"] {
        for mode in [0o640, 0o604, 0o622] {
            let home = Home::new();
            let key = format!("{role}.key");
            fs::set_permissions(home.path(&key), Permissions::from_mode(mode)).expect("our file");
            let words = [&key, &*format!("mode {mode:04o}"), "chmod 600"];
            run(&mut home.daemon(role)).must_say(3, &format!("{role}.toml:1: "), &words);
        }
    }
}

#[test]
fn a_port_in_use_is_one_line() {
    let home = Home::new();
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    home.edit("server.toml", "127.0.0.1:0", &address);
    let words = ["UDP", &address, "in use", "another process"];
    run(&mut home.daemon("server")).must_say(5, "server.toml:2: ", &words);

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    home.edit("client.toml", "127.0.0.1:0", &address);
    let words = ["TCP", &address, "in use", "another process"];
    run(&mut home.daemon("client")).must_say(5, "client.toml:7: ", &words);
    home.edit("client.toml", "[socks5]", "[http]");
    run(&mut home.daemon("client")).must_say(5, "client.toml:7: ", &words);
}

#[test]
fn an_address_that_is_not_ours_is_one_line() {
    let home = Home::new();
    home.edit("server.toml", "127.0.0.1:0", "192.0.2.1:4433");
    let words = ["192.0.2.1:4433", "no interface has this address"];
    run(&mut home.daemon("server")).must_say(5, "server.toml:2: ", &words);
}

#[test]
fn few_open_files_do_not_talk_over_the_fault() {
    let home = Home::new();
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    home.edit("server.toml", "127.0.0.1:0", &address);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", BENTPIPE])
        .args(["server", "--config", "server.toml"])
        .current_dir(home.directory.path());
    run(&mut command).must_say(5, "server.toml:2: ", &["in use"]);
}

#[test]
fn a_missing_capability_is_one_line() {
    let home = Home::new();
    home.edit(
        "client.toml",
        "[socks5]\nlisten = \"127.0.0.1:0\"",
        "[intercept]\ninterfaces = [\"lo\"]",
    );
    let denied = run(&mut home.daemon_of_nobody("client"));
    denied.must_say(4, "client.toml:7: ", &["CAP_NET_ADMIN"]);
}

#[test]
fn status_without_a_daemon_exits_with_6() {
    let home = Home::new();
    let mut command = Command::new(BENTPIPE);
    command
        .args(["status", "--socket", "server.sock"])
        .current_dir(home.directory.path());
    let words = [
        "nothing runs at server.sock: there is no such socket",
        "`systemctl start bentpipe-server` starts it",
    ];
    run(&mut command).must_say(6, "bentpipe: ", &words);
    // As a daemon that was killed leaves it.
    drop(UnixListener::bind(home.path("server.sock")).expect("a socket"));
    let words = [
        "nothing runs at server.sock: the daemon that made this socket has ended",
        "`systemctl status bentpipe-server` says why",
    ];
    run(&mut command).must_say(6, "bentpipe: ", &words);
    assert!(
        home.path("server.sock").exists(),
        "who asks removes nothing"
    );
}

#[test]
fn who_may_not_ask_a_daemon_is_told_so() {
    if !geteuid().is_root() {
        eprintln!("skipped: needs root, whose daemon another user asks");
        return;
    }
    let home = Home::new();
    let socket = UnixListener::bind(home.path("server.sock")).expect("a socket");
    let mut asking = home.daemon_of_nobody("server");
    // Of another user again.
    chown(home.path("server.sock"), Some(0), Some(0)).expect("our file");
    let mode = Permissions::from_mode(0o600);
    fs::set_permissions(home.path("server.sock"), mode).expect("our file");
    let program = asking.get_program().to_owned();
    asking = Command::new(program);
    asking
        .args(["status", "--socket", "server.sock"])
        .current_dir(home.directory.path())
        .uid(65_534)
        .gid(65_534);
    run(&mut asking).must_say(
        4,
        "bentpipe: ",
        &["server.sock", "run as root or as the daemon's user"],
    );
    drop(socket);
}

#[test]
fn a_state_directory_that_is_none_is_told_once() {
    let home = Home::new();
    home.write("state", "precious");
    let log = home.log_of_client();
    let told = log.lines().filter(|line| line.contains("state")).count();
    let words = "state directory state is no directory";
    assert!(
        told == 1 && log.contains(words) && log.contains("`state_dir`"),
        "{log}"
    );
    assert!(!log.contains("written anew"), "{log}");
}

#[test]
fn a_second_server_does_not_disturb_the_first() {
    let home = Home::new();
    let port = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("an address").to_string();
    drop(port);
    home.edit("server.toml", "127.0.0.1:0", &address);
    let socket = home.path("server.sock");
    let first = Running::start(home.daemon("server"), &socket);
    let words = ["UDP", &address, "in use"];
    run(&mut home.daemon("server")).must_say(5, "server.toml:2: ", &words);
    // On another port, but the status socket is taken.
    home.edit("server.toml", &address, "127.0.0.1:0");
    let words = ["server.sock", "another daemon"];
    run(&mut home.daemon("server")).must_say(5, "server.toml:3: ", &words);
    assert!(socket.exists(), "the first daemon's socket is gone");
    let first = first.stop();
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(!socket.exists(), "a socket without a daemon");
}

#[test]
fn a_second_client_leaves_the_rules_of_the_first() {
    if !privileged("second client") {
        return;
    }
    let netns = NetNs::temporary(&format!("{}-second", unique_prefix())).expect("a namespace");
    let home = Home::new();
    home.edit(
        "client.toml",
        "[socks5]\nlisten = \"127.0.0.1:0\"",
        "[intercept]\ninterfaces = [\"lo\"]",
    );
    let inside = |home: &Home| {
        let mut command = netns.command(BENTPIPE);
        command
            .args(["client", "--config", "client.toml"])
            .current_dir(home.directory.path());
        command
    };
    let rules = || netns.run("nft", &["-s", "list", "ruleset"]).expect("nft");
    let routes = || netns.run("ip", &["rule"]).expect("ip");
    let before = (rules(), routes());

    let first = Running::start(inside(&home), &home.path("client.sock"));
    let deadline = Instant::now() + PATIENCE;
    while !rules().contains("bentpipe_client") {
        assert!(Instant::now() < deadline, "no rules");
        thread::sleep(Duration::from_millis(20));
    }
    // What forwarding needed is noted in the table one by one.
    let mut during = (rules(), routes());
    loop {
        thread::sleep(Duration::from_millis(500));
        let now = (rules(), routes());
        if now == during {
            break;
        }
        assert!(Instant::now() < deadline, "the rules do not settle");
        during = now;
    }
    home.edit("client.toml", "client.sock", "other.sock");
    let words = ["TCP", ":4453", "in use", "another bentpipe client"];
    run(&mut inside(&home)).must_say(5, "client.toml:7: ", &words);
    assert_eq!((rules(), routes()), during, "rules of the first client");
    let first = first.stop();
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!((rules(), routes()), before, "rules after the stop");
}

#[test]
fn an_interface_that_does_not_exist_is_waited_for() {
    if !privileged("missing interface") {
        return;
    }
    let netns = NetNs::temporary(&format!("{}-absent", unique_prefix())).expect("a namespace");
    let home = Home::new();
    home.edit(
        "client.toml",
        "[socks5]\nlisten = \"127.0.0.1:0\"",
        "[intercept]\ninterfaces = [\"absent0\"]",
    );
    let mut command = netns.command(BENTPIPE);
    command
        .args(["client", "--config", "client.toml"])
        .current_dir(home.directory.path());
    let client = Running::start(command, &home.path("client.sock"));
    thread::sleep(Duration::from_millis(500));
    let ended = client.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let mut lines = ended.stderr.lines().filter(|line| line.contains("absent0"));
    let line = lines.next().expect("a line");
    assert!(
        line.contains("WARN") && line.contains("`ip link`"),
        "{line}"
    );
    assert_eq!(lines.next(), None, "one line");
    let left = netns.run("nft", &["list", "ruleset"]).expect("nft");
    assert_eq!(left, "", "rules of a client that has stopped");
}
