//! What a client may reach: denied by default, opened by `allow`, narrowed by `only`; by address and by name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{WEB, WEB6, host};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::peer::{Service, echo};
use bentpipe_testbed::proxy::{Answer, Proxy, SOCKS5};
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig};
use serde_json::Value;

use crate::BENTPIPE;
use crate::{SOON, on_site};

const PORT: u16 = 7001;

/// What SOCKS5 calls it (RFC 1928, section 6).
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const FAMILY: u8 = 8;

/// Public addresses: of the web's, and of the server's own.
const PUBLIC: &str = "9.9.9.9";
const OWN: [&str; 2] = ["8.8.4.4", "2600:1::1"];

/// Known to the server alone.
const HOSTS: &str = "10.30.0.2 web.example\n127.0.0.1 inside.example\n10.20.0.1 own.example\n10.10.0.2 lan.example\n\
                     127.0.0.1 mixed.example\n10.30.0.2 mixed.example\n::1 inside6.example\n";

/// Nobody may reach these without being allowed to, and the server's own not even then.
const DENIED: [&str; 28] = [
    "127.0.0.1",
    "127.1.2.3",
    "0.0.0.0",
    "0.1.2.3",
    // The server's own, the second within `allow`.
    "10.20.0.1",
    "10.30.0.1",
    "fd00:20::1",
    "fd00:30::1",
    OWN[0],
    OWN[1],
    // The terminal, the user, a private host.
    "10.20.0.2",
    "10.10.0.2",
    "192.168.0.1",
    "fd00:10::2",
    "169.254.169.254",
    // Public, and a cloud's.
    "168.63.129.16",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "ff02::1",
    // IPv4 in disguise: loopback, and one that is allowed under its own name.
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::1",
    "inside.example",
    "inside6.example",
];

