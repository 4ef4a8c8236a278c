//! `bentpipe emulate` from outside: what it prints, makes, writes and removes, with an independent ping across it. What
//! needs namespaces needs root; without, it says so and checks nothing.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::privileged;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::BENTPIPE;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A running emulator.
pub(crate) struct Emulator {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    before_ready: String,
}

impl Emulator {
    /// Starts it and waits for its line.
    fn start(arguments: &[&str]) -> Self {
        Self::start_by(Command::new(BENTPIPE), arguments)
    }

    /// Starts it by a command of the program, and waits for its line.
    pub(crate) fn start_by(mut program: Command, arguments: &[&str]) -> Self {
        let mut child = program
            .arg("emulate")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bentpipe starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut before_ready = String::new();
        while !before_ready.contains("ready") {
            let read = output.read_line(&mut before_ready).expect("a line");
            assert!(read > 0, "it ended before it was ready: {before_ready}");
        }
        Self {
            child,
            output,
            before_ready,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is ours");
    }

    /// Ends it as nothing can be caught.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("its end");
    }

    /// Stops it: its report, and what it wrote to standard error.
    pub(crate) fn stop(mut self) -> (Value, String) {
        self.signal(Signal::TERM);
        let mut report = String::new();
        while self.output.read_line(&mut report).expect("a line") > 0 {}
        let done = self.child.wait_with_output().expect("its end");
        assert!(done.status.success(), "{:?}", done.status);
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        (serde_json::from_str(&report).expect("a line of JSON"), log)
    }
}

/// The shortest round trip of a few pings in `namespace`, in milliseconds.
pub(crate) fn ping(namespace: &str, to: &str) -> f64 {
    let namespace = NetNs::open(namespace).expect("it exists");
    let text = namespace
        .run("ping", &["-c", "5", "-i", "0.2", "-W", "3", to])
        .expect("answers");
    let (_, figures) = text.split_once("min/avg/max").expect("a summary");
    let least = figures
        .split(['=', '/'])
        .find_map(|word| word.trim().parse().ok());
    least.expect("a figure")
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the file");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn namespaces_carry_pings_and_leave_records_and_nothing_else() {
    if !privileged("namespaces") {
        return;
    }
    let directory = directory();
    let file = |name: &str| directory.path().join(name);
    let [probes, log, pcap, page] = ["p.jsonl", "p.log", "p.pcapng", "p.html"].map(file);
    let shown = |path: &PathBuf| path.to_str().expect("a plain path").to_owned();
    let prefix = format!("bp-emu-{}", std::process::id());
    let arguments = [
        "geo",
        "--prefix",
        &prefix,
        "--probes",
        &shown(&probes),
        "--packet-log",
        &shown(&log),
        "--pcap",
        &shown(&pcap),
        "--plot",
        &shown(&page),
    ];
    let emulator = Emulator::start(&arguments);
    assert!(
        emulator.before_ready.contains(&format!("{prefix}-user")),
        "{}",
        emulator.before_ready
    );
    let least = ping(&format!("{prefix}-user"), "10.30.0.2");
    // 84 B at 10 Mbit/s: 67 µs each way. Never early, and soon, on whatever machine this is.
    assert!((500.13..540.0).contains(&least), "{least} ms");
    emulator.signal(Signal::USR1);
    std::thread::sleep(Duration::from_millis(300));
    let (report, stderr) = emulator.stop();
    assert!(
        stderr.contains("\"t_s\""),
        "SIGUSR1 was not answered: {stderr}"
    );
    for (key, least) in [("forward_link", 5), ("return_link", 5)] {
        assert!(report[key]["delivered"].as_u64() >= Some(least), "{report}");
    }
    let verdict = report["verdict"].as_str();
    assert!(matches!(verdict, Some("VALID" | "INVALID")), "{report}");
    // Where the machine was in time, so was the ping.
    let lateness = report["emulator"]["lateness_p99_us"].as_u64();
    if lateness.expect("a time") < 200 {
        assert!(least <= 500.6, "{least} ms");
    }
    assert!(!Path::new(&format!("/run/netns/{prefix}-user")).exists());

    let probes = lines(&probes);
    assert!(probes.len() > 5);
    let last = probes.last().expect("a line");
    assert_eq!(
        last["forward"]["delivered"],
        report["forward_link"]["delivered"]
    );
    assert_eq!(last["return"]["capacity_bps"], 10_000_000);
    check_packet_log(&fs::read_to_string(&log).expect("a log"));
    let capture = Command::new("tcpdump")
        .args(["-nr", &shown(&pcap), "icmp"])
        .output();
    if let Ok(capture) = capture {
        let text = String::from_utf8_lossy(&capture.stdout);
        // Each request and each reply at both ends.
        assert_eq!(text.matches("ICMP echo").count(), 20, "{text}");
    }
    check_page(&fs::read_to_string(&page).expect("a page"), &probes);
}

