//! A daemon that dies is seen as a reset, and lets nothing cross the link in clear: not then, not on new connections.
//!
//! The terminal's side of the link is captured throughout, while a LAN host tries TCP, UDP and ICMP. Needs root.

mod fault;
mod taken_away;

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

/// No new connection gets through, on any route.
fn expect_shut(routes: &[Route]) -> Result<()> {
    for route in routes {
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
    expect_shut(&routes)?;
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
