//! `bentpipe doctor` over real daemons, in two network namespaces that an Ethernet joins.
//!
//! ```text
//!  terminal: near 192.0.2.2 ══ veth ══ far 192.0.2.1 :gateway      no host behind them: the default routes lead to each other
//! ```

mod closed;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::privileged;
use bentpipe_testbed::status::report;
use serde_json::Value;

use super::config_errors::home::{Home, PATIENCE};
use crate::BENTPIPE;

/// The machines of one test, with a configuration of each side.
struct Pair {
    // Daemons end before their namespaces do.
    daemons: Vec<Child>,
    home: Home,
    terminal: NetNsGuard,
    gateway: NetNsGuard,
}

impl Pair {
    fn new() -> Self {
        let (terminal, gateway) = (namespace("near"), namespace("far"));
        for name in [&terminal, &gateway] {
            ip(name, "link set lo up");
        }
        ip(
            &terminal,
            &format!(
                "link add near type veth peer name far netns {}",
                gateway.name()
            ),
        );
        for (place, device, own, other) in [(&terminal, "near", 2, 1), (&gateway, "far", 1, 2)] {
            ip(place, &format!("addr add 192.0.2.{own}/24 dev {device}"));
            ip(place, &format!("link set {device} up"));
            ip(place, &format!("route add default via 192.0.2.{other}"));
        }
        let home = Home::new();
        home.edit("server.toml", "127.0.0.1:0", "192.0.2.1:4433");
        home.edit(
            "server.toml",
            "status_socket",
            "state_dir = \"kept\"\nstatus_socket",
        );
        home.edit("client.toml", "127.0.0.1:4433", "192.0.2.1:4433");
        Self {
            daemons: Vec::new(),
            home,
            terminal,
            gateway,
        }
    }

    fn place(&self, role: &str) -> &NetNs {
        match role {
            "client" => &self.terminal,
            _ => &self.gateway,
        }
    }

    fn command(&self, role: &str, arguments: &[&str]) -> Command {
        let mut command = self.place(role).command(BENTPIPE);
        command.args(arguments);
        command.args(["--config", &format!("{role}.toml")]);
        command.current_dir(self.home.directory.path());
        command
    }

    fn start(&mut self, role: &str) {
        let mut command = self.command(role, &[role]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().expect("bentpipe starts"));
        self.wait_for(role);
    }

