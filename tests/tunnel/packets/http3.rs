//! HTTP/3 of a LAN host: through the tunnel as packets with `http3 = "tunnel"`, else refused so soon that TCP takes its place.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::{host, host6};
use bentpipe_lab::workload::{Authority, Digest, Expected, HTTPS_PORT, Hosts, Object, Web, run_in};
use bentpipe_sys::datagram::{self, Queue};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::{expect_tunnel_alone, privileged};
use bytes::Buf as _;
use hyper::{Request, Response};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime};
use rustls::ClientConfig as Tls;
use serde_json::Value;
use tempfile::TempDir;

use super::{assigned, near_site, status};
use crate::BENTPIPE;

/// What HTTP/3 calls itself to TLS (RFC 9114).
const HTTP3: &[u8] = b"h3";

/// The two hosts that are asked, one of each family; they are the first of the topology's.
const HOSTS: [IpAddr; 2] = [IpAddr::V4(host(0)), IpAddr::V6(host6(1))];

/// Bytes of one download.
const LENGTH: u64 = 4_000_000;

/// What one download is given.
const ENOUGH: Duration = Duration::from_secs(60);

/// Less than the round-trip time of `geo`: what is known so soon was not asked beyond the link.
const WITHOUT_THE_LINK: Duration = Duration::from_millis(400);

/// A host's name and address, and something that is there.
type File<'a> = (&'a str, SocketAddr, Expected);

/// The web with an authority of its own, over TCP and over QUIC.
struct Servers {
    hosts: Hosts,
    authority: Authority,
    directory: TempDir,
    _over_tcp: Web,
    _over_quic: Server,
}

impl Servers {
    fn start(web: &NetNs) -> Result<Self> {
        let (hosts, authority) = (Hosts::of_topology(2), Authority::new()?);
        let directory = TempDir::new()?;
        std::fs::write(directory.path().join("authority.pem"), authority.pem())?;
        Ok(Self {
            directory,
            _over_tcp: Web::start(web, &hosts, &authority)?,
            _over_quic: Server::start(web, &hosts, &authority)?,
            hosts,
            authority,
        })
    }

    fn files(&self) -> impl Iterator<Item = File<'_>> {
        self.hosts.iter().zip(1..).map(|((name, address), seed)| {
            let object = Object::from_path(&format!("/object/{seed}/{LENGTH}"));
            let expected = object.expect("a path of an object").into();
            (name, SocketAddr::new(address, HTTPS_PORT), expected)
        })
    }

    fn tls(&self) -> Result<Tls> {
        let mut tls = Arc::unwrap_or_clone(self.authority.client_config()?);
        tls.alpn_protocols = vec![HTTP3.to_vec()];
        Ok(tls)
    }
}

