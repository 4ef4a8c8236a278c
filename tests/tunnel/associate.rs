//! SOCKS5 UDP ASSOCIATE through real daemons and the emulated satellite: a client without a device or privileges, one that takes
//! in a LAN's packets as well, and servers with a device and without.
//!
//! Needs root, to build the site.

use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{TERMINAL_LAN, WEB, WEB6, host};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::echo::{Echo, bind, cross};
use bentpipe_testbed::peer::{PATIENCE, read_exactly, read_to_eof, set_patience};
use bentpipe_testbed::proxy::SOCKS5;
use bentpipe_testbed::site::{Site, SiteConfig, near};
use bentpipe_testbed::{expect_tunnel_alone, privileged};
use serde_json::Value;

use crate::BENTPIPE;
use crate::dns::resolver::Resolver;

/// Where the client listens for the LAN.
const ON_LAN: &str = "10.10.0.1:1080";

/// The first port of the assigned addresses that is for associations (`bentpipe_proto::proxy::associate::PORTS`).
const FIRST_PORT: u16 = 64_512;

/// The most that a packet over IPv4 and over IPv6 holds, in bytes.
const MOST: [usize; 2] = [1472, 1452];

/// A site over a short path that loses nothing.
fn config() -> SiteConfig {
    let mut scenario = near();
    scenario.errors = bentpipe_testbed::site::geo().errors;
    SiteConfig {
        scenario,
        client_tables: format!("[socks5]\nlisten = \"{SOCKS5}\"\n"),
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// An application with an association.
struct Application {
    control: TcpStream,
    relay: SocketAddr,
    socket: UdpSocket,
}

/// Asks the proxy at `proxy` for an association for `port`; the code of the answer, and where the relay is.
fn ask(place: &NetNs, proxy: &str, port: u16) -> Result<(TcpStream, u8, SocketAddr)> {
    let proxy: SocketAddr = proxy.parse()?;
    let mut control = place.enter(|| TcpStream::connect(proxy))??;
    set_patience(&control, PATIENCE)?;
    control.write_all(&[5, 1, 0])?;
    ensure!(read_exactly(&mut control, 2)? == [5, 0], "no agreement");
    let [high, low] = port.to_be_bytes();
    control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, high, low])?;
    let reply = read_exactly(&mut control, 10)?;
    ensure!(
        reply[0] == 5 && reply[3] == 1,
        "no reply of IPv4: {reply:?}"
    );
    let address = Ipv4Addr::new(reply[4], reply[5], reply[6], reply[7]);
    let port = u16::from_be_bytes([reply[8], reply[9]]);
    Ok((control, reply[1], (address, port).into()))
}

impl Application {
    fn start(place: &NetNs, proxy: &str) -> Result<Self> {
        let (control, code, relay) = ask(place, proxy, 0)?;
        ensure!(code == 0, "refused with {code}");
        let listens: SocketAddr = proxy.parse()?;
        ensure!(relay.ip() == listens.ip(), "the relay is at {relay}");
        let socket = bind(place, Ipv4Addr::UNSPECIFIED.into())?;
        socket.connect(relay)?;
        Ok(Self {
            control,
            relay,
            socket,
        })
    }

    /// Sends `content` to `target` and waits for an answer; whom it is from, and what it says.
    fn exchange(&self, target: &str, port: u16, content: &[u8]) -> Result<(SocketAddr, Vec<u8>)> {
        self.socket.send(&datagram(target, port, content))?;
        self.hear().with_context(|| format!("{target}:{port}"))
    }

    fn hear(&self) -> Result<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; 2048];
        let length = self.socket.recv(&mut buffer)?;
        let answer = &buffer[..length];
        ensure!(answer.starts_with(&[0, 0, 0]), "no head: {answer:?}");
        let (ip, at): (IpAddr, _) = match answer[3] {
            1 => (<[u8; 4]>::try_from(&answer[4..8])?.into(), 8),
            4 => (<[u8; 16]>::try_from(&answer[4..20])?.into(), 20),
            other => anyhow::bail!("address type {other}"),
        };
        let port = u16::from_be_bytes([answer[at], answer[at + 1]]);
        Ok((SocketAddr::new(ip, port), answer[at + 2..].to_vec()))
    }

    /// Whether nothing comes for a while.
    fn hears_nothing(&self) -> Result<bool> {
        self.socket
            .set_read_timeout(Some(Duration::from_millis(700)))?;
        let heard = self.socket.recv(&mut [0; 2048]);
        self.socket.set_read_timeout(Some(PATIENCE))?;
        Ok(heard.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
    }
}