/// It needs nothing but itself, and draws what the probes say.
fn check_page(page: &str, probes: &[Value]) {
    for outside in ["src=", "href=", "@import", "url(", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("<h1>Emulated link: geo</h1>") && page.contains("VALID</b>:"));
    let data = page.split_once("type=\"application/json\">");
    let data = data.and_then(|(_, rest)| rest.split_once("</script>"));
    let data: Value = serde_json::from_str(data.expect("the data").0).expect("JSON");
    let snapshots = probes.iter().filter(|line| line.get("event").is_none());
    let times: Vec<_> = snapshots.map(|line| line["t_s"].clone()).collect();
    assert_eq!(data[0]["t"], Value::Array(times));
    let panels = data[0]["panels"].as_array().expect("a list");
    let titles: Vec<_> = panels.iter().map(|panel| &panel["title"]).collect();
    // No noise and no losses here: a panel without a curve is left out, but for drops.
    assert_eq!(
        titles[..3],
        [
            "Goodput (IP packets delivered) and capacity",
            "Queue",
            "One-way delay"
        ],
        "{titles:?}"
    );
    let delays = panels[2]["curves"][0]["y"].as_array().expect("a list");
    assert!(delays.iter().all(|delay| delay == 250.0), "{delays:?}");
}

/// Each delivery is of a packet that has arrived before, by the delay at least.
fn check_packet_log(log: &str) {
    let rows = log.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split(' ').collect()).collect();
    let nanos = |row: &[&str]| row[0].parse::<u64>().expect("a time");
    let deliveries: Vec<_> = rows.iter().filter(|row| row[1] == "-").collect();
    assert!(deliveries.len() >= 10, "{log}");
    for delivery in deliveries {
        let arrival = rows
            .iter()
            .find(|row| row[1] == "+" && row[4] == delivery[4])
            .expect("its arrival");
        assert_eq!((arrival[2], arrival[5]), (delivery[2], delivery[5]));
        assert!(nanos(delivery) - nanos(arrival) >= 250_000_000);
    }
}

#[test]
fn each_terminal_has_its_user_and_its_way_to_the_web() {
    if !privileged("terminals") {
        return;
    }
    let directory = directory();
    let file = directory.path().join("two.toml");
    let text = "[scenario]\nname = \"two\"\nseed = 1\n[orbit]\nmodel = \"constant\"\none_way_delay = \"20 ms\"\n\
        [forward]\nstandard = \"cbr\"\nbit_rate = \"10 Mbit/s\"\n[return]\nstandard = \"cbr\"\nbit_rate = \"10 Mbit/s\"\n\
        [[terminal]]\nname = \"ship\"\n[[terminal]]\nname = \"shore\"\n\
        [network]\nweb = [\"10.77.0.0/24\", \"fd00:77::/64\"]\n";
    fs::write(&file, text).expect("the directory is ours");
    let prefix = format!("bp-two-{}", std::process::id());
    let emulator = Emulator::start(&[file.to_str().expect("a plain path"), "--prefix", &prefix]);
    for number in [1, 2] {
        let least = ping(&format!("{prefix}-user-{number}"), "10.77.0.2");
        assert!((40.1..80.0).contains(&least), "{least} ms");
    }
    // From one terminal to the other: over the satellite twice.
    let least = ping(&format!("{prefix}-user-1"), "10.10.1.2");
    assert!((80.2..160.0).contains(&least), "{least} ms");
    let (report, _) = emulator.stop();
    let terminals = report["terminals"].as_array().expect("a list");
    let names: Vec<_> = terminals
        .iter()
        .map(|terminal| terminal["name"].as_str())
        .collect();
    assert_eq!(names, [Some("ship"), Some("shore")]);
}