/// An HTTP/3 server of objects at both of [`HOSTS`], until it is dropped.
struct Server {
    stop: Stop,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Server {
    fn start(web: &NetNs, hosts: &Hosts, authority: &Authority) -> Result<Self> {
        let names = hosts.names();
        let tls = authority.server_config(names.iter().map(String::as_str))?;
        let mut tls = Arc::unwrap_or_clone(tls);
        tls.alpn_protocols = vec![HTTP3.to_vec()];
        let crypto = QuicServerConfig::try_from(tls)?;
        let config = ServerConfig::with_crypto(Arc::new(crypto));
        let bind = |address| Ok(web.enter(|| UdpSocket::bind((address, HTTPS_PORT)))??);
        let sockets = HOSTS.into_iter().map(bind).collect::<Result<Vec<_>>>()?;
        let stop = Stop::new()?;
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build()?;
            runtime.block_on(async {
                for socket in sockets {
                    let quic = EndpointConfig::default();
                    let config = Some(config.clone());
                    let endpoint = Endpoint::new(quic, config, socket, Arc::new(TokioRuntime))?;
                    tokio::spawn(accept(endpoint));
                }
                Ok(stopped.stopped().await?)
            })
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        // How a connection ends is for its other end to judge.
        tokio::spawn(serve(incoming));
    }
}

async fn serve(incoming: Incoming) -> Result<()> {
    let quic = h3_quinn::Connection::new(incoming.await?);
    let mut connection = h3::server::Connection::new(quic).await?;
    while let Some(resolver) = connection.accept().await? {
        let (request, mut stream) = resolver.resolve_request().await?;
        let object = Object::from_path(request.uri().path()).context("no object")?;
        stream.send_response(Response::new(())).await?;
        for chunk in object.chunks() {
            stream.send_data(chunk).await?;
        }
        stream.finish().await?;
    }
    Ok(())
}

/// Fetches `expected` from `to` over HTTP/3, or is told by ICMP that nobody is there. Browsers have the kernel tell them too.
async fn fetch(name: &str, to: SocketAddr, expected: &Expected, tls: Tls) -> Result<()> {
    let socket = datagram::open_udp(to.is_ipv6())?;
    let told = told(socket.try_clone()?);
    tokio::select! {
        fetched = fetch_from(socket, name, to, expected, tls) => fetched,
        told = told => told,
    }
}

/// Fails with what ICMP says about what `socket` has sent. quinn's own sockets pass over that.
async fn told(socket: UdpSocket) -> Result<()> {
    let mut buffer = [0; 2048];
    loop {
        if let Ok(received) = datagram::receive(&socket, Queue::Failures, &mut buffer)
            && let Some(failure) = received.failure
            && let Some(from) = failure.from
        {
            bail!("{from} says {:?}", failure.said);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn fetch_from(
    socket: UdpSocket,
    name: &str,
    to: SocketAddr,
    expected: &Expected,
    tls: Tls,
) -> Result<()> {
    let quic = EndpointConfig::default();
    let mut endpoint = Endpoint::new(quic, None, socket, Arc::new(TokioRuntime))?;
    let crypto = QuicClientConfig::try_from(tls)?;
    endpoint.set_default_client_config(ClientConfig::new(Arc::new(crypto)));
    let connection = endpoint.connect(to, name)?.await.context("QUIC")?;
    let (mut driver, mut sender) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    tokio::spawn(async move { driver.wait_idle().await });
    let uri = format!("https://{name}{}", expected.object.path());
    let request = Request::get(uri).body(())?;
    let mut stream = sender.send_request(request).await?;
    stream.finish().await?;
    let response = stream.recv_response().await?;
    ensure!(response.status().is_success(), "{}", response.status());
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await? {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    ensure!(Digest::of(&body) == expected.digest, "{} bytes", body.len());
    Ok(())
}

/// Fetches each of the files over HTTP/3, and tells how long that took or how it failed.
fn over_http3(user: &NetNs, servers: &Servers) -> Result<Vec<(Duration, Result<()>)>> {
    let stop = Stop::new()?;
    let each = servers.files().map(|(name, to, expected)| {
        let tls = servers.tls()?;
        let start = Instant::now();
        let fetched = run_in(user, &stop, ENOUGH, || fetch(name, to, &expected, tls));
        let fetched = fetched.with_context(|| format!("HTTP/3 from {to}"));
        Ok((start.elapsed(), fetched))
    });
    each.collect()
}

/// Fetches `expected` over TCP and TLS, as whoever was refused HTTP/3.
fn over_tcp(user: &NetNs, servers: &Servers, (name, to, expected): File<'_>) -> Result<()> {
    let authority = servers.directory.path().join("authority.pem");
    let body = servers.directory.path().join("body");
    let resolve = format!("{name}:{}:{}", to.port(), to.ip());
    let url = format!("https://{name}{}", expected.object.path());
    let mut curl = user.command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--cacert"]);
    curl.arg(&authority)
        .args(["--resolve", &resolve, "--output"]);
    let status = curl.arg(&body).arg(url).status()?;
    ensure!(status.success(), "curl: {status}");
    let body = std::fs::read(&body)?;
    ensure!(Digest::of(&body) == expected.digest, "{} bytes", body.len());
    Ok(())
}

/// Packets and bytes that came out of the tunnel at the client, and packets that went into it.
fn crossed(site: &Site) -> (u64, u64, u64) {
    let status: Value = serde_json::from_str(&status(site, "client")).expect("a report");
    let field = |name: &str| {
        let value = status["packets"][name].as_u64();
        value.unwrap_or_else(|| panic!("no {name} in {status}"))
    };
    (field("received"), field("received_bytes"), field("sent"))
}

#[test]
fn http3_is_carried_as_packets_if_it_may_be() {
    if !privileged("packets: HTTP/3 in the tunnel") {
        return;
    }
    let site = near_site("http3 = \"tunnel\"\n");
    let servers = Servers::start(site.topology.web()).expect("servers");
    let capture = site.watch().expect("a capture");
    let before = crossed(&site);
    let fetched = over_http3(site.topology.user(), &servers).expect("an HTTP/3 client");
    for ((took, result), host) in fetched.into_iter().zip(HOSTS) {
        println!("{LENGTH} bytes over HTTP/3 from {host}: {took:?}");
        result.unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
    }
    let after = crossed(&site);
    // All of it, in packets of which none is larger than an Ethernet's.
    let bytes = 2 * LENGTH;
    assert!(after.1 - before.1 > bytes, "{before:?} {after:?}");
    assert!(after.0 - before.0 > bytes / 1500, "{before:?} {after:?}");
    // And what the user acknowledged it with.
    assert!(after.2 - before.2 > 100, "{before:?} {after:?}");
    expect_tunnel_alone(capture).expect("the tunnel alone");
}

#[test]
fn http3_is_refused_before_it_costs_a_round_trip_and_tcp_takes_its_place() {
    if !privileged("packets: HTTP/3 refused") {
        return;
    }
    let site = Site::start(SiteConfig::new(BENTPIPE)).expect("a site");
    assigned(&site);
    let servers = Servers::start(site.topology.web()).expect("servers");
    let capture = site.watch().expect("a capture");
    let before = crossed(&site);
    let user = site.topology.user();
    let refused = over_http3(user, &servers).expect("an HTTP/3 client");
    // "Port unreachable", from the terminal.
    let said = ["10.10.0.1 says (3, 3)", "fd00:10::1 says (1, 4)"];
    for ((file, (took, result)), said) in servers.files().zip(refused).zip(said) {
        let error = format!("{:#}", result.expect_err("HTTP/3 is refused"));
        println!("refused after {took:?}: {error}");
        assert!(error.ends_with(said) && took < WITHOUT_THE_LINK, "{error}");
        over_tcp(user, &servers, file).expect("TCP takes its place");
    }
    let after = crossed(&site);
    // Whoever had been asked as packets would have answered. What a kernel says of its own accord is not answered.
    assert_eq!(after.0, before.0, "{before:?} {after:?}");
    expect_tunnel_alone(capture).expect("the tunnel alone");
}
