//! `bentpipe emulate` as a user without any privilege, in a user namespace of its own. To become such a user, and to give
//! and refuse it the TUN device, these tests need root and a kernel that lets users make namespaces; without, they say so
//! and check nothing.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::BENTPIPE;

/// Becomes nobody, who has no capabilities and cannot get any.
const NOBODY: [&str; 7] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--",
];

/// The program as nobody, in a mount namespace where /dev/net/tun has this mode. The program is mounted where nobody may
/// run it, wherever it was built.
fn as_nobody(directory: &Path, mode: &str, arguments: &[&str]) -> Command {
    let script = "set -e
        mount -t tmpfs -o mode=0755 tmpfs \"$1\"
        touch \"$1/bentpipe\"
        mount --bind \"$2\" \"$1/bentpipe\"
        mknod \"$1/tun\" c 10 200
        chmod \"$3\" \"$1/tun\"
        mount --bind \"$1/tun\" /dev/net/tun
        program=\"$1/bentpipe\"
        cd \"$1\"
        shift 3
        exec \"$@\" \"$program\" emulate ARGUMENTS";
    let script = script.replace("ARGUMENTS", &arguments.join(" "));
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--propagation=private",
            "sh",
            "-c",
            &script,
            "sh",
        ])
        .args([directory.as_os_str(), BENTPIPE.as_ref(), mode.as_ref()])
        .args(NOBODY)
        .stdin(Stdio::null());
    command
}

/// Whether this machine lets nobody make a namespace, once we have become that.
fn possible(test: &str) -> bool {
    let mut probe = Command::new(NOBODY[0]);
    probe
        .args(&NOBODY[1..])
        .args(["unshare", "--user", "--net", "true"]);
    let possible = rustix::process::geteuid().is_root()
        && Path::new("/dev/net/tun").exists()
        && probe.status().is_ok_and(|status| status.success());
    if !possible {
        eprintln!("{test}: skipped, needs root, TUN and user namespaces");
    }
    possible
}

/// Text on standard error until the link is up. The pipe stays open, so that the program can go on writing.
fn until_ready(child: &mut Child) -> (String, BufReader<std::process::ChildStderr>) {
    let mut errors = BufReader::new(child.stderr.take().expect("its errors"));
    let mut text = String::new();
    while !text.contains("ready: ") {
        let read = errors.read_line(&mut text).expect("a line");
        assert!(read > 0, "it ended before it was ready: {text}");
    }
    (text, errors)
}

/// A ping through the door that was printed, as the same user.
fn ping(doors: &str) -> Output {
    let door = doors.lines().find(|line| line.contains("-user bash"));
    let door = door.expect("a door to the user's namespace").trim();
    let door = door.strip_suffix("bash").expect("it opens a shell");
    Command::new(NOBODY[0])
        .args(&NOBODY[1..])
        .args(door.split_whitespace())
        .args(["ping", "-c", "3", "-i", "0.3", "-W", "3", "10.30.0.2"])
        .output()
        .expect("setpriv runs")
}

#[test]
fn nobody_emulates_a_link_and_enters_it() {
    if !possible("nobody") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = as_nobody(directory.path(), "666", &["geo", "--duration", "'60 s'"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare starts");
    let (doors, _errors) = until_ready(&mut child);
    let pinged = ping(&doors);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is ours");
    let mut output = String::new();
    let stdout = child.stdout.take();
    let mut stdout = stdout.expect("its output");
    stdout.read_to_string(&mut output).expect("lines");
    assert!(child.wait().expect("its end").success());
    let report = output.lines().last().expect("a report");
    let report: Value = serde_json::from_str(report).expect("a line of JSON");
    let text = String::from_utf8_lossy(&pinged.stdout);
    assert!(pinged.status.success(), "{pinged:?}");
    let (_, figures) = text.split_once("min/avg/max").expect("a summary");
    let mut words = figures.split(['=', '/']).map(str::trim);
    let least: f64 = words.find_map(|word| word.parse().ok()).expect("a figure");
    assert!((500.13..540.0).contains(&least), "{least} ms");
    for key in ["forward_link", "return_link"] {
        assert!(report[key]["delivered"].as_u64() >= Some(3), "{report}");
    }
}

#[test]
fn a_device_out_of_reach_is_named_with_the_mend() {
    if !possible("out of reach") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let outcome = as_nobody(directory.path(), "600", &["geo"]).output();
    let outcome = outcome.expect("unshare starts");
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert!(!outcome.status.success(), "{outcome:?}");
    for part in [
        "/dev/net/tun: Permission denied",
        "as root: `",
        "chmod 0666",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
}
