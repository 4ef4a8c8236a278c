//! What the client takes in and what it leaves alone, judged by whom the servers see.
//!
//! A server that a connection reached through the tunnel sees the gateway; one reached directly sees the host. Needs root.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{
    GATEWAY_SAT, GATEWAY_SAT6, GATEWAY_WAN, GATEWAY_WAN6, TERMINAL_LAN, TERMINAL_LAN6,
    TERMINAL_SAT, TERMINAL_SAT6, USER, USER6, WEB, WEB6, host, host6,
};
use bentpipe_testbed::peer::{
    PATIENCE, Service, echo, read_exactly, read_to_eof, set_patience, who,
};
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::{Place, Route};
use bentpipe_testbed::site::{Site, SiteConfig};

use crate::BENTPIPE;

/// Less than the link's RTT: an answer that comes so soon has not crossed it.
const WITHOUT_THE_LINK: Duration = Duration::from_millis(400);

fn site(client_tables: &str) -> Site {
    Site::start(SiteConfig {
        client_tables: client_tables.into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

/// Whom the server at `address` sees when `place` connects.
fn seen_by(address: SocketAddr, place: &Place) -> Result<IpAddr> {
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let mut stream = place.at(connect)?.with_context(|| address.to_string())?;
    set_patience(&stream, PATIENCE)?;
    let line = read_to_eof(&mut stream).with_context(|| address.to_string())?;
    Ok(String::from_utf8(line)?.trim().parse()?)
}

/// Servers at `addresses` in `web`; each sees the one given beside it when `place` connects.
fn expect_seen(place: &Place, web: &Place, addresses: &[(IpAddr, IpAddr)]) {
    for (address, expected) in addresses {
        let service = Service::start(web, SocketAddr::new(*address, 0), who).expect("a server");
        let seen = seen_by(service.address, place).expect("a connection");
        assert_eq!(seen, *expected, "whom {address} sees");
    }
}

/// Connections are accepted at once from then on, over IPv6 as well.
fn expect_ipv6(site: &Site) {
    let (user, web): (Place, Place) = (site.topology.user().into(), site.topology.web().into());
    expect_seen(&user, &web, &[(WEB6.into(), GATEWAY_WAN6.into())]);
}

fn both(v4: (Ipv4Addr, Ipv4Addr), v6: (Ipv6Addr, Ipv6Addr)) -> [(IpAddr, IpAddr); 2] {
    [(v4.0.into(), v4.1.into()), (v6.0.into(), v6.1.into())]
}

#[test]
fn lan_interfaces_are_taken_in_and_own_traffic_only_with_local() {
    if !privileged("interception: local") {
        return;
    }
    let through = both((WEB, GATEWAY_WAN), (WEB6, GATEWAY_WAN6));
    let direct = both((WEB, TERMINAL_SAT), (WEB6, TERMINAL_SAT6));
    for (tables, own) in [
        ("[intercept]\ninterfaces = [\"lan0\"]\n", direct),
        (
            "[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\n",
            through,
        ),
    ] {
        let site = site(tables);
        let web = site.topology.web().into();
        expect_seen(&site.topology.user().into(), &web, &through);
        expect_seen(&site.topology.terminal().into(), &web, &own);
    }
}

/// Docker and Kubernetes have the kernel show bridged frames to the tables of IP, where they lose their transparent socket: before
/// the client's start, and again while it runs.
#[test]
fn a_bridge_is_taken_in_whatever_containers_do_with_bridged_frames() {
    if !privileged("interception: bridge") {
        return;
    }
    const SHOWN: [&str; 2] = [
        "net.bridge.bridge-nf-call-iptables=1",
        "net.bridge.bridge-nf-call-ip6tables=1",
    ];
    let mut site = Site::plain(SiteConfig {
        client_tables: "[intercept]\ninterfaces = [\"br-lan\"]\n".into(),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site");
    let terminal = site.topology.terminal().clone();
    let bridge = format!(
        "link add br-lan type bridge\naddr flush dev lan0\nlink set lan0 master br-lan\nlink set br-lan up\n\
         addr add {TERMINAL_LAN}/24 dev br-lan\naddr add {TERMINAL_LAN6}/64 dev br-lan nodad\n"
    );
    site.topology
        .configure(&terminal, &bridge)
        .expect("a bridge");
    let show = || {
        let shown = terminal.run("sysctl", &["-qw", SHOWN[0], SHOWN[1]]);
        shown.expect("br_netfilter: `modprobe br_netfilter`");
    };
    show();
    site.start_server().expect("it starts");
    site.start_client().expect("it starts");
    let [user, web] = [site.topology.user(), site.topology.web()].map(Place::from);
    let tunnel = both((WEB, GATEWAY_WAN), (WEB6, GATEWAY_WAN6));
    expect_seen(&user, &web, &tunnel);
    let log = site.logs();
    assert!(!log.contains("put back"), "nobody changed it:\n{log}");
    show();
    // A look every two seconds sees settings.
    thread::sleep(Duration::from_secs(4));
    expect_seen(&user, &web, &tunnel);
}

#[test]
fn bypass_goes_direct_and_only_bypass() {
    if !privileged("interception: bypass") {
        return;
    }
    let site = site(
        "[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\nbypass = [\"10.30.0.11\", \"fd00:30::11/128\"]\n",
    );
    let (user, web) = (site.topology.user().into(), site.topology.web().into());
    expect_seen(&user, &web, &both((host(1), USER), (host6(1), USER6)));
    expect_seen(
        &user,
        &web,
        &both((host(2), GATEWAY_WAN), (host6(2), GATEWAY_WAN6)),
    );
    let own = both((host(1), TERMINAL_SAT), (host6(1), TERMINAL_SAT6));
    expect_seen(&site.topology.terminal().into(), &web, &own);
}

#[test]
fn the_terminal_itself_and_the_server_are_left_alone() {
    if !privileged("interception: own addresses") {
        return;
    }
    let site = site("[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\n");
    let user = site.topology.user().into();
    let terminal = site.topology.terminal().into();
    expect_seen(
        &user,
        &terminal,
        &both((TERMINAL_LAN, USER), (TERMINAL_LAN6, USER6)),
    );
    expect_seen(
        &user,
        &terminal,
        &both((TERMINAL_SAT, USER), (TERMINAL_SAT6, USER6)),
    );
    let gateway = site.topology.gateway().into();
    expect_seen(&user, &gateway, &[(GATEWAY_SAT.into(), USER.into())]);
}

/// Its own addresses are not for clients, not even one within an `allow` prefix.
#[test]
fn addresses_of_the_server_cannot_be_reached_through_it() {
    if !privileged("interception: addresses of the server") {
        return;
    }
    let site = site("[intercept]\ninterfaces = [\"lan0\"]\n");
    let user: Place = site.topology.user().into();
    expect_ipv6(&site);
    let gateway: Place = site.topology.gateway().into();
    for address in [GATEWAY_WAN.into(), GATEWAY_WAN6.into(), GATEWAY_SAT6.into()] {
        let service = Service::start(&gateway, SocketAddr::new(address, 0), who);
        let service = service.expect("a server");
        let error = seen_by(service.address, &user).expect_err("a denied destination");
        assert_eq!(service.accepted(), 0, "{address} was reached");
        assert_eq!(kind(&error), Some(ErrorKind::ConnectionReset), "{error:#}");
    }
}

/// What the kernel said.
fn kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error
        .downcast_ref::<std::io::Error>()
        .map(std::io::Error::kind)
}

#[test]
fn other_protocols_are_dropped_unless_direct() {
    if !privileged("interception: other protocols") {
        return;
    }
    for (other, expected) in [
        ("other = \"drop\"\n", false),
        ("other = \"direct\"\n", true),
    ] {
        let site = site(&format!("[intercept]\ninterfaces = [\"lan0\"]\n{other}"));
        for address in [IpAddr::from(WEB), IpAddr::from(WEB6)] {
            let answered = udp_is_answered(&site, address).expect("UDP sockets");
            assert_eq!(answered, expected, "UDP to {address} with `{other}`");
        }
        expect_seen(
            &site.topology.user().into(),
            &site.topology.web().into(),
            &both((WEB, GATEWAY_WAN), (WEB6, GATEWAY_WAN6)),
        );
    }
}

#[test]
fn http3_is_refused_at_once() {
    if !privileged("interception: HTTP/3") {
        return;
    }
    for (tables, refused) in [("", true), ("http3 = \"tunnel\"\n", false)] {
        let site = site(&format!("[intercept]\ninterfaces = [\"lan0\"]\n{tables}"));
        for address in [IpAddr::from(WEB), IpAddr::from(WEB6)] {
            let asked = site.topology.user().enter(|| ask_for_http3(address));
            let kind = asked
                .expect("a namespace")
                .expect_err("nobody answers")
                .kind();
            assert_eq!(
                kind == ErrorKind::ConnectionRefused,
                refused,
                "{address}: {kind}"
            );
        }
    }
}

/// As a browser begins.
fn ask_for_http3(address: IpAddr) -> std::io::Result<usize> {
    let socket = UdpSocket::bind((any(address), 0))?;
    socket.set_read_timeout(Some(WITHOUT_THE_LINK))?;
    socket.connect((address, 443))?;
    socket.send(b"initial")?;
    socket.recv(&mut [0; 100])
}

/// The unspecified address of the same family.
fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Whether a server in the web hears a datagram of the user's, and the user its answer.
fn udp_is_answered(site: &Site, address: IpAddr) -> Result<bool> {
    let server = site
        .topology
        .web()
        .enter(|| UdpSocket::bind((address, 0)))??;
    let user = site.topology.user();
    let user = user.enter(|| UdpSocket::bind((any(address), 0)))??;
    for socket in [&server, &user] {
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    }
    let mut buffer = [0; 100];
    user.send_to(b"question", server.local_addr()?)?;
    let Ok((length, from)) = server.recv_from(&mut buffer) else {
        return Ok(false);
    };
    server.send_to(&buffer[..length], from)?;
    Ok(user.recv_from(&mut buffer).is_ok())
}

/// The first attempt is reset an RTT later, the next fail in the kernel of the terminal.
#[test]
fn what_was_refused_is_refused_at_once() {
    if !privileged("interception: refused") {
        return;
    }
    let site = site("[intercept]\ninterfaces = [\"lan0\"]\nlocal = true\n");
    expect_ipv6(&site);
    for place in [site.topology.user(), site.topology.terminal()] {
        for route in site.routes() {
            let route = Route {
                user: place.into(),
                ..route
            };
            let result = refused_at_once(&site, &route);
            result.unwrap_or_else(|error| panic!("{} {}: {error:#}", place.name(), route.name));
        }
    }
}

fn refused_at_once(site: &Site, route: &Route) -> Result<()> {
    let (_held, closed) = route.closed_port()?;
    let first = read_to_eof(&mut route.connect(closed)?).expect_err("nobody listens");
    ensure!(
        kind(&first) == Some(ErrorKind::ConnectionReset),
        "first: {first:#}"
    );
    // The client tells the kernel off the data path; until then it takes in, and resets.
    let deadline = Instant::now() + Duration::from_secs(8);
    while route.try_connect(closed)?.is_ok() {
        ensure!(Instant::now() < deadline, "never refused at once");
        thread::sleep(Duration::from_millis(50));
    }
    for _ in 0..3 {
        let start = Instant::now();
        match route.try_connect(closed)? {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            other => anyhow::bail!("then: {other:?}"),
        }
        let took = start.elapsed();
        ensure!(took < WITHOUT_THE_LINK, "refused only after {took:?}");
    }
    let set = if route.server.is_ipv4() {
        "refused4"
    } else {
        "refused6"
    };
    let listed = site
        .topology
        .terminal()
        .run("nft", &["list", "set", "inet", "bentpipe_client", set])?;
    let element = format!("{} . {}", closed.ip(), closed.port());
    ensure!(
        listed.contains(&element) && listed.contains("timeout 10s expires"),
        "{set} is:\n{listed}"
    );
    // Other ports of the same host are as before.
    let service = Service::start(&route.web, SocketAddr::new(route.server, 0), echo)?;
    expect_echo(&mut route.connect(service.address)?)
}

/// A service that was down for a moment is reached again some seconds after it is back.
#[test]
fn what_was_refused_is_reached_again_once_it_is_back() {
    if !privileged("interception: refused for a while") {
        return;
    }
    let site = site("[intercept]\ninterfaces = [\"lan0\"]\n");
    let [route, _] = site.routes();
    let back = back_again(&route);
    let back = back.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
    println!("reached again {back:?} after it was refused");
    assert!(back <= Duration::from_secs(15), "only after {back:?}");
}

fn back_again(route: &Route) -> Result<Duration> {
    let (held, address) = route.closed_port()?;
    read_to_eof(&mut route.connect(address)?).expect_err("nobody listens");
    let refused = Instant::now();
    // The service comes back after the kernel has begun to refuse: else this measures nothing.
    while !matches!(route.try_connect(address)?, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
    {
        ensure!(
            refused.elapsed() < Duration::from_secs(5),
            "never refused at once"
        );
        thread::sleep(Duration::from_millis(50));
    }
    // The held socket itself begins to listen. A port that is closed and bound again may still be
    // in use: processes that other tests start have copies of descriptors until they run.
    held.listen(128)?;
    let service = Service::on(held.into(), echo)?;
    while refused.elapsed() < Duration::from_secs(30) {
        if let Ok(mut stream) = route.try_connect(address)?
            && expect_echo(&mut stream).is_ok()
        {
            ensure!(service.accepted() > 0, "somebody else answers");
            return Ok(refused.elapsed());
        }
        thread::sleep(Duration::from_millis(250));
    }
    anyhow::bail!("refused for more than {:?}", refused.elapsed())
}

fn expect_echo(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"still there?")?;
    let echoed = read_exactly(stream, 12)?;
    ensure!(echoed == b"still there?", "wrong echo");
    Ok(())
}

/// Two thousand connections, and then none: every descriptor is given back.
#[test]
fn many_connections_leave_no_descriptors_behind() {
    const CONNECTIONS: usize = 1000;
    if !privileged("interception: many connections") {
        return;
    }
    let site = site("[intercept]\ninterfaces = [\"lan0\"]\n");
    let daemons = [site.client().id(), site.server().id()];
    // What the client runs for the addresses that it was assigned has pipes of its own.
    let mut before = daemons.map(descriptors);
    for _ in 0..20 {
        thread::sleep(Duration::from_secs(1));
        let now = daemons.map(descriptors);
        if now == before {
            break;
        }
        before = now;
    }
    let routes = site.routes();
    let services: Vec<_> = routes
        .iter()
        .map(|route| Service::start(&route.web, SocketAddr::new(route.server, 0), echo))
        .collect::<Result<_>>()
        .expect("servers");
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        for (route, service) in routes.iter().zip(&services) {
            streams.push(route.connect(service.address).expect("a connection"));
        }
    }
    for stream in &mut streams {
        stream.write_all(b"still there?").expect("a question");
    }
    for stream in &mut streams {
        let echoed = read_exactly(stream, 12).expect("an echo");
        assert_eq!(echoed, b"still there?");
    }
    for (before, daemon) in before.into_iter().zip(daemons) {
        let open = descriptors(daemon);
        assert!(open >= before + 2 * CONNECTIONS, "only {open} are open");
    }
    drop(streams);
    let deadline = Instant::now() + Duration::from_secs(10);
    while daemons.map(descriptors) != before {
        assert!(
            Instant::now() < deadline,
            "descriptors of client and server: {before:?} before, {:?} after",
            daemons.map(descriptors)
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd"))
        .expect("a living process")
        .count()
}
