//! A daemon that dies is seen as a reset, and lets nothing cross the link in clear: not then, not on new connections.
//!
//! The terminal's side of the link is captured throughout, while a LAN host tries TCP, UDP and ICMP. Needs root.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_lab::capture::CaptureReport;
use bentpipe_lab::leaks::Prober;
use bentpipe_testbed::peer::{Service, accept, echo, payload, read_exactly};
use bentpipe_testbed::route::Route;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::snapshot::Snapshot;
use bentpipe_testbed::{expect_tunnel_alone, privileged};

use crate::BENTPIPE;

/// How soon a host must be told that the daemon beside it has died: there is no link between them.
const AT_ONCE: Duration = Duration::from_secs(2);

/// How soon a restarted server is found while flows wait: 3 s and jitter, 2 RTT, and room for a busy machine.
const FOUND: Duration = Duration::from_secs(8);

/// One download in progress, watched from both ends.
struct Download {
    route: &'static str,
    received: Arc<AtomicUsize>,
    user: JoinHandle<io::Result<()>>,
    server: JoinHandle<io::Error>,
}

impl Download {
    /// Starts it and waits until it flows.
    fn start(route: &Route) -> Result<Self> {
        let (listener, address) = route.listen()?;
        let patience = route.patience;
        let server = thread::spawn(move || match accept(&listener, patience) {
            Ok(stream) => send_until_broken(stream),
            Err(error) => io::Error::other(error),
        });
        let mut stream = route.connect(address)?;
        let received = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&received);
        let user = thread::spawn(move || receive_until_the_end(&mut stream, &count));
        let download = Self {
            route: route.name,
            received,
            user,
            server,
        };
        download.flow()?;
        Ok(download)
    }

    fn flow(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.received.load(Ordering::Relaxed) < 200_000 {
            ensure!(
                Instant::now() < deadline,
                "{}: the download does not get going",
                self.route
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The user's end is a reset, and comes within `time`.
    fn expect_user_reset(&mut self, time: Duration) -> Result<()> {
        // The thread is replaced by one that has nothing to tell.
        let user = std::mem::replace(&mut self.user, thread::spawn(|| Ok(())));
        match end_of(user, time).with_context(|| format!("{}: the user", self.route))? {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            other => bail!("{}: the download ended with {other:?}", self.route),
        }
    }

    /// The server's end is broken within `time`.
    fn expect_server_reset(self, time: Duration) -> Result<()> {
        let error =
            end_of(self.server, time).with_context(|| format!("{}: the web server", self.route))?;
        ensure!(
            matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ),
            "{}: the web server's connection ended with {error:?}",
            self.route
        );
        Ok(())
    }
}

fn send_until_broken(mut stream: TcpStream) -> io::Error {
    let block = payload(48_000);
    loop {
        if let Err(error) = stream.write_all(&block) {
            return error;
        }
    }
}

fn receive_until_the_end(stream: &mut TcpStream, count: &AtomicUsize) -> io::Result<()> {
    let mut buffer = [0; 65_536];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => count.fetch_add(length, Ordering::Relaxed),
        };
    }
}

