//! HTTP/3 of a LAN host: through the tunnel as packets with `http3 = "tunnel"`, else refused so soon that TCP takes its place.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::Stop;
use bentpipe_emulator::topology::{host, host6};
use bentpipe_lab::workload::{
    Authority, Digest, Expected, HTTPS_PORT, Hosts, Object, Web, get_by_http3, run_in,
};
use bentpipe_sys::netns::NetNs;
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::{expect_tunnel_alone, privileged};
use tempfile::TempDir;

use super::{assigned, near_site};
use crate::BENTPIPE;

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

/// The web with an authority of its own.
struct Servers {
    hosts: Hosts,
    authority: Authority,
    directory: TempDir,
    _web: Web,
}

impl Servers {
    fn start(web: &NetNs) -> Result<Self> {
        let (hosts, authority) = (Hosts::of_topology(2), Authority::new()?);
        let directory = TempDir::new()?;
        std::fs::write(directory.path().join("authority.pem"), authority.pem())?;
        Ok(Self {
            directory,
            _web: Web::start(web, &hosts, &authority)?,
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
}

/// Fetches each of the files over HTTP/3, and tells how long that took or how it failed.
fn over_http3(user: &NetNs, servers: &Servers) -> Result<Vec<(Duration, Result<()>)>> {
    let stop = Stop::new()?;
    let each = servers.files().map(|(name, to, expected)| {
        let tls = servers.authority.http3_client_config()?;
        let start = Instant::now();
        let fetch = || get_by_http3(to, name, &expected, &tls);
        let fetched = run_in(user, &stop, ENOUGH, fetch).map(drop);
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
    let report = site.client_report().expect("a report");
    let field = |name: &str| {
        let value = report["packets"][name].as_u64();
        value.unwrap_or_else(|| panic!("no {name} in {report}"))
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