#[test]
fn joined_namespaces_get_a_device_and_lose_it_again() {
    if !privileged("join") {
        return;
    }
    let id = std::process::id();
    let make = |side: &str| NetNs::temporary(&format!("bp-join-{side}-{id}")).expect("a namespace");
    let (terminal, gateway) = (make("t"), make("g"));
    let names = format!("{},{}", terminal.name(), gateway.name());
    let emulator = Emulator::start(&["leo", "--join", &names, "--duration", "60 s"]);
    for namespace in [&terminal, &gateway] {
        let shown = namespace
            .run("ip", &["addr", "show", "dev", "sat0"])
            .expect("it is there");
        assert!(shown.contains("UP") && !shown.contains("inet"), "{shown}");
    }
    let (report, _) = emulator.stop();
    assert_eq!(
        report["forward_link"]["offered"], 0,
        "an idle link is quiet: {report}"
    );
    for namespace in [&terminal, &gateway] {
        assert!(
            namespace
                .run("ip", &["link", "show", "dev", "sat0"])
                .is_err()
        );
    }
    let mut third = Command::new(BENTPIPE);
    third.args([
        "emulate",
        "leo",
        "--join",
        &format!("{names},{}", gateway.name()),
    ]);
    let fault = third.output().expect("bentpipe runs");
    let text = String::from_utf8_lossy(&fault.stderr);
    assert!(
        !fault.status.success() && text.contains("has 1 terminals, but 2"),
        "{text}"
    );
}

#[test]
fn interfaces_of_the_machine_are_joined() {
    if !privileged("interfaces") {
        return;
    }
    let id = std::process::id();
    let make = |side: &str| NetNs::temporary(&format!("bp-if-{side}-{id}")).expect("a namespace");
    let (terminal, gateway) = (make("t"), make("g"));
    let ours = [format!("bpt{id}"), format!("bpg{id}")];
    for (own, namespace, address) in [
        (&ours[0], &terminal, "10.92.0.2/24"),
        (&ours[1], &gateway, "10.92.0.1/24"),
    ] {
        let run =
            |arguments: &[&str]| bentpipe_sys::command::run("ip", arguments).expect("ip works");
        run(&[
            "link",
            "add",
            own,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            namespace.name(),
        ]);
        run(&["link", "set", own, "addrgenmode", "none", "up"]);
        let inside = |arguments: &[&str]| namespace.run("ip", arguments).expect("ip works");
        inside(&["addr", "add", address, "dev", "eth0"]);
        inside(&["link", "set", "eth0", "up"]);
    }
    let emulator = Emulator::start(&["leo", "--interfaces", &ours.join(",")]);
    let least = ping(terminal.name(), "10.92.0.1");
    assert!((50.0..90.0).contains(&least), "{least} ms");
    let (report, _) = emulator.stop();
    assert_eq!(
        (
            report["emulator"]["write_errors"].as_u64(),
            report["emulator"]["merged_frames"].as_u64()
        ),
        (Some(0), Some(0)),
        "{report}"
    );
    for own in &ours {
        let _ = bentpipe_sys::command::run("ip", &["link", "del", own]);
    }
}

