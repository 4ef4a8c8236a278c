//! Files for diagnosis on a disk that is full: the log says once what is lost, and all goes on once there is room.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::BENTPIPE;
use crate::config_errors::home::{PATIENCE, Running};
use crate::joining::Site;

/// Has no file of the process grow beyond `most`, as on a full disk.
fn limit(daemon: &Running, most: &str) {
    let limit = format!("--fsize={most}:unlimited");
    let pid = daemon.id().to_string();
    let status = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit");
}

#[test]
fn what_a_full_disk_costs_of_key_log_and_traces_is_told_once() {
    let site = Site::new();
    let code = site.add("ship", &[]);
    site.join("ship", &code);
    let (keys, traces) = (site.path("keys"), site.path("traces"));
    let mut patient = Command::new("sh");
    // Who ignores the signal is told by an error, as on a full disk.
    patient.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", BENTPIPE]);
    let [key_log, qlog] = [&keys, &traces].map(|path| path.display().to_string());
    let server = site.start_server_by(patient, &["--key-log", &key_log, "--qlog", &qlog]);
    let connect = || {
        let client = site.start_client_with("ship", &[]);
        site.wait_for("ship", "ready");
        client
    };
    let tunnels = |count: u32| {
        for _ in 0..count {
            let client = connect();
            // Packets enough for a block of the trace.
            thread::sleep(Duration::from_secs(1));
            client.stop();
        }
    };
    tunnels(1);
    let before = fs::read_to_string(&keys).expect("a key log");
    limit(&server, "0");
    tunnels(2);
    assert_eq!(fs::read_to_string(&keys).expect("a key log"), before);
    limit(&server, "unlimited");
    tunnels(1);
    let deadline = Instant::now() + PATIENCE;
    while fs::read_to_string(&keys).expect("a key log") == before {
        assert!(Instant::now() < deadline, "no key is written");
        thread::sleep(Duration::from_millis(20));
    }
    let log = server.stop().stderr;
    let lost = format!("cannot write key log {key_log}: ");
    let again = format!("key log {key_log} is written again");
    for line in [&lost, &again] {
        assert_eq!(log.matches(line).count(), 1, "{line}\n{log}");
    }
    // A line for each trace.
    let ended = log
        .lines()
        .filter_map(|line| line.split_once(" ends here: "));
    let mut ended: Vec<_> = ended.map(|(trace, _)| &trace[trace.len() - 20..]).collect();
    let lines = ended.len();
    ended.dedup();
    assert!(lines >= 2 && ended.len() == lines, "{log}");
    assert!(!log.contains("could not emit"), "{log}");
}
