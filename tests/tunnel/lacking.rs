//! Work that a running client cannot do for a while, such as a change of its rules without memory: it is told once, and tried again. Needs
//! root.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_emulator::topology::{GATEWAY_WAN, Process, USER, WEB};
use bentpipe_testbed::failing::FailingTool;
use bentpipe_testbed::peer::{PATIENCE, Service, who};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, with_config};
use bentpipe_testbed::start;

use crate::BENTPIPE;
use crate::policy::seen;

/// Time within which a client notices, and tells.
const SOON: Duration = Duration::from_secs(20);

/// Destinations that refuse, one after another.
const CLOSED: std::ops::Range<u16> = 9001..9007;

/// A site whose server runs.
fn site(client_tables: &str) -> Site {
    let mut site = Site::plain(SiteConfig {
        client_tables: client_tables.into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    site.start_server().expect("a server");
    site
}

/// A client whose tunnel is up, and an `nft` of its own.
fn client(site: &Site) -> (Process, FailingTool) {
    let nft = FailingTool::new(&site.client_home().join("state"), "nft").expect("a tool");
    let client = start::client(site, |program| nft.put_first(program).expect("a path"));
    let client = client.expect("a client");
    client.wait_for_line("ready", SOON).expect("a tunnel");
    (client, nft)
}

/// Line of `status --check`, once it has this `text`.
fn await_check(site: &Site, text: &str) {
    let socket = site.client_home().join("client.sock");
    let deadline = Instant::now() + SOON;
    loop {
        let mut command = Command::new(BENTPIPE);
        command.args(["status", "--check", "--socket"]).arg(&socket);
        let output = command.output().expect("bentpipe runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if said.contains(text) {
            return;
        }
        assert!(Instant::now() < deadline, "no `{text}` in {said}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Lines of the client's log with this `text`.
fn count(client: &Process, text: &str) -> usize {
    let log = client.stderr_text();
    log.lines().filter(|line| line.contains(text)).count()
}

/// The tunnel is back, and the one change that would lead the LAN into it again fails.
#[test]
fn rules_that_could_not_follow_the_tunnel_do_once_nft_works() {
    if !privileged("lacking: nft for the rules") {
        return;
    }
    let mut site = site("[intercept]\ninterfaces = [\"lan0\"]\non_failure = \"direct\"\n");
    let (client, nft) = client(&site);
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    let service = Service::start(&web, SocketAddr::new(WEB.into(), 0), who).expect("a server");
    let expect = |who: IpAddr, what: &str| {
        assert_eq!(seen(&user, service.address).expect(what), who, "{what}");
    };
    expect(GATEWAY_WAN.into(), "with a tunnel");
    site.kill_server().expect("a killed server");
    // The client has nothing to miss until somebody asks for something.
    let asked = user.at(|| TcpStream::connect_timeout(&service.address, PATIENCE));
    let in_clear = "what is taken in goes in clear until the tunnel answers";
    client.wait_for_line(in_clear, SOON).expect("a line");
    drop(asked);
    expect(USER.into(), "without a server");
    nft.fail().expect("a file");
    site.start_server().expect("a server");
    let failed = "ERROR cannot change the interception rules: ";
    client.wait_for_line(failed, SOON).expect("a line");
    let carries = "the tunnel carries what is taken in again";
    assert_eq!(count(&client, carries), 0, "{}", client.stderr_text());
    await_check(&site, "interception rules: ");
    expect(USER.into(), "with a server, without nft");
    // Some more attempts, which are not told.
    thread::sleep(Duration::from_secs(3));
    nft.work().expect("a file");
    let over = "the interception rules follow again";
    client.wait_for_line(over, SOON).expect("a line");
    assert_eq!(count(&client, carries), 1, "{}", client.stderr_text());
    assert_eq!(count(&client, failed), 1, "{}", client.stderr_text());
    await_check(&site, "healthy");
    expect(GATEWAY_WAN.into(), "with a server and nft");
}

/// Each refusal is to be told to the kernel, in words of its own.
#[test]
fn refusals_that_the_kernel_cannot_be_told_are_one_line() {
    if !privileged("lacking: nft for refusals") {
        return;
    }
    let site = site("[intercept]\ninterfaces = [\"lan0\"]\n");
    let (client, nft) = client(&site);
    let user: Place = site.topology.user().into();
    let refused = |port| {
        let address = SocketAddr::new(WEB.into(), port);
        let connecting = || TcpStream::connect_timeout(&address, PATIENCE);
        let connected = user.at(connecting).expect("the namespace is there");
        if let Ok(mut stream) = connected {
            stream.read(&mut [0]).expect_err("nobody listens there");
        }
    };
    nft.fail().expect("a file");
    CLOSED.for_each(refused);
    let failed = "ERROR cannot change the interception rules: ";
    client.wait_for_line(failed, SOON).expect("a line");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(count(&client, failed), 1, "{}", client.stderr_text());
    nft.work().expect("a file");
    refused(CLOSED.end);
    let over = "the interception rules can be changed again";
    client.wait_for_line(over, SOON).expect("a line");
}

/// Connections of an interface that came after the start wait for a packet socket that the client may not open.
#[test]
fn an_interface_that_cannot_be_watched_when_it_comes_is_told_of() {
    if !privileged("lacking: CAP_NET_RAW") {
        return;
    }
    let site = site(
        "[intercept]\ninterfaces = [\"usb0\"]\n[[rule]]\nports = [8025]\noptimistic = false\n",
    );
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-net_raw", "--bounding-set=-net_raw", "--"]);
    with_config(command.arg(BENTPIPE), site.client_home());
    let terminal = site.topology.terminal();
    let client = site.start_client_in(terminal, command).expect("a client");
    let add = "link add usb0 type veth peer name far0";
    let add: Vec<_> = add.split(' ').collect();
    terminal.run("ip", &add).expect("an interface");
    let line = "ERROR usb0 is not watched (cannot capture on usb0: ";
    client.wait_for_line(line, SOON).expect("a line");
    await_check(&site, "watch on usb0: ");
    // Some more attempts, which are not told.
    thread::sleep(Duration::from_secs(1));
    let log = client.stderr_text();
    assert_eq!(count(&client, "usb0 is not watched"), 1, "{log}");
    assert!(log.contains("needs CAP_NET_RAW"), "{log}");
}
