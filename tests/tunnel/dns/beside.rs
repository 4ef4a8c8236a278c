//! Beside another name server on the router: neither takes the other's port or its names, whichever starts first.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bentpipe_emulator::topology::{TERMINAL_LAN, WEB};
use bentpipe_testbed::expect_tunnel_alone;
use bentpipe_testbed::privileged;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};

use super::resolver::{Resolver, TRUE, question_end};
use super::{query, verdict, web};
use crate::BENTPIPE;

/// What the router's name server says of every name.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 9);

/// A name server on the router, bound as CoreDNS and AdGuard Home are: without SO_REUSEADDR.
struct NameServer(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl NameServer {
    fn start(place: &Place, address: &str) -> io::Result<Self> {
        let bound = place.at(|| UdpSocket::bind(address)).expect("the place");
        let socket = bound?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let listener = place
            .at(|| TcpListener::bind(address))
            .expect("the place")?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let by_tcp = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => drop(answer_by_tcp(stream)),
                    Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
        });
        let stopped = stop.clone();
        let by_udp = thread::spawn(move || {
            let mut buffer = [0; 1024];
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((n, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&answer(&buffer[..n]), from);
                }
            }
        });
        Ok(Self(stop, vec![by_tcp, by_udp]))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        // They close its sockets.
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

fn answer(query: &[u8]) -> Vec<u8> {
    let mut bytes = query[..question_end(query)].to_vec();
    (bytes[2], bytes[3]) = (0x81, 0x80);
    bytes[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
    bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    bytes.extend(NEAR.octets());
    bytes
}

/// Answers one question, in the form of RFC 1035 §4.2.2.
fn answer_by_tcp(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let answer = answer(&read_by_tcp(&mut stream)?);
    write_by_tcp(&mut stream, &answer)
}

fn read_by_tcp(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn write_by_tcp(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).expect("a short message");
    stream.write_all(&[&length.to_be_bytes()[..], message].concat())
}

/// [`ask`] by TCP.
fn ask_by_tcp(site: &Site, server: IpAddr, name: &str) -> (u8, Option<Ipv4Addr>) {
    let user: Place = site.topology.user().into();
    let asked = || {
        let address = SocketAddr::new(server, 53);
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(8))?;
        stream.set_read_timeout(Some(Duration::from_secs(8)))?;
        write_by_tcp(&mut stream, &query(name))?;
        read_by_tcp(&mut stream)
    };
    let bytes = user.at(asked).expect("the place");
    let bytes =
        bytes.unwrap_or_else(|error| panic!("{name} of {server} by TCP: {error}\n{}", site.logs()));
    verdict(&bytes)
}

/// A host of the LAN asks `server`: response code and address.
fn ask(site: &Site, server: IpAddr, name: &str) -> (u8, Option<Ipv4Addr>) {
    let bytes = asked(site, server, name);
    let bytes =
        bytes.unwrap_or_else(|error| panic!("{name} of {server}: {error}\n{}", site.logs()));
    verdict(&bytes)
}

fn asked(site: &Site, server: IpAddr, name: &str) -> io::Result<Vec<u8>> {
    let user: Place = site.topology.user().into();
    let socket = user.at(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(SocketAddr::new(server, 53))?;
        socket.set_read_timeout(Some(Duration::from_secs(8)))?;
        Ok::<_, io::Error>(socket)
    });
    let socket = socket.expect("the place")?;
    socket.send(&query(name))?;
    let mut buffer = [0; 1024];
    let n = socket.recv(&mut buffer)?;
    Ok(buffer[..n].to_vec())
}

pub(crate) fn plain(dns: &str) -> Site {
    Site::plain(SiteConfig {
        server_tables: format!("[dns]\nservers = \"{WEB}\"\n"),
        client_tables: format!("[intercept]\ninterfaces = [\"lan0\"]\n[dns]\n{dns}\n"),
        ..SiteConfig::new(BENTPIPE)
    })
    .expect("a site")
}

const ROUTER: IpAddr = IpAddr::V4(TERMINAL_LAN);
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 53));