/// What an application sends to its relay.
fn datagram(target: &str, port: u16, content: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 3];
    match target.parse() {
        Ok(IpAddr::V4(address)) => {
            out.push(1);
            out.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            out.push(4);
            out.extend(address.octets());
        }
        Err(_) => {
            out.extend([3, u8::try_from(target.len()).expect("a short name")]);
            out.extend(target.bytes());
        }
    }
    out.extend(port.to_be_bytes());
    out.extend(content);
    out
}

/// What `status` of the client says of associations.
fn status(site: &Site) -> Value {
    site.client_report().expect("a report")["associations"].take()
}

fn shown<T>(site: &Site, result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}\n{}\n{}", status(site), site.logs()))
}

/// Addresses of both families and a name are reached by an application at `place`, datagrams of any size among them.
fn reaches(site: &Site, place: &NetNs, proxy: &str) -> Result<()> {
    let web = site.topology.web();
    let application = Application::start(place, proxy)?;
    for (address, most) in [IpAddr::V4(WEB), IpAddr::V6(WEB6)].into_iter().zip(MOST) {
        let echo = Echo::start(web, address)?;
        let target = address.to_string();
        for size in [0, 1, 1200, most] {
            let content = vec![7; size];
            let heard = application.exchange(&target, echo.address.port(), &content)?;
            ensure!(heard == (echo.address, content), "{target}: {heard:?}");
        }
        let before = status(site)["dropped"]["large"].clone();
        let large = datagram(&target, echo.address.port(), &vec![7; most + 1]);
        application.socket.send(&large)?;
        ensure!(application.hears_nothing()?, "more than a packet holds");
        let after = status(site)["dropped"]["large"].clone();
        ensure!(after.as_u64() > before.as_u64(), "{after}");
    }
    let echo = Echo::start(web, host(0).into())?;
    for content in [b"first", b"later"] {
        let heard = application.exchange("host0.example", echo.address.port(), content)?;
        ensure!(heard == (echo.address, content.to_vec()), "{heard:?}");
    }
    let sink = bind(web, WEB.into())?;
    let port = sink.local_addr()?.port();
    let said = datagram(&WEB.to_string(), port, b"who am I?");
    application.socket.send(&said)?;
    let (_, seen) = sink.recv_from(&mut [0; 100])?;
    ensure!(seen.port() >= FIRST_PORT, "seen as {seen}");
    sink.send_to(b"you", seen)?;
    ensure!(application.hear()? == (sink.local_addr()?, b"you".to_vec()));
    Ok(())
}

/// Who else sends to the relay, and what is no datagram, is not heard; and with its connection an association is over.
fn ends_with_its_connection(site: &Site, place: &NetNs, proxy: &str) -> Result<()> {
    let echo = Echo::start(site.topology.web(), WEB.into())?;
    let (target, port) = (WEB.to_string(), echo.address.port());
    let application = Application::start(place, proxy)?;
    application.exchange(&target, port, b"mine")?;
    let before = status(site);
    let said = datagram(&target, port, b"not mine");
    // The same host from another port, and another host.
    for elsewhere in [place, site.topology.terminal()] {
        let stranger = bind(elsewhere, Ipv4Addr::UNSPECIFIED.into())?;
        stranger.send_to(&said, application.relay)?;
    }
    let mut fragment = said;
    fragment[2] = 1;
    application.socket.send(&fragment)?;
    ensure!(application.hears_nothing()?, "a stranger was heard");
    let after = status(site);
    let more = |key: &str| {
        let [before, after] = [&before, &after].map(|status| status["dropped"][key].as_u64());
        after.zip(before).map(|(after, before)| after - before)
    };
    ensure!(more("stranger") == Some(2), "{before} {after}");
    ensure!(more("fragment") == Some(1), "{before} {after}");
    ensure!(after["open"] == 1, "{after}");
    application.control.shutdown(Shutdown::Both)?;
    let deadline = Instant::now() + PATIENCE;
    while status(site)["open"] != 0 {
        ensure!(Instant::now() < deadline, "it is still open");
        thread::sleep(Duration::from_millis(20));
    }
    let _ = application
        .socket
        .send(&datagram(&target, port, b"too late"));
    ensure!(application.hear().is_err(), "heard after the end");
    ensure!(status(site)["sent"] == after["sent"]);
    Ok(())
}

