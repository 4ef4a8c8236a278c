//! `bentpipe demo` and `bentpipe emulate` as a newcomer runs them, and that nothing of them stays. Need root.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::privileged;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::BENTPIPE;

/// What a demonstration may take.
const DEMO: Duration = Duration::from_secs(180);
/// A page through the tunnel against its limit. Alone on a machine it is 1.02; the goal is 1.08.
const PAGE: f64 = 1.15;
/// For a process to get ready or to clean up.
const SOON: Duration = Duration::from_secs(15);

/// A running command of ours; killed if a test fails.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(BENTPIPE)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Ok(Self {
            child,
            stdout: BufReader::new(stdout.context("no output")?),
            stderr: BufReader::new(stderr.context("no errors")?),
        })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(start.elapsed() < limit, "still running after {limit:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The next line of standard output that contains `text`.
    fn line(&mut self, text: &str) -> Result<String> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line)? > 0 {
            if line.contains(text) {
                return Ok(line);
            }
            line.clear();
        }
        bail!("it ended without `{text}`: {}", self.errors()?)
    }

    fn output(&mut self) -> Result<String> {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        Ok(text)
    }

    fn errors(&mut self) -> Result<String> {
        let mut text = String::new();
        self.stderr.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Fails if a namespace, a directory or a process of it is left.
    fn expect_nothing_left(&self) -> Result<()> {
        let prefix = format!("bp-{}-", self.child.id());
        for directory in ["/run/netns".into(), std::env::temp_dir()] {
            for entry in fs::read_dir(&directory).with_context(|| format!("{directory:?}"))? {
                let name = entry?.file_name();
                ensure!(
                    !name.to_string_lossy().starts_with(&prefix),
                    "{name:?} is left in {directory:?}"
                );
            }
        }
        for entry in fs::read_dir("/proc")? {
            // Processes end while one looks at them.
            let command = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            ensure!(!command.contains(&prefix), "still running: {command}");
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Asked first, so that it removes what it made.
        let _ = self.signal(Signal::TERM);
        if self.wait(SOON).is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The numbers of a table's row that are times or ratios.
fn numbers(row: &str) -> Vec<f64> {
    let words: Vec<&str> = row.split_whitespace().collect();
    words
        .windows(2)
        .filter(|pair| matches!(pair[1], "s" | "×"))
        .filter_map(|pair| pair[0].parse().ok())
        .collect()
}

#[test]
fn the_demonstration_shows_that_bentpipe_is_faster_and_leaves_nothing() -> Result<()> {
    if !privileged("demo") {
        return Ok(());
    }
    let start = Instant::now();
    let mut demo = Running::start(&["demo"])?;
    // It writes less than a pipe holds.
    let status = demo.wait(DEMO)?;
    let (table, progress) = (demo.output()?, demo.errors()?);
    ensure!(status.success(), "{status}: {progress}");
    eprintln!("{table}\nafter {:?}", start.elapsed());
    for name in ["1 kB request", "10 MB download", "70 objects"] {
        let row = table.lines().find(|line| line.contains(name));
        let row = row.with_context(|| format!("no row {name}: {table}"))?;
        let [plain, bentpipe, limit, ratio] = numbers(row)[..] else {
            bail!("four numbers are in a row: {row}");
        };
        ensure!(limit <= bentpipe && bentpipe < plain, "{row}");
        ensure!((ratio - plain / bentpipe).abs() < 0.1, "{row}");
        ensure!(name != "70 objects" || bentpipe <= PAGE * limit, "{row}");
    }
    ensure!(table.contains("none in clear"), "{table}");
    for told in ["plain: download", "with bentpipe: page", "building"] {
        ensure!(progress.contains(told), "{told}: {progress}");
    }
    demo.expect_nothing_left()
}

#[test]
fn an_interrupted_demonstration_leaves_nothing() -> Result<()> {
    if !privileged("demo") {
        return Ok(());
    }
    for (signal, after) in [(Signal::INT, 100), (Signal::TERM, 1500)] {
        let mut demo = Running::start(&["demo"])?;
        thread::sleep(Duration::from_millis(after));
        demo.signal(signal)?;
        let status = demo.wait(SOON)?;
        let errors = demo.errors()?;
        ensure!(
            status.code() == Some(1) && errors.contains("interrupted"),
            "{status}: {errors}"
        );
        demo.expect_nothing_left()?;
    }
    Ok(())
}

#[test]
fn an_emulator_joins_namespaces_and_leaves_them_as_they_were() -> Result<()> {
    if !privileged("emulate") {
        return Ok(());
    }
    let name = |end: &str| format!("bpe-{}-{end}", std::process::id());
    let terminal = NetNs::temporary(&name("terminal"))?;
    let gateway = NetNs::temporary(&name("gateway"))?;
    let join = format!("{},{}", terminal.name(), gateway.name());
    let mut emulator = Running::start(&["emulate", "leo", "--join", &join])?;
    emulator.line("ready")?;
    for (end, own, peer) in [
        (&terminal, "10.9.0.2", "10.9.0.1"),
        (&gateway, "10.9.0.1", "10.9.0.2"),
    ] {
        let shown = end.run("ip", &["addr", "show", "dev", "sat0"])?;
        ensure!(shown.contains("UP") && !shown.contains("inet"), "{shown}");
        end.run("ip", &["addr", "add", own, "peer", peer, "dev", "sat0"])?;
    }
    let socket = |end: &NetNs, address: &str| -> Result<UdpSocket> {
        let socket = end.enter(|| UdpSocket::bind(address))??;
        socket.set_read_timeout(Some(SOON))?;
        Ok(socket)
    };
    let (up, down) = (
        socket(&terminal, "10.9.0.2:7")?,
        socket(&gateway, "10.9.0.1:7")?,
    );
    let sent = Instant::now();
    up.send_to(b"up", "10.9.0.1:7")?;
    down.recv(&mut [0; 8])?;
    down.send_to(b"down", "10.9.0.2:7")?;
    up.recv(&mut [0; 8])?;
    ensure!(
        sent.elapsed() >= Duration::from_millis(50),
        "{:?}",
        sent.elapsed()
    );
    emulator.signal(Signal::TERM)?;
    let status = emulator.wait(SOON)?;
    ensure!(status.success(), "{status}: {}", emulator.errors()?);
    let stats: Value = serde_json::from_str(&emulator.output()?)?;
    ensure!(stats["forward_link"]["delivered"] == 1, "{stats}");
    for end in [&terminal, &gateway] {
        let links = end.run("ip", &["-o", "link"])?;
        ensure!(links.lines().count() == 1, "only lo is left: {links}");
    }
    Ok(())
}

#[test]
fn an_emulator_without_namespaces_makes_its_own() -> Result<()> {
    if !privileged("emulate") {
        return Ok(());
    }
    let mut emulator = Running::start(&["emulate", "geo"])?;
    let ready: Value = serde_json::from_str(&emulator.line("ready")?)?;
    ensure!(ready["scenario"] == "geo", "{ready}");
    let user = NetNs::open(&format!("bp-{}-user", emulator.child.id()))?;
    ensure!(user.run("ip", &["addr"])?.contains("10.10.0.2/24"));
    emulator.signal(Signal::INT)?;
    let status = emulator.wait(SOON)?;
    let errors = emulator.errors()?;
    ensure!(status.success(), "{status}: {errors}");
    let door = errors.lines().find(|line| line.contains("-user bash"));
    ensure!(
        door.is_some_and(|door| door.contains("ip netns exec")),
        "{errors}"
    );
    emulator.expect_nothing_left()
}

#[test]
fn what_cannot_be_emulated_is_told_in_a_line() -> Result<()> {
    if !privileged("emulate") {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("bad.toml");
    fs::write(&file, "[scenario]\nname = \"x\"\nsede = 1\n")?;
    let file = file.to_string_lossy().into_owned();
    for (arguments, code, texts) in [
        (vec!["emulate", &file], 3, ["bad.toml:3: ", "sede"]),
        (vec!["emulate", "nosuch"], 3, ["nosuch", "geo"]),
        (
            vec!["emulate", "geo", "--join", "nosuch,neither"],
            4,
            ["nosuch", "ip netns list"],
        ),
        (
            vec!["emulate", "geo", "--join", "one"],
            2,
            ["--join", "comma"],
        ),
    ] {
        let mut emulator = Running::start(&arguments)?;
        let status = emulator.wait(SOON)?;
        let errors = emulator.errors()?;
        ensure!(
            status.code() == Some(code) && texts.iter().all(|text| errors.contains(text)),
            "{arguments:?}: {status}: {errors}"
        );
    }
    Ok(())
}