#[test]
fn a_name_server_on_the_wildcard_address_may_start_before_and_after() {
    if !privileged("dns: beside others") {
        return;
    }
    let mut site = plain("");
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let terminal: Place = site.topology.terminal().into();
    site.start_server().expect("a server");
    let before = NameServer::start(&terminal, "0.0.0.0:53").expect("a name server");
    site.start_client().expect("a client");
    let capture = site.watch().expect("a capture");
    let both = |site: &Site, when: &str| {
        for server in [ROUTER, FAR] {
            let name = format!("{when}.example");
            assert_eq!(ask(site, server, &name), (0, Some(TRUE)), "{server} {when}");
        }
        // What the site alone knows: from who knows it, and it never crosses.
        assert_eq!(
            ask(site, ROUTER, &format!("{when}.lan")),
            (0, Some(NEAR)),
            "{when}"
        );
    };
    both(&site, "before");
    drop(before);
    assert_eq!(ask(&site, ROUTER, "between.example"), (0, Some(TRUE)));
    // While answers are on their way: their port is nobody's.
    let user: Place = site.topology.user().into();
    let busy = user
        .at(|| UdpSocket::bind("0.0.0.0:0"))
        .expect("the place")
        .expect("a socket");
    for number in 0..100 {
        let question = query(&format!("busy-{number}.example"));
        busy.send_to(&question, SocketAddr::new(FAR, 53))
            .expect("sent");
    }
    thread::sleep(Duration::from_millis(500));
    let _after = NameServer::start(&terminal, "0.0.0.0:53").expect("the port is free");
    both(&site, "after");
    expect_tunnel_alone(capture).expect("no DNS in clear");
}

#[test]
fn a_name_server_on_the_routers_own_address_keeps_what_it_is_asked() {
    if !privileged("dns: beside others on the address") {
        return;
    }
    let mut site = plain("");
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let terminal: Place = site.topology.terminal().into();
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    let own = format!("{TERMINAL_LAN}:53");
    let near = NameServer::start(&terminal, &own).expect("the port is free");
    for asks in [ask, ask_by_tcp] {
        assert_eq!(asks(&site, ROUTER, "a.example"), (0, Some(NEAR)));
        assert_eq!(asks(&site, FAR, "a.example"), (0, Some(TRUE)));
    }
    drop(near);
    for asks in [ask, ask_by_tcp] {
        assert_eq!(asks(&site, ROUTER, "b.example"), (0, Some(TRUE)));
    }
}

/// Our own listener, on the router's address or on all, is asked by both families and by both protocols.
#[test]
fn our_own_listener_on_the_routers_address_answers_both_ways() {
    if !privileged("dns: own listener") {
        return;
    }
    for listen in ["10.10.0.1:53", "[::]:53"] {
        let mut site = plain(&format!("listen = \"{listen}\""));
        let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
        site.start_server().expect("a server");
        site.start_client().expect("a client");
        for asks in [ask, ask_by_tcp] {
            assert_eq!(
                asks(&site, ROUTER, "a.example"),
                (0, Some(TRUE)),
                "{listen}"
            );
        }
    }
}

#[test]
fn zones_go_to_their_name_server_and_answers_leave_from_our_own_listener() {
    if !privileged("dns: zones") {
        return;
    }
    let zones = "listen = \"0.0.0.0:53\"\nzones = { \"lan\" = \"127.0.0.1:5399\", \"dead.lan\" = \"127.0.0.1:5398\", \"1.10.in-addr.arpa\" = \"127.0.0.1:5399\" }";
    let mut site = plain(zones);
    let resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    let terminal: Place = site.topology.terminal().into();
    let _near = NameServer::start(&terminal, "127.0.0.1:5399").expect("a name server");
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    // With our own listener on the same port as the places that answers come from.
    for server in [ROUTER, FAR] {
        assert_eq!(ask(&site, server, "a.example"), (0, Some(TRUE)), "{server}");
        assert_eq!(ask(&site, server, "nas.lan"), (0, Some(NEAR)), "{server}");
        assert_eq!(
            ask(&site, server, "7.0.1.10.in-addr.arpa"),
            (0, Some(NEAR)),
            "{server}"
        );
        let before = resolver.asked();
        assert_eq!(ask(&site, server, "x.dead.lan").0, 2, "{server}");
        assert_eq!(resolver.asked(), before, "it does not cross");
    }
}

/// `rebind…` are names of the resolver's with the router's own address.
#[test]
fn public_names_do_not_lead_to_the_router() {
    if !privileged("dns: rebinding") {
        return;
    }
    let mut site = plain("rebind_ok = [\"corp.example\"]");
    let _resolver = Resolver::start(&site.topology.web().into(), web()).expect("a resolver");
    site.start_server().expect("a server");
    site.start_client().expect("a client");
    let answer = asked(&site, FAR, "rebind.example").expect("an answer");
    assert_eq!((verdict(&answer), &answer[6..8]), ((0, None), &[0, 0][..]));
    let text = b"rebind_ok";
    assert!(
        answer.windows(text.len()).any(|part| part == text),
        "it says why"
    );
    assert_eq!(
        ask(&site, FAR, "rebind.corp.example"),
        (0, Some(TERMINAL_LAN))
    );
    // A private address that the server lets its client reach is a host behind the server.
    let behind = ask(&site, FAR, "host0.example").1.expect("an address");
    assert!(behind.is_private(), "{behind}");
}