#[test]
fn datagrams_cross_without_privileges_or_a_device() {
    if !privileged("associate: without a device") {
        return;
    }
    let site = Site::start(SiteConfig {
        unprivileged: true,
        ..config()
    });
    let site = site.expect("a site");
    let terminal = site.topology.terminal();
    let devices = terminal.run("ip", &["link"]).expect("ip");
    assert!(!devices.contains("bentpipe0"), "{devices}");
    let web = SocketAddr::new(WEB.into(), 53);
    let _resolver = Resolver::start(&site.topology.web().into(), web).expect("a resolver");
    let capture = site.watch().expect("a capture");
    shown(&site, reaches(&site, terminal, SOCKS5));
    shown(&site, ends_with_its_connection(&site, terminal, SOCKS5));
    expect_tunnel_alone(capture).expect("the tunnel alone");
}

#[test]
fn datagrams_cross_to_a_server_without_a_device() {
    if !privileged("associate: a server without a device") {
        return;
    }
    let site = Site::start(SiteConfig {
        unprivileged: true,
        server_unprivileged: true,
        ..config()
    });
    let site = site.expect("a site");
    let web = SocketAddr::new(WEB.into(), 53);
    let _resolver = Resolver::start(&site.topology.web().into(), web).expect("a resolver");
    let echo = Echo::start(site.topology.web(), WEB6.into()).expect("an echo");
    let result = Application::start(site.topology.terminal(), SOCKS5).and_then(|application| {
        for target in [WEB6.to_string(), "host0.example".into()] {
            let echo = match target.starts_with("host") {
                true => &Echo::start(site.topology.web(), host(0).into())?,
                false => &echo,
            };
            let heard = application.exchange(&target, echo.address.port(), b"hello")?;
            ensure!(heard == (echo.address, b"hello".to_vec()), "{heard:?}");
        }
        Ok(())
    });
    shown(&site, result);
}

/// Packets of the LAN and datagrams of associations share the addresses that the server has assigned.
#[test]
fn datagrams_cross_beside_the_packets_of_a_lan() {
    if !privileged("associate: beside a LAN's packets") {
        return;
    }
    let site = Site::start(SiteConfig {
        client_tables: format!(
            "[intercept]\ninterfaces = [\"lan0\"]\n[socks5]\nlisten = \"{ON_LAN}\"\n"
        ),
        ..config()
    });
    let site = site.expect("a site");
    assert!(ON_LAN.starts_with(&TERMINAL_LAN.to_string()));
    let (user, web) = (site.topology.user(), site.topology.web());
    let resolver = SocketAddr::new(WEB.into(), 53);
    let _resolver = Resolver::start(&web.into(), resolver).expect("a resolver");
    let capture = site.watch().expect("a capture");
    shown(&site, reaches(&site, user, ON_LAN));
    shown(&site, ends_with_its_connection(&site, user, ON_LAN));
    let echo = Echo::start(web, WEB.into()).expect("an echo");
    shown(&site, cross(user, &echo, 100, 100).map(drop));
    shown(&site, leaves_ports(&site));
    expect_tunnel_alone(capture).expect("the tunnel alone");
}

/// A host of the LAN that sends from a port that is for associations is given another.
fn leaves_ports(site: &Site) -> Result<()> {
    let (user, web) = (site.topology.user(), site.topology.web());
    for (address, any) in [(IpAddr::V4(WEB), "0.0.0.0"), (IpAddr::V6(WEB6), "::")] {
        let sink = bind(web, address)?;
        let mut buffer = [0; 100];
        // The other is left as it is.
        for (port, kept) in [(FIRST_PORT + 100, false), (5060, true)] {
            let own = SocketAddr::new(any.parse()?, port);
            let socket = user.enter(|| UdpSocket::bind(own))??;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(sink.local_addr()?)?;
            socket.send(b"from the LAN")?;
            let (_, seen) = sink.recv_from(&mut buffer)?;
            ensure!((seen.port() == port) == kept, "{port} is seen as {seen}");
            ensure!(seen.port() < FIRST_PORT, "{port} is seen as {seen}");
            sink.send_to(b"to the LAN", seen)?;
            ensure!(socket.recv(&mut buffer)? == 10);
        }
    }
    Ok(())
}

#[test]
fn without_packets_an_association_is_refused() {
    if !privileged("associate: refused") {
        return;
    }
    let site = Site::start(SiteConfig {
        unprivileged: true,
        server_tables: "[packets]\nenabled = false\n".into(),
        ..config()
    });
    let site = site.expect("a site");
    let (mut control, code, _) = shown(&site, ask(site.topology.terminal(), SOCKS5, 0));
    assert_eq!(code, 7);
    assert_eq!(read_to_eof(&mut control).expect("an end"), b"");
    assert!(
        site.logs().contains("UDP ASSOCIATE of SOCKS5 is refused"),
        "{}",
        site.logs()
    );
}