fn end_of<T>(thread: JoinHandle<T>, time: Duration) -> Result<T> {
    let deadline = Instant::now() + time;
    while !thread.is_finished() {
        ensure!(
            Instant::now() < deadline,
            "still waiting for its end after {time:?}"
        );
        thread::sleep(Duration::from_millis(5));
    }
    Ok(thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// A new connection works, on every route.
fn expect_echo(routes: &[Route]) -> Result<()> {
    for route in routes {
        let service = Service::start(&route.web, SocketAddr::new(route.server, 0), echo)?;
        let mut stream = route.connect(service.address)?;
        let sent = payload(10_000);
        stream.write_all(&sent)?;
        let echoed = read_exactly(&mut stream, sent.len())
            .with_context(|| format!("{}: a new connection", route.name))?;
        ensure!(echoed == sent, "{}: wrong echo", route.name);
    }
    Ok(())
}

fn start_downloads(routes: &[Route]) -> Result<Vec<Download>> {
    routes.iter().map(Download::start).collect()
}

/// Shows what the daemons wrote beside what went wrong.
fn expect_ok(result: Result<()>, site: &Site) {
    if let Err(error) = result {
        panic!("{error:#}\n{}", site.logs());
    }
}

#[test]
fn the_watch_sees_what_crosses_in_clear() {
    if !privileged("fail closed: the watch") {
        return;
    }
    let site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let capture = site.watch().expect("a capture");
    let prober = Prober::start(site.topology.user()).expect("a prober");
    thread::sleep(Duration::from_secs(2));
    drop(prober);
    let crossed = capture.stop().expect("a whole capture");
    crossed
        .expect_only_tunnel()
        .expect_err("there is no tunnel");
    expect_every_kind(&crossed);
}

#[test]
fn a_killed_client_is_a_reset_and_lets_nothing_out() {
    if !privileged("fail closed: the client") {
        return;
    }
    let mut site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = kill_the_client(&mut site);
    expect_ok(result, &site);
}

fn kill_the_client(site: &mut Site) -> Result<()> {
    let routes = site.routes();
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    let mut downloads = start_downloads(&routes)?;
    site.kill_client()?;
    for download in &mut downloads {
        download.expect_user_reset(AT_ONCE)?;
    }
    for route in &routes {
        let service = Service::start(&route.web, SocketAddr::new(route.server, 0), echo)?;
        let attempt = Route {
            patience: Duration::from_secs(2),
            ..another(route)
        };
        let connected = attempt.try_connect(service.address)?;
        ensure!(
            connected.is_err() && service.accepted() == 0,
            "{}: a new connection got through",
            route.name
        );
    }
    site.start_client()?;
    for download in downloads {
        download.expect_server_reset(FOUND)?;
    }
    expect_echo(&routes)?;
    drop(prober);
    expect_tunnel_alone(capture)
}

/// Without its table and its routing rules nothing keeps in what a killed client would have: that these are what does.
#[test]
fn without_its_rules_a_killed_client_would_leak() {
    if !privileged("fail closed: the rules") {
        return;
    }
    let mut site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let capture = site.watch().expect("a capture");
    site.kill_client().expect("a killed client");
    let table = ["delete", "table", "inet", "bentpipe_client"];
    let deleted = site.topology.terminal().run("nft", &table);
    deleted.expect("a killed client leaves its table");
    for family in ["-4", "-6"] {
        let rules = format!("ip {family} rule flush; ip {family} rule add lookup main pref 32766");
        let deleted = site.topology.terminal().run("sh", &["-c", &rules]);
        deleted.expect("a killed client leaves its routing rules");
    }
    let prober = Prober::start(site.topology.user()).expect("a prober");
    thread::sleep(Duration::from_secs(1));
    drop(prober);
    let crossed = capture.stop().expect("a whole capture");
    crossed
        .expect_only_tunnel()
        .expect_err("nothing keeps the traffic in");
    expect_every_kind(&crossed);
}

/// Every kind of probe is among what crossed, and can be read.
fn expect_every_kind(crossed: &CaptureReport) {
    for kind in [
        "TCP",
        "UDP",
        "DNS",
        "ICMP",
        "fragment",
        "protocol 47",
        "protocol 132",
    ] {
        for kind in [kind.to_owned(), format!("IPv6 {kind}")] {
            let seen = crossed.clear_kinds.contains_key(&kind);
            assert!(seen, "no {kind}: {:?}", crossed.clear_kinds);
        }
    }
    assert!(crossed.marker_packets > 0, "{crossed}");
}

fn another(route: &Route) -> Route {
    Route {
        name: route.name,
        user: route.user.clone(),
        web: route.web.clone(),
        detour: None,
        ..*route
    }
}

#[test]
fn a_killed_server_is_a_reset_and_lets_nothing_out() {
    if !privileged("fail closed: the server") {
        return;
    }
    let mut site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = kill_the_server(&mut site);
    expect_ok(result, &site);
}

fn kill_the_server(site: &mut Site) -> Result<()> {
    let routes = site.routes();
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    let mut downloads = start_downloads(&routes)?;
    site.kill_server()?;
    // Long enough for what was under way to arrive, and for the client to miss it.
    thread::sleep(Duration::from_secs(3));
    let restarted = Instant::now();
    site.start_server()?;
    for download in &mut downloads {
        download.expect_user_reset(FOUND)?;
    }
    println!(
        "the restarted server was found after {:.2} s",
        restarted.elapsed().as_secs_f64()
    );
    for download in downloads {
        download.expect_server_reset(AT_ONCE)?;
    }
    expect_echo(&routes)?;
    drop(prober);
    expect_tunnel_alone(capture)
}

#[test]
fn ten_kills_and_a_clean_stop_leave_everything_as_it_was() {
    if !privileged("fail closed: ten cycles") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = kill_ten_times(&mut site);
    expect_ok(result, &site);
}

fn kill_ten_times(site: &mut Site) -> Result<()> {
    let routes = site.routes();
    let before = Snapshot::take(&site.topology)?;
    let capture = site.watch()?;
    for cycle in 0..10 {
        let context = || format!("cycle {cycle}");
        site.start_server().with_context(context)?;
        site.start_client().with_context(context)?;
        if cycle % 5 == 0 {
            expect_echo(&routes).with_context(context)?;
        }
        // Either may be the first to go.
        if cycle % 2 == 0 {
            site.kill_client()?;
            site.kill_server()?;
        } else {
            site.kill_server()?;
            site.kill_client()?;
        }
    }
    before
        .expect_same(&Snapshot::take(&site.topology)?)
        .expect_err("a killed client leaves its rules, which keep the traffic in");
    site.start_server()?;
    site.start_client()?;
    expect_echo(&routes)?;
    site.stop_client()?;
    site.stop_server()?;
    before.expect_same(&Snapshot::take(&site.topology)?)?;
    // What was under way when the second of the two stopped has arrived by now.
    thread::sleep(Duration::from_secs(1));
    expect_tunnel_alone(capture)
}

/// How soon what was taken away is back: the client needs some tens of milliseconds, a busy machine more.
const BACK: Duration = Duration::from_secs(5);

/// What other programs take away, each as a shell line at the terminal, and a line that prints something once it is back.
const THEFTS: [(&str, &str, &str); 10] = [
    (
        "the rule set is flushed",
        "nft flush ruleset",
        "nft list chain inet bentpipe_client from_lan",
    ),
    (
        "the table's rules are flushed",
        "nft flush table inet bentpipe_client",
        "nft list chain inet bentpipe_client from_lan | grep goto",
    ),
    (
        "a set's elements are flushed",
        "nft flush set inet bentpipe_client exempt4",
        "nft list set inet bentpipe_client exempt4 | grep elements",
    ),
    (
        "routing rules are flushed",
        "ip rule flush; ip rule add lookup main pref 32766; ip -6 rule flush; ip -6 rule add lookup main pref 32766",
        "test $(ip rule | grep -c '^\\(99\\|100\\):')$(ip -6 rule | grep -c '^\\(99\\|100\\):') = 33 && echo back",
    ),
    (
        "routes are flushed",
        "ip route flush table 25200; ip route flush table 25201; ip -6 route flush table 25201",
        "ip route show table 25200 | grep local && ip route show table 25201 | grep blackhole \
         && ip -6 route show table 25201 | grep 'dev bentpipe0'",
    ),
    ("the device is deleted", "ip link del bentpipe0", DEVICE),
    (
        "the device is set down and up",
        "ip link set bentpipe0 down; sleep 0.2; ip link set bentpipe0 up",
        DEVICE,
    ),
    (
        "the device is renamed",
        "ip link set bentpipe0 down; ip link set bentpipe0 name other0; ip link set other0 up",
        DEVICE,
    ),
    (
        "the device has another MTU",
        "ip link set bentpipe0 mtu 1300",
        "ip link show bentpipe0 | grep 'mtu 1500'",
    ),
    (
        "forwarding is switched off",
        "echo 0 >/proc/sys/net/ipv4/conf/lan0/forwarding; echo 0 >/proc/sys/net/ipv4/conf/bentpipe0/forwarding",
        "grep 1 /proc/sys/net/ipv4/conf/lan0/forwarding && grep 1 /proc/sys/net/ipv4/conf/bentpipe0/forwarding",
    ),
];

/// A prefix that comes to the LAN, and what shows that the rules have followed.
const ANOTHER_PREFIX: (&str, &str, &str) = (
    "the LAN has another prefix",
    "ip addr add 10.77.0.1/24 dev lan0",
    "nft list set inet bentpipe_client exempt4 | grep 10.77.0.0/24",
);

/// The device is up and has addresses and routes of both families.
const DEVICE: &str = "ip -4 -o addr show dev bentpipe0 | grep 100.96 && ip -6 -o addr show dev bentpipe0 | grep fd \
                      && ip route show table 25201 | grep bentpipe0 && ip -6 route show table 25201 | grep bentpipe0";

#[test]
fn what_others_take_away_comes_back_and_meanwhile_nothing_leaves() {
    if !privileged("fail closed: thefts") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = steal(&site);
    expect_ok(result, &site);
}

fn steal(site: &Site) -> Result<()> {
    let terminal = site.topology.terminal();
    let shell = |line: &str| terminal.run("sh", &["-c", line]);
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    let change = |(what, line, sign): (&str, &str, &str)| -> Result<()> {
        let changed = Instant::now();
        shell(line).with_context(|| what.to_owned())?;
        await_sign(site, sign).with_context(|| what.to_owned())?;
        println!("{what}: back after {} ms", changed.elapsed().as_millis());
        Ok(())
    };
    for (what, theft, sign) in THEFTS {
        await_sign(site, sign).with_context(|| format!("before {what}"))?;
        change((what, theft, sign))?;
    }
    change(ANOTHER_PREFIX)?;
    expect_echo(&site.routes())?;
    let socket = site.client_home().join("client.sock");
    let status = std::process::Command::new(BENTPIPE)
        .args(["status", "--json", "--socket"])
        .arg(socket)
        .output()?;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    for part in ["table inet bentpipe_client", "device bentpipe0"] {
        let repairs = status["kernel"].as_array().into_iter().flatten();
        let mut repairs = repairs.filter(|repair| repair["part"] == part);
        let number = repairs
            .next()
            .and_then(|repair| repair["repairs_total"].as_u64());
        ensure!(number >= Some(2), "{part} in {status:#}");
    }
    let log = site.client().stderr_text();
    ensure!(
        log.contains("table inet bentpipe_client is gone and was put back; \"nft\""),
        "{log}"
    );
    drop(prober);
    expect_tunnel_alone(capture)
}

fn await_sign(site: &Site, sign: &str) -> Result<()> {
    let deadline = Instant::now() + BACK;
    let terminal = site.topology.terminal();
    while terminal
        .run("sh", &["-c", sign])
        .map_or(true, |text| text.is_empty())
    {
        ensure!(Instant::now() < deadline, "not seen: {sign}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// An intercepted interface that is gone makes the client unhealthy until it is back.
#[test]
fn a_missing_interface_is_no_health() {
    if !privileged("fail closed: health") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let socket = site.client_home().join("client.sock");
    let check = || {
        let mut command = std::process::Command::new(BENTPIPE);
        command.args(["status", "--check", "--socket"]).arg(&socket);
        let output = command.output().expect("bentpipe runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    };
    let terminal = site.topology.terminal();
    let rename = |from: &str, to: &str| {
        for action in [&["down"][..], &["name", to]] {
            let line = [&["link", "set", from], action].concat();
            terminal.run("ip", &line).expect("a link");
        }
        terminal
            .run("ip", &["link", "set", to, "up"])
            .expect("a link");
    };
    let expect = |healthy: bool, text: &str| {
        let deadline = Instant::now() + BACK;
        loop {
            let (ok, said) = check();
            if ok == healthy && said.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "{said}\n{}", site.logs());
            thread::sleep(Duration::from_millis(100));
        }
    };
    expect(true, "");
    rename("lan0", "lan9");
    expect(false, "intercepted interface lan0");
    rename("lan9", "lan0");
    expect(true, "");
}

/// The guard's table is flushed while no client runs: its routing rules keep the LAN in.
#[test]
fn a_guard_that_was_flushed_still_guards_the_lan() {
    if !privileged("fail closed: a flushed guard") {
        return;
    }
    let mut site = Site::plain(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = flush_the_guard(&mut site);
    expect_ok(result, &site);
}

fn flush_the_guard(site: &mut Site) -> Result<()> {
    let file = site.client_home().join("client.toml");
    let guard = |site: &Site, arguments: &[&str]| -> Result<()> {
        let mut command = site.topology.terminal().command(BENTPIPE);
        let done = command.arg("guard").args(arguments).status()?;
        ensure!(done.success(), "guard {arguments:?}: {done}");
        Ok(())
    };
    let config = file.to_str().context("a path")?;
    guard(site, &["on", "--config", config])?;
    let capture = site.watch()?;
    let prober = Prober::start(site.topology.user())?;
    let terminal = site.topology.terminal();
    terminal.run("nft", &["flush", "ruleset"])?;
    thread::sleep(Duration::from_secs(1));
    // A client that comes later puts it back.
    site.start_server()?;
    site.start_client()?;
    await_sign(site, "nft list table inet bentpipe_guard")?;
    expect_echo(&site.routes())?;
    site.stop_client()?;
    site.stop_server()?;
    thread::sleep(Duration::from_secs(1));
    expect_tunnel_alone(capture)?;
    // And what holds it back is the guard.
    guard(site, &["off"])?;
    let capture = site.watch()?;
    thread::sleep(Duration::from_secs(1));
    drop(prober);
    let crossed = capture.stop()?;
    let leaked = crossed.expect_only_tunnel().is_err();
    ensure!(leaked, "nothing keeps the traffic in: {crossed}");
    Ok(())
}

/// A second client on the machine is told so, and leaves the first's rules alone.
#[test]
fn a_second_client_finds_the_first() {
    if !privileged("fail closed: a second client") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    let result = start_a_second(&site);
    expect_ok(result, &site);
}

fn start_a_second(site: &Site) -> Result<()> {
    let home = site.client_home();
    let text = std::fs::read_to_string(home.join("client.toml"))?;
    let second = home.join("second.toml");
    std::fs::write(&second, text.replace("client.sock", "second.sock"))?;
    let terminal = site.topology.terminal();
    let before = terminal.run("nft", &["-a", "list", "table", "inet", "bentpipe_client"])?;
    let mut command = terminal.command(BENTPIPE);
    let output = command.args(["client", "--config"]).arg(&second).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(5), "{output:?}");
    ensure!(
        errors.contains("another bentpipe client (process "),
        "{errors}"
    );
    let after = terminal.run("nft", &["-a", "list", "table", "inet", "bentpipe_client"])?;
    let handles = |text: &str| text.matches("# handle").count();
    ensure!(
        handles(&before) == handles(&after) && handles(&after) > 20,
        "{after}"
    );
    Ok(())
}
