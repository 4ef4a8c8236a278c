//! Published ports through real daemons: from the server's side to hosts behind the client, TCP and UDP, over IPv4 and
//! IPv6; permitted ports only, and for as long as the client is there. Needs root.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_emulator::topology::{
    GATEWAY_WAN, GATEWAY_WAN6, TERMINAL_LAN, USER, USER6, WEB, WEB6,
};
use bentpipe_testbed::datagrams::{PacketEcho, ask};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::{
    Service, echo, listen, payload, read_exactly, read_to_eof, read_to_reset, set_patience, who,
};
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, geo, near};
use bentpipe_testbed::{expect_tunnel_alone, privileged};
use serde_json::Value;

use crate::BENTPIPE;

const PATIENCE: Duration = Duration::from_secs(10);
/// A client that has nothing to say asks after 25 s whether its server is still there.
const NOTICED: Duration = Duration::from_secs(40);

/// The server's side, and who connects to it.
const SIDES: [(IpAddr, IpAddr); 2] = [
    (IpAddr::V4(GATEWAY_WAN), IpAddr::V4(WEB)),
    (IpAddr::V6(GATEWAY_WAN6), IpAddr::V6(WEB6)),
];

/// Ports of the server.
const ECHO: u16 = 8080;
const WHO: u16 = 8081;
const ANNOUNCED: u16 = 8443;
const DEAF: u16 = 8082;
const DENIED: u16 = 9999;
const PACKETS: u16 = 5000;
const ROUTER: u16 = 5001;

/// Ports of the host behind the client.
const HOST_ECHO: u16 = 7001;
const HOST_WHO: u16 = 7002;
const HOST_ANNOUNCED: u16 = 7003;
const HOST_NOBODY: u16 = 7004;
const HOST_PACKETS: u16 = 6000;
const HOST_SECRET: u16 = 6001;

const GRANTS: &str = "publish = [\"tcp/8080-8443\", \"udp/5000-5001\"]";