#[test]
fn a_broken_scenario_is_told_with_file_line_and_mend() {
    let directory = directory();
    let file = directory.path().join("s.toml");
    let good = "[scenario]\nname = \"x\"\nseed = 1\n[orbit]\nmodel = \"constant\"\none_way_delay = \"250 ms\"\n\
        [forward]\nstandard = \"dvb-s2\"\nsymbol_rate = \"40 Mbaud\"\nmodcods = \"1-28\"\n\
        [return]\nstandard = \"cbr\"\nbit_rate = \"2 Mbit/s\"\n\
        [link_budget]\nclear_sky_uplink_cn = \"20 dB\"\nclear_sky_downlink_cn = \"20 dB\"\n";
    let trace = "model = \"trace\"\nfile = \"missing.csv\"";
    for (from, to, line, mend) in [
        ("seed = 1", "sead = 1", 3, "did you mean `seed`?"),
        ("2 Mbit/s", "-2 Mbit/s", 13, "write it as in"),
        ("1-28", "1-29", 10, "28"),
        (
            "model = \"constant\"\none_way_delay = \"250 ms\"",
            trace,
            6,
            "cannot read the file missing.csv: No such file or directory (os error 2); it belongs at ",
        ),
    ] {
        fs::write(&file, good.replace(from, to)).expect("the directory is ours");
        let output = Command::new(BENTPIPE)
            .arg("emulate")
            .arg(&file)
            .output()
            .expect("bentpipe runs");
        let fault = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{fault}");
        let place = format!("{}:{line}: ", file.display());
        assert!(
            fault.starts_with(&place) && fault.contains(mend),
            "{to}: {fault}"
        );
        assert_eq!(fault.trim_end().lines().count(), 1, "{fault}");
    }
    let output = Command::new(BENTPIPE)
        .args(["emulate", "goe"])
        .output()
        .expect("bentpipe runs");
    let fault = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(3) && fault.contains("presets geo"),
        "{fault}"
    );
}

/// A file that cannot be made is named before anything is made; one that cannot be written takes neither run nor report away.
#[test]
fn a_file_that_fails_is_named_and_takes_no_report_away() {
    if !privileged("emulate with files that fail") {
        return;
    }
    for option in ["--probes", "--packet-log", "--pcap", "--plot"] {
        let run = |file: &str| {
            let mut program = Command::new(BENTPIPE);
            program.args(["emulate", "geo", "--duration", "300 ms", option, file]);
            program.output().expect("bentpipe runs")
        };
        let nowhere = run("/no/such/directory/file");
        let said = String::from_utf8_lossy(&nowhere.stderr);
        assert!(nowhere.stdout.is_empty(), "{option}: it began");
        assert_eq!(nowhere.status.code(), Some(1), "{option}: {said}");
        assert!(
            said.contains("cannot create /no/such/directory/file"),
            "{option}: {said}"
        );
        let full = run("/dev/full");
        let said = String::from_utf8_lossy(&full.stderr);
        let last = String::from_utf8_lossy(&full.stdout);
        let last = last.lines().last().unwrap_or_default();
        let report: Value = serde_json::from_str(last).expect("a report");
        assert!(report["verdict"].is_string(), "{option}: {report}");
        assert_eq!(full.status.code(), Some(1), "{option}: {said}");
        assert!(
            said.contains("cannot write /dev/full: No space left"),
            "{option}: {said}"
        );
    }
}

/// A namespace or an interface that is not there is missing (4), as for a daemon.
#[test]
fn places_that_are_missing_have_the_code_of_what_is_missing() {
    if !privileged("emulate between places that are missing") {
        return;
    }
    for (option, value) in [
        ("--join", "bp-none-a,bp-none-b"),
        ("--interfaces", "none-a,none-b"),
        ("--uplink", "none-a"),
    ] {
        let mut program = Command::new(BENTPIPE);
        let done = program.args(["emulate", "geo", option, value]).output();
        let done = done.expect("bentpipe runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{option}: {said}");
        assert!(said.contains("none-a"), "{option}: {said}");
    }
}