fn config() -> SiteConfig {
    SiteConfig {
        // The answer is the server's own.
        client_tables: format!("[socks5]\nlisten = \"{SOCKS5}\"\n[[rule]]\noptimistic = false\n"),
        server_hosts: Some(HOSTS.into()),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// Every one of `targets` is answered as said.
fn expect(site: &Site, targets: &[(&str, u8)]) -> Result<()> {
    let answers = thread::scope(|scope| {
        let asked: Vec<_> = targets
            .iter()
            .map(|(target, _)| scope.spawn(move || Proxy::Socks5.connect(site, target, PORT)))
            .collect();
        let answers = asked
            .into_iter()
            .map(|thread| thread.join().expect("an answer"));
        answers.collect::<Result<Vec<_>>>()
    })?;
    let mut wrong = String::new();
    for ((target, expected), (_, answer)) in targets.iter().zip(answers) {
        if answer != Answer::Code(*expected) {
            wrong += &format!("\n{target}: {answer:?} instead of {expected}");
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    Ok(())
}

/// Waits until both ends have counted as many connections that were refused for this cause.
fn counts(site: &Site, cause: &str, expected: u64) -> Result<()> {
    type Report = fn(&Site) -> Result<Value>;
    let ends: [(Report, &str); 2] = [
        (Site::client_report, "/flows/refused"),
        (Site::server_report, "/clients/0/flows/refused"),
    ];
    for (report, at) in ends {
        let deadline = Instant::now() + SOON;
        loop {
            let report = report(site)?;
            let counted = report.pointer(at).and_then(|causes| causes[cause].as_u64());
            if counted == Some(expected) {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "{at}: {counted:?} instead of {expected}: {report}"
            );
            thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

/// Servers on every address of every namespace: what is refused is refused by the policy.
fn listen_everywhere(site: &Site) -> Result<Vec<Service>> {
    let gateway = site.topology.gateway();
    for own in OWN {
        gateway.run("ip", &["addr", "add", own, "dev", "lo"])?;
    }
    gateway.run("ip", &["route", "add", PUBLIC, "via", &WEB.to_string()])?;
    let web = site.topology.web();
    web.run("ip", &["addr", "add", PUBLIC, "dev", "lo"])?;
    let anywhere: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let mut services = Vec::new();
    for netns in [gateway, site.topology.terminal(), site.topology.user()] {
        // IPv6 sockets of the standard library take IPv4 as well.
        services.push(Service::start(
            &Place::from(netns),
            SocketAddr::new(anywhere[1], PORT),
            echo,
        )?);
    }
    services.push(Service::start(
        &Place::from(web),
        SocketAddr::new(anywhere[1], PORT),
        echo,
    )?);
    Ok(services)
}

#[test]
fn what_is_not_public_is_denied_until_it_is_allowed() {
    on_site("policy", config(), |site| {
        site.start_server()?;
        site.start_client()?;
        let services = listen_everywhere(site)?;
        let denied: Vec<_> = DENIED.iter().map(|target| (*target, NOT_ALLOWED)).collect();
        expect(site, &denied)?;
        let (web, web6) = (WEB.to_string(), WEB6.to_string());
        let open = [&*web, &web6, PUBLIC, "web.example", "mixed.example"];
        expect(site, &open.map(|target| (target, SUCCEEDED)))?;
        // Named once, with the mend, however often it was asked for; and counted at both ends.
        let again = [("192.168.0.1", NOT_ALLOWED), ("10.30.0.1", NOT_ALLOWED)];
        expect(site, &again)?;
        let log = site.server().stderr_text();
        for line in [
            "192.168.0.1 is denied: not public; name it in allow of [[client]] terminal-1",
            "10.30.0.1 is denied: an address of this server; name it alone in allow of [[client]] terminal-1",
        ] {
            let named = log.matches(line).count();
            ensure!(named == 1, "named {named} times: {line}");
        }
        let all = (DENIED.len() + again.len()) as u64;
        counts(site, "denied", all)?;
        let (others, web) = services.split_at(3);
        let reached: usize = others.iter().map(Service::accepted).sum();
        ensure!(reached == 0, "{reached} connections to denied addresses");
        ensure!(
            web[0].accepted() == open.len(),
            "not every connection reached the web"
        );

        // Without `allow` the web is as closed as any private network; the tunnel stays.
        let allow = "allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n";
        edit(&site.server_file(), allow, "")?;
        reload(site, "reloaded: ")?;
        let closed = [&*WEB.to_string(), &web6, "web.example", "mixed.example"];
        expect(site, &closed.map(|target| (target, NOT_ALLOWED)))?;
        expect(site, &[(PUBLIC, SUCCEEDED)])
    });
}

#[test]
fn only_narrows_what_is_open() {
    on_site("only", config(), |site| {
        let allow = "allow = [";
        edit(
            &site.server_file(),
            allow,
            "only = [\"10.30.0.10\", \"10.30.0.11:22,7000-7001\", \"10.30.0.12:7002\", \"[fd00:30::/64]:7001\", \"10.20.0.0/16\", \"127.0.0.0/8\"]\nallow = [",
        )?;
        site.start_server()?;
        site.start_client()?;
        let _services = listen_everywhere(site)?;
        let (first, web, web6) = (host(0).to_string(), WEB.to_string(), WEB6.to_string());
        expect(
            site,
            &[
                (&first, SUCCEEDED),
                (&host(1).to_string(), SUCCEEDED),
                // Its other port.
                (&host(2).to_string(), NOT_ALLOWED),
                (&web6, SUCCEEDED),
                (&web, NOT_ALLOWED),
                (PUBLIC, NOT_ALLOWED),
                ("web.example", NOT_ALLOWED),
                // `only` opens nothing.
                ("10.20.0.2", NOT_ALLOWED),
                ("10.20.0.1", NOT_ALLOWED),
                ("127.0.0.1", NOT_ALLOWED),
                ("inside.example", NOT_ALLOWED),
            ],
        )
    });
}

/// Whose an address is cannot be found out by binding to it when all ports are in use. The server's own stay closed.
#[test]
fn own_addresses_stay_closed_without_ports() {
    on_site("no ports", config(), |site| {
        site.start_server()?;
        site.start_client()?;
        let _services = listen_everywhere(site)?;
        let gateway = site.topology.gateway();
        gateway.run(
            "sysctl",
            &["-qw", "net.ipv4.ip_local_port_range=40000 40003"],
        )?;
        let taken = gateway.enter(|| {
            let v6 = (40_000..40_004).map(|port| UdpSocket::bind(("::", port)));
            let v4 = (40_000..40_004).map(|port| UdpSocket::bind(("0.0.0.0", port)));
            v6.chain(v4).filter_map(Result::ok).collect::<Vec<_>>()
        })?;
        let free = gateway.enter(|| UdpSocket::bind(("10.30.0.1", 0)))?;
        ensure!(free.is_err(), "a port is left");
        let web = WEB.to_string();
        for _ in 0..3 {
            expect(
                site,
                &[("10.30.0.1", NOT_ALLOWED), ("fd00:30::1", NOT_ALLOWED)],
            )?;
        }
        expect(site, &[(&web, SUCCEEDED)])?;
        drop(taken);
        // An address counts from the moment it is there.
        gateway.run("ip", &["addr", "add", "10.30.0.77/32", "dev", "lo"])?;
        expect(site, &[("10.30.0.77", NOT_ALLOWED)])
    });
}

/// A server that was there before its routes: what they lead to is refused until they come, and then it is not.
#[test]
fn a_family_is_carried_once_there_is_a_route() {
    on_site("late route", config(), |site| {
        let allow = "allow = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n";
        edit(&site.server_file(), allow, "allow = [\"10.30.0.0/24\"]\n")?;
        let gateway = site.topology.gateway();
        gateway.run("ip", &["-6", "route", "del", "default"])?;
        site.start_server()?;
        site.start_client()?;
        let late = "2600:9::9";
        let web = site.topology.web();
        web.run("ip", &["addr", "add", late, "dev", "lo"])?;
        let service = SocketAddr::new(late.parse()?, PORT);
        let _service = Service::start(&Place::from(web), service, echo)?;
        site.server()
            .wait_for_line("no IPv6 route: IPv6 of clients is refused", SOON)?;
        expect(site, &[(late, FAMILY)])?;
        let gateway = site.topology.gateway();
        gateway.run(
            "ip",
            &[
                "-6",
                "route",
                "replace",
                "default",
                "via",
                &WEB6.to_string(),
            ],
        )?;
        site.server()
            .wait_for_line("IPv6 of clients is carried", SOON)?;
        site.client()
            .wait_for_line("the server reaches IPv4 and IPv6", SOON)?;
        expect(site, &[(late, SUCCEEDED)])?;
        gateway.run("ip", &["-6", "route", "del", "default"])?;
        site.client()
            .wait_for_line("the server reaches IPv4 only", SOON)?;
        expect(site, &[(late, FAMILY)])
    });
}