fn config() -> SiteConfig {
    let port = |protocol: &str, port: u16, to: SocketAddr, more: &str| {
        format!("[[publish]]\nprotocol = \"{protocol}\"\nport = {port}\nto = \"{to}\"\n{more}")
    };
    let entries = [
        port("tcp", ECHO, (USER, HOST_ECHO).into(), ""),
        port("tcp", WHO, (USER6, HOST_WHO).into(), ""),
        port(
            "tcp",
            ANNOUNCED,
            (USER, HOST_ANNOUNCED).into(),
            "proxy_protocol = true\n",
        ),
        port("tcp", DEAF, (USER, HOST_NOBODY).into(), ""),
        port("tcp", DENIED, (USER, HOST_ECHO).into(), ""),
        port("udp", PACKETS, (USER, HOST_PACKETS).into(), ""),
        port("udp", PACKETS, (USER6, HOST_PACKETS).into(), ""),
        port("udp", ROUTER, (TERMINAL_LAN, HOST_PACKETS).into(), ""),
    ];
    let mut scenario = near();
    scenario.errors = geo().errors;
    let intercept = "[intercept]\ninterfaces = [\"lan0\"]\n";
    SiteConfig {
        scenario,
        grants: GRANTS.into(),
        client_tables: format!("{intercept}{}", entries.concat()),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// What `status` says of a port, at one end: state and reason.
fn said(site: &Site, client: bool, protocol: &str, port: u16) -> Result<(String, String)> {
    let session = match client {
        true => site.client_report()?,
        false => site.server_report()?["clients"][0].clone(),
    };
    let ports = session["publish"].as_array().context("no ports")?;
    let meant = |entry: &&Value| entry["protocol"] == protocol && entry["port"] == port;
    let entry = ports.iter().find(meant).context("not this port")?;
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    Ok((text("state"), text("reason")))
}

/// Waits until both ends say `state` of a port; returns the client's reason.
pub(crate) fn expect(site: &Site, protocol: &str, port: u16, state: &str) -> Result<String> {
    expect_within(site, protocol, port, state, PATIENCE)
}

fn expect_within(
    site: &Site,
    protocol: &str,
    port: u16,
    state: &str,
    patience: Duration,
) -> Result<String> {
    let deadline = Instant::now() + patience;
    loop {
        let ends = [true, false].map(|client| said(site, client, protocol, port));
        if let [Ok((one, reason)), Ok((other, _))] = &ends
            && one == state
            && other == state
        {
            return Ok(reason.clone());
        }
        ensure!(Instant::now() < deadline, "{protocol}/{port}: {ends:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn connect(site: &Site, to: SocketAddr) -> Result<TcpStream> {
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let stream = site.topology.web().enter(connect)??;
    set_patience(&stream, PATIENCE)?;
    Ok(stream)
}

fn is_closed(site: &Site, port: u16) -> Result<()> {
    for (server, _) in SIDES {
        match connect(site, (server, port).into()) {
            Ok(_) => bail!("{server} port {port} is open"),
            Err(error) => {
                let cause = error.downcast_ref::<std::io::Error>();
                let refused =
                    cause.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
                ensure!(refused, "{server} port {port}: {error}");
            }
        }
    }
    Ok(())
}

/// Waits until nobody listens.
fn until_closed(site: &Site, port: u16, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while let Err(error) = is_closed(site, port) {
        ensure!(Instant::now() < deadline, "{error}");
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Services of the host behind the client.
fn services(site: &Site) -> Result<[Service; 2]> {
    let user = Place::from(site.topology.user());
    Ok([
        Service::start(&user, (USER, HOST_ECHO).into(), echo)?,
        Service::start(&user, (USER6, HOST_WHO).into(), who)?,
    ])
}

#[test]
fn published_ports_lead_to_the_lan_and_nothing_else_does() {
    if !privileged("publish: ports lead to the LAN") {
        return;
    }
    let site = Site::start(config()).expect("a site");
    let capture = site.watch().expect("a capture");
    let result = connections(&site).and_then(|()| packets(&site));
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
    expect_tunnel_alone(capture).expect("the tunnel alone");
}

fn connections(site: &Site) -> Result<()> {
    let _services = services(site)?;
    for port in [ECHO, WHO, ANNOUNCED, DEAF] {
        expect(site, "tcp", port, "open")?;
    }
    let announced = site
        .topology
        .user()
        .enter(|| listen((USER, HOST_ANNOUNCED).into()))??;
    for (server, _) in SIDES {
        let said = payload(1 << 20);
        let mut stream = connect(site, (server, ECHO).into())?;
        let mut writer = stream.try_clone()?;
        let text = said.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&text)?;
            writer.shutdown(Shutdown::Write)
        });
        let heard = read_to_eof(&mut stream).with_context(|| format!("echo by {server}"))?;
        writing.join().expect("it ends")?;
        ensure!(heard == said, "{} bytes came back by {server}", heard.len());

        // The host sees the router: it is on its own LAN.
        let mut stream = connect(site, (server, WHO).into())?;
        let peer = String::from_utf8(read_to_eof(&mut stream)?)?;
        ensure!(peer.trim() == "fd00:10::1", "{peer}");

        announces(site, &announced, (server, ANNOUNCED).into())?;

        let mut stream = connect(site, (server, DEAF).into())?;
        read_to_reset(&mut stream).context("nobody listens at the host")?;
    }
    let reason = expect(site, "tcp", DENIED, "refused")?;
    ensure!(reason.contains("publish = [\"tcp/9999\"]"), "{reason}");
    is_closed(site, DENIED)
}

/// The host is told who has connected to what, before anything else.
fn announces(site: &Site, host: &TcpListener, to: SocketAddr) -> Result<()> {
    let mut stream = connect(site, to)?;
    stream.write_all(b"hello")?;
    let mut served = bentpipe_testbed::peer::accept(host, PATIENCE)?;
    let header = bentpipe_proxy_header(stream.local_addr()?, to);
    let heard = read_exactly(&mut served, header.len() + 5)?;
    ensure!(heard[..header.len()] == header[..], "{heard:x?}");
    ensure!(&heard[header.len()..] == b"hello", "{heard:x?}");
    drop(served);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    ensure!(rest.is_empty());
    Ok(())
}

/// As the specification has it (`proxy-protocol.txt`, §2.2).
fn bentpipe_proxy_header(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    header.extend(match source {
        SocketAddr::V4(_) => [0x11, 0, 12],
        SocketAddr::V6(_) => [0x21, 0, 36],
    });
    header.extend(octets(source.ip()));
    header.extend(octets(destination.ip()));
    header.extend(source.port().to_be_bytes());
    header.extend(destination.port().to_be_bytes());
    header
}

fn packets(site: &Site) -> Result<()> {
    let host = site.topology.user();
    let _hosts = [
        PacketEcho::start(host, (USER, HOST_PACKETS).into())?,
        PacketEcho::start(host, (USER6, HOST_PACKETS).into())?,
    ];
    let _router = PacketEcho::start(
        site.topology.terminal(),
        (TERMINAL_LAN, HOST_PACKETS).into(),
    )?;
    let secret = PacketEcho::start(host, (USER, HOST_SECRET).into())?;
    expect(site, "udp", PACKETS, "open")?;
    expect(site, "udp", ROUTER, "open")?;
    for (server, web) in SIDES {
        let (answer, own) = ask(site, web, (server, PACKETS).into())?;
        // The host sees who has sent it.
        ensure!(
            answer == Some(format!("{own} hello")),
            "{server}: {answer:?}"
        );
    }
    let (answer, own) = ask(site, SIDES[0].1, (GATEWAY_WAN, ROUTER).into())?;
    ensure!(
        answer == Some(format!("{own} hello")),
        "the router: {answer:?}"
    );
    // Published for IPv4 alone.
    let (answer, _) = ask(site, SIDES[1].1, (GATEWAY_WAN6, ROUTER).into())?;
    ensure!(answer.is_none(), "{answer:?}");
    for port in [HOST_PACKETS, HOST_SECRET] {
        let (answer, _) = ask(site, SIDES[0].1, (GATEWAY_WAN, port).into())?;
        ensure!(answer.is_none(), "port {port}: {answer:?}");
    }
    ensure!(!secret.has_heard());
    Ok(())
}

#[test]
fn ports_are_open_while_the_client_is_there_and_may_have_them() {
    if !privileged("publish: ports open and close") {
        return;
    }
    let mut site = Site::start(config()).expect("a site");
    let result = opens_and_closes(&mut site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

fn opens_and_closes(site: &mut Site) -> Result<()> {
    let _services = services(site)?;
    let _packets = PacketEcho::start(site.topology.user(), (USER, HOST_PACKETS).into())?;
    open(site).context("at first")?;

    withdraw(site).context("a permission that is withdrawn")?;
    open(site).context("a permission that is given back")?;

    site.stop_client()?;
    // By its goodbye: silence alone closes it after ten seconds.
    until_closed(site, ECHO, Duration::from_secs(3)).context("the client has stopped")?;
    no_packets(site).context("the client has stopped")?;
    in_use(site).context("somebody else has the port")?;
    open(site).context("the client was started")?;

    site.kill_client()?;
    site.start_client()?;
    open(site).context("the client was killed and started")?;

    site.kill_client()?;
    // Its silence shows when somebody connects, or when the next keep-alive is due.
    let began = Instant::now();
    until_closed(site, ECHO, Duration::from_secs(60)).context("the client was killed")?;
    println!("closed {:?} after the client was killed", began.elapsed());
    no_packets(site).context("the client was killed")?;
    site.start_client()?;
    open(site).context("the client was started again")
}

/// The ports are open, for connections and packets.
fn open(site: &Site) -> Result<()> {
    expect(site, "tcp", ECHO, "open")?;
    let mut stream = connect(site, (GATEWAY_WAN, ECHO).into())?;
    stream.write_all(b"hello")?;
    ensure!(read_exactly(&mut stream, 5)? == b"hello");
    expect(site, "udp", PACKETS, "open")?;
    let (answer, own) = ask(site, SIDES[0].1, (GATEWAY_WAN, PACKETS).into())?;
    ensure!(answer == Some(format!("{own} hello")), "{answer:?}");
    Ok(())
}

fn no_packets(site: &Site) -> Result<()> {
    let (answer, _) = ask(site, SIDES[0].1, (GATEWAY_WAN, PACKETS).into())?;
    ensure!(answer.is_none(), "{answer:?}");
    Ok(())
}

fn withdraw(site: &Site) -> Result<()> {
    let mut stream = connect(site, (GATEWAY_WAN, ECHO).into())?;
    stream.write_all(b"hello")?;
    ensure!(read_exactly(&mut stream, 5)? == b"hello");
    let known = site.topology.web().enter(|| UdpSocket::bind((WEB, 0)))??;
    known.connect((GATEWAY_WAN, PACKETS))?;
    known.set_read_timeout(Some(Duration::from_secs(1)))?;
    known.send(b"hello")?;
    let mut buffer = [0; 100];
    known.recv(&mut buffer).context("a packet crosses")?;

    let file = site.topology.directory().join("server.toml");
    edit(&file, GRANTS, "publish = [\"tcp/8443\"]")?;
    reload(site, "reloaded")?;
    let reason = expect(site, "tcp", ECHO, "refused")?;
    ensure!(reason.contains("not permitted"), "{reason}");
    read_to_reset(&mut stream).context("the connection that was open")?;
    is_closed(site, ECHO)?;
    expect(site, "udp", PACKETS, "refused")?;
    // Not even what the kernel knows already.
    let _ = known.send(b"hello");
    ensure!(known.recv(&mut buffer).is_err(), "a packet still crosses");
    edit(&file, "publish = [\"tcp/8443\"]", GRANTS)?;
    reload(site, "reloaded")
}

/// A port that somebody else has is the client's when it is free.
fn in_use(site: &mut Site) -> Result<()> {
    let gateway = site.topology.gateway();
    let other = gateway.enter(|| listen((GATEWAY_WAN, ECHO).into()))??;
    site.start_client()?;
    let reason = expect(site, "tcp", ECHO, "refused")?;
    ensure!(reason.contains("in use"), "{reason}");
    drop(other);
    Ok(())
}

/// Who publishes and takes nothing in needs no front end, no privileges and no rules of the kernel's.
#[test]
fn a_client_may_publish_and_do_nothing_else() {
    if !privileged("publish: alone") {
        return;
    }
    let mut alone = config();
    alone.client_tables = format!("[[publish]]\nport = {ECHO}\nto = \"{USER}:{HOST_ECHO}\"\n");
    alone.unprivileged = true;
    let mut site = Site::start(alone).expect("a site");
    let result = nothing_else(&mut site);
    result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

fn nothing_else(site: &mut Site) -> Result<()> {
    let _services = services(site)?;
    let talk = |site: &Site| {
        expect(site, "tcp", ECHO, "open")?;
        for (server, _) in SIDES {
            let mut stream = connect(site, (server, ECHO).into())?;
            let said = payload(100_000);
            stream.write_all(&said)?;
            stream.shutdown(Shutdown::Write)?;
            let heard = read_to_eof(&mut stream)?;
            ensure!(heard == said, "{} bytes came back by {server}", heard.len());
        }
        Ok(())
    };
    talk(site)?;
    let tables = site.topology.terminal().run("nft", &["list", "tables"])?;
    ensure!(!tables.contains("bentpipe"), "{tables}");
    site.kill_server()?;
    site.start_server()?;
    expect_within(site, "tcp", ECHO, "open", NOTICED)
        .and_then(|_| talk(site))
        .context("the server was killed and started")?;
    site.stop_client()
}