    /// Waits until the daemon is healthy.
    fn wait_for(&self, role: &str) {
        let socket = self.home.path(&format!("{role}.sock"));
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let asked = Command::new(BENTPIPE)
                .args(["status", "--check", "--socket"])
                .arg(&socket)
                .output();
            if asked.expect("bentpipe runs").status.success() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the {role} does not become healthy"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn examine(&self, role: &str) -> Examined {
        let output = self.command(role, &["doctor"]).output();
        let output = output.expect("bentpipe runs");
        Examined {
            code: output.status.code(),
            text: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn ip(place: &NetNs, arguments: &str) {
    let arguments: Vec<_> = arguments.split(' ').collect();
    place.run("ip", &arguments).expect("ip");
}

/// Findings as an operator reads them.
pub(super) struct Examined {
    pub(super) code: Option<i32>,
    pub(super) text: String,
    pub(super) stderr: String,
}

impl Examined {
    /// A line of this level and area has every one of `words`.
    pub(super) fn must_say(&self, level: &str, area: &str, words: &[&str]) {
        let head = format!("{level:<6}{area:<15}");
        let mut lines = self.text.lines().filter(|line| line.starts_with(&head));
        let said = lines.any(|line| words.iter().all(|word| line.contains(word)));
        assert!(
            said,
            "no `{head}` with {words:?}:\n{}{}",
            self.text, self.stderr
        );
    }

    /// Nothing fails but what is in one of `areas`.
    pub(super) fn must_fail_only(&self, areas: &[&str]) {
        let unexpected: Vec<_> = self
            .text
            .lines()
            .filter(|line| line.starts_with("fail"))
            .filter(|line| !areas.iter().any(|area| line[6..].starts_with(area)))
            // This machine's own resolver may be anything.
            .filter(|line| !line[6..].starts_with("dns"))
            .collect();
        assert!(unexpected.is_empty(), "{unexpected:#?}\n{}", self.stderr);
        let failed = self.text.lines().any(|line| line.starts_with("fail"));
        assert_eq!(self.code, Some(i32::from(failed)), "{}", self.text);
    }
}

#[test]
fn a_healthy_pair_is_called_healthy_before_and_while_it_runs() {
    if !privileged("doctor") {
        return;
    }
    let mut pair = Pair::new();
    pair.examine("server")
        .must_say("ok", "listen", &["192.0.2.1:4433", "can be bound"]);
    pair.start("server");
    let server = pair.examine("server");
    server.must_fail_only(&[]);
    server.must_say("ok", "daemon", &["healthy: server on 192.0.2.1:4433"]);
    server.must_say("ok", "listen", &["the running server has it"]);
    server.must_say("ok", "nftables", &["server's table"]);
    let before = pair.examine("client");
    before.must_fail_only(&[]);
    before.must_say("warn", "daemon", &["no client runs", "systemctl start"]);
    before.must_say(
        "ok",
        "server",
        &["192.0.2.1:4433 answers and knows this client's key, RTT "],
    );
    before.must_say("ok", "mtu", &["1500 bytes by near"]);
    before.must_say("ok", "routes", &["IPv4 has a way"]);
    before.must_say("ok", "keys", &["client.key", "mode 0600"]);
    pair.start("client");
    let running = pair.examine("client");
    running.must_fail_only(&[]);
    running.must_say("ok", "daemon", &["healthy: tunnel to 192.0.2.1:4433 ready"]);
    running.must_say("ok", "server", &["tunnel to 192.0.2.1:4433 ready"]);
}

/// A trial handshake beside a client that runs elsewhere with the same key takes nothing from it.
#[test]
fn an_examination_ends_no_tunnel() {
    if !privileged("doctor") {
        return;
    }
    let mut pair = Pair::new();
    pair.start("server");
    pair.start("client");
    let tunnel = || {
        let report = report(BENTPIPE, &pair.home.path("client.sock")).expect("a report");
        (
            report["tunnel"]["state"].clone(),
            report["tunnel"]["since_s"].as_u64(),
        )
    };
    let text = fs::read_to_string(pair.home.path("client.toml")).expect("a file");
    // As seen from here there is no daemon, so that the server is asked.
    let other = text.replace("client.sock", "other.sock");
    pair.home.write("other.toml", &other);
    let output = pair
        .terminal
        .command(BENTPIPE)
        .args(["doctor", "--config", "other.toml"])
        .current_dir(pair.home.directory.path())
        .output();
    let text = String::from_utf8(output.expect("bentpipe runs").stdout).expect("text");
    assert!(
        text.contains("answers and knows this client's key"),
        "{text}"
    );
    thread::sleep(Duration::from_secs(2));
    let (state, since) = tunnel();
    assert_eq!(state, "ready");
    assert!(
        since.is_some_and(|since| since >= 2),
        "it began anew: {since:?}"
    );
}

#[test]
fn a_server_that_is_not_there_is_missed() {
    if !privileged("doctor") {
        return;
    }
    let pair = Pair::new();
    let refused = pair.examine("client");
    refused.must_fail_only(&["server"]);
    refused.must_say(
        "fail",
        "server",
        &["no program listens at that UDP port", "start the server"],
    );
    let block = "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c udp dport 4433 drop";
    pair.gateway.run("nft", &[block]).expect("nft");
    let silent = pair.examine("client");
    silent.must_fail_only(&["server"]);
    silent.must_say(
        "fail",
        "server",
        &[
            "nothing came back from 192.0.2.1:4433 within 8 s",
            "blocked",
        ],
    );
}

#[test]
fn wrong_keys_are_told_apart() {
    if !privileged("doctor") {
        return;
    }
    let mut pair = Pair::new();
    let [stranger, code, _used] = ["stranger.key", "code.key", "used.key"].map(|name| {
        let key = bentpipe_testbed::keys::generate(BENTPIPE, &pair.home.path(name));
        key.expect("a key")
    });
    let file = pair.home.path("server.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let joining = format!(
        "{text}[[client]]\nname = \"late\"\nenrolment_key = \"{code}\"\nenrolment_expires = \"2100-01-01T00:00:00Z\"\n"
    );
    fs::write(&file, joining).expect("it is ours");
    pair.start("server");
    pair.home.edit("client.toml", "client.key", "stranger.key");
    let unknown = pair.examine("client");
    unknown.must_fail_only(&["server"]);
    unknown.must_say(
        "fail",
        "server",
        &["does not know this client's key", &stranger],
    );
    let named = "enrolment_key_file = \"used.key\"\npublic_key";
    pair.home.edit("client.toml", "public_key", named);
    let used = pair.examine("client");
    used.must_say("fail", "server", &["does not know this client's key"]);
    pair.home.edit("client.toml", "used.key", "code.key");
    pair.examine("client")
        .must_say("ok", "server", &["named with the code"]);
    let text = fs::read_to_string(pair.home.path("client.toml")).expect("a file");
    let key = text
        .lines()
        .find(|line| line.starts_with("public_key"))
        .expect("a key");
    let other = Home::new();
    let others = fs::read_to_string(other.path("client.toml")).expect("a file");
    let wrong = others
        .lines()
        .find(|line| line.starts_with("public_key"))
        .expect("a key");
    pair.home.edit("client.toml", key, wrong);
    let wrong = pair.examine("client");
    wrong.must_fail_only(&["server"]);
    wrong.must_say("fail", "server", &["shows another key than `public_key`"]);
}

#[test]
fn a_loose_key_and_a_faulty_file_are_named() {
    if !privileged("doctor") {
        return;
    }
    let pair = Pair::new();
    let key = pair.home.path("client.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let loose = pair.examine("client");
    loose.must_fail_only(&["configuration"]);
    loose.must_say(
        "fail",
        "configuration",
        &["client.toml:1", "mode 0644", "chmod 600"],
    );
    // The general part goes on.
    loose.must_say("ok", "kernel", &["Linux"]);
    pair.home.edit("server.toml", "listen", "lisen");
    let faulty = pair.examine("server");
    faulty.must_fail_only(&["configuration"]);
    faulty.must_say("fail", "configuration", &["server.toml:2", "listen"]);
}

#[test]
fn a_missing_route_is_named_at_both_ends() {
    if !privileged("doctor") {
        return;
    }
    let pair = Pair::new();
    for place in [&pair.terminal, &pair.gateway] {
        ip(place, "route del default");
    }
    pair.home
        .edit("client.toml", "192.0.2.1:4433", "198.51.100.1:4433");
    let client = pair.examine("client");
    client.must_fail_only(&["server"]);
    client.must_say(
        "warn",
        "routes",
        &["no default route", "ip route add default"],
    );
    client.must_say(
        "fail",
        "server",
        &["no route to 198.51.100.1", "ip route add default"],
    );
    let server = pair.examine("server");
    server.must_fail_only(&["routes"]);
    server.must_say("fail", "routes", &["no default route"]);
}

/// Nothing of the kernel's or of the directory's is other than before.
#[test]
fn an_examination_changes_nothing() {
    if !privileged("doctor") {
        return;
    }
    let pair = Pair::new();
    let state = || {
        let seen = |program: &str, arguments: &[&str]| {
            pair.terminal.run(program, arguments).expect("a tool")
        };
        let mut files: Vec<_> = fs::read_dir(pair.home.directory.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        files.sort();
        (
            seen("nft", &["list", "ruleset"]),
            seen("ip", &["-d", "link"]),
            seen("ip", &["rule"]),
            files,
        )
    };
    let before = state();
    pair.home.edit(
        "client.toml",
        "[socks5]",
        "[intercept]\ninterfaces = [\"near\"]\n[socks5]",
    );
    pair.examine("client")
        .must_say("ok", "nftables", &["client's table"]);
    assert_eq!(state(), before);
}

#[test]
fn anybody_may_ask_and_without_a_file_too() {
    let home = Home::new();
    let mut command = home.daemon_of_nobody("doctor");
    // As that user: what follows replaces the arguments of a daemon.
    let program = command.get_program().to_owned();
    command = {
        let mut own = Command::new(program);
        if rustix::process::geteuid().is_root() {
            use std::os::unix::process::CommandExt as _;
            own.uid(65_534).gid(65_534);
        }
        own.args(["doctor", "--json"]).current_dir("/");
        own
    };
    let output = command.output().expect("bentpipe runs");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["schema"], 1);
    let findings = said["findings"].as_array().expect("a list");
    let of = |area: &str| findings.iter().find(|one| one["area"] == area);
    assert_eq!(of("kernel").expect("a kernel")["level"], "ok");
    if !bentpipe_sys::privilege::has_net_admin() || rustix::process::geteuid().is_root() {
        let unseen = of("privileges").expect("something is hidden");
        assert_eq!(unseen["level"], "warn");
        assert!(
            unseen["text"]
                .as_str()
                .is_some_and(|text| text.contains("TPROXY")),
            "{unseen}"
        );
    }
    let failed = findings.iter().any(|one| one["level"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(failed)));
}
