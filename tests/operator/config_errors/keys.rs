//! Files that hold secrets: who may own them, what mode they get, and that none is lost.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use super::home::{Home, Running, run};
use crate::BENTPIPE;

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[test]
fn genkey_makes_a_closed_file_and_overwrites_none() {
    let home = Home::new();
    let key = home.path("new.key");
    let genkey = || {
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "umask 000; exec \"$0\" genkey --out new.key",
                BENTPIPE,
            ])
            .current_dir(home.directory.path());
        run(&mut command)
    };
    let first = genkey();
    assert_eq!(
        (first.code, first.stdout.as_str()),
        (Some(0), ""),
        "{}",
        first.stderr
    );
    assert_eq!(mode(&key), 0o600);
    let text = fs::read_to_string(&key).expect("a key");
    genkey().must_say(1, "bentpipe: ", &["new.key exists and stays as it is"]);
    assert_eq!(fs::read_to_string(&key).expect("a key"), text);
    // It is one that `pubkey` takes.
    let mut pubkey = Command::new(BENTPIPE);
    pubkey
        .arg("pubkey")
        .stdin(fs::File::open(&key).expect("a key"));
    let public = pubkey.output().expect("bentpipe starts");
    assert_eq!(public.stdout.len(), 45, "{public:?}");
}

#[test]
fn genkey_says_that_it_closed_what_was_open() {
    let home = Home::new();
    let path = home.path("loose.key");
    for (before, hints) in [(0o644, 1), (0o600, 0)] {
        fs::write(&path, "").expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(before)).expect("our file");
        let output = Command::new(BENTPIPE)
            .arg("genkey")
            .stdout(Stdio::from(fs::File::create(&path).expect("a file")))
            .output()
            .expect("bentpipe starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.matches("genkey --out FILE").count(), hints, "{text}");
        assert_eq!(mode(&path), 0o600);
    }
}

#[test]
fn a_pipe_in_place_of_a_key_is_refused_at_once() {
    for role in ["client", "server"] {
        let home = Home::new();
        let key = format!("{role}.key");
        let path = home.path(&key);
        fs::remove_file(&path).expect("a key");
        let made = Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(&path)
            .status();
        assert!(made.is_ok_and(|made| made.success()), "a pipe");
        let words = [&key, "is not a regular file"];
        run(&mut home.daemon(role)).must_say(3, &format!("{role}.toml:1: "), &words);
    }
}

#[test]
fn a_key_of_another_user_is_refused() {
    if !geteuid().is_root() {
        eprintln!("a key of another user: skipped, needs root");
        return;
    }
    for role in ["client", "server"] {
        let home = Home::new();
        let key = format!("{role}.key");
        chown(home.path(&key), Some(65_533), None).expect("we are root");
        let words = [&key, "belongs to user 65533", "chown 0"];
        run(&mut home.daemon(role)).must_say(3, &format!("{role}.toml:1: "), &words);
        // In that user's own directory it is a daemon's, which root may look at.
        chown(home.directory.path(), Some(65_533), None).expect("we are root");
        let file = home.path(&format!("{role}.toml"));
        let checked = run(Command::new(BENTPIPE).arg("check").arg(file));
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        // As well by its bare name.
        let mut bare = Command::new(BENTPIPE);
        bare.args(["check", &format!("{role}.toml")]);
        let checked = run(bare.current_dir(home.directory.path()));
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        // The daemon could not read a key that root has taken from it.
        chown(home.path(&key), Some(65_532), None).expect("we are root");
        let words = [&key, "belongs to user 65532", "chown 65533"];
        run(&mut home.daemon(role)).must_say(3, &format!("{role}.toml:1: "), &words);
    }
}

#[test]
fn root_manages_the_clients_of_a_daemon_with_a_user_of_its_own() {
    if !geteuid().is_root() {
        eprintln!("clients of another user's daemon: skipped, needs root");
        return;
    }
    let home = Home::new();
    // As packages leave /etc/bentpipe.
    let directory = home.path("etc");
    fs::create_dir(&directory).expect("our directory");
    chown(&directory, Some(65_533), Some(65_533)).expect("we are root");
    let config = directory.join("server.toml");
    let bentpipe = |arguments: &[&str]| {
        let mut command = Command::new(BENTPIPE);
        run(command.args(arguments).arg("--config").arg(&config))
    };
    for arguments in [
        ["server", "init", "--public", "192.0.2.1"].as_slice(),
        &["server", "add", "terminal-1"],
        &["server", "list"],
        &["server", "remove", "terminal-1"],
    ] {
        let done = bentpipe(arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn a_key_log_is_closed_to_others_and_follows_no_link() {
    let home = Home::new();
    let log = home.path("key.log");
    fs::write(&log, "").expect("a file");
    fs::set_permissions(&log, Permissions::from_mode(0o644)).expect("our file");
    let mut server = home.daemon("server");
    server.arg("--key-log").arg(&log);
    let running = Running::start(server, &home.path("server.sock"));
    assert_eq!(mode(&log), 0o600);
    assert_eq!(running.stop().code, Some(0));

    let link = home.path("link.log");
    symlink(home.path("target"), &link).expect("a link");
    let mut server = home.daemon("server");
    server.arg("--key-log").arg(&link);
    run(&mut server).must_say(1, "bentpipe: ", &["cannot write key log", "link.log"]);
    assert!(!home.path("target").exists());

    if geteuid().is_root() {
        chown(&log, Some(65_533), None).expect("we are root");
        let mut server = home.daemon("server");
        server.arg("--key-log").arg(&log);
        run(&mut server).must_say(1, "bentpipe: ", &["belongs to user 65533"]);
    }
}
