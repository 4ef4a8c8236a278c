//! What a client may reach: denied by default, opened by `allow`, narrowed by `only`; by address and by name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use anyhow::{Result, ensure};
use bentpipe_lab::topology::{WEB, WEB6, host};

use crate::common::edit::edit;
use crate::common::peer::{Service, echo};
use crate::common::proxy::{Answer, Proxy, SOCKS5};
use crate::common::reload::reload;
use crate::common::route::Place;
use crate::common::site::{Site, SiteConfig};
use crate::on_site;

const PORT: u16 = 7001;

/// What SOCKS5 calls it (RFC 1928, section 6).
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;

/// Public addresses: of the web's, and of the server's own.
const PUBLIC: &str = "9.9.9.9";
const OWN: [&str; 2] = ["8.8.4.4", "2600:1::1"];

/// Known to the server alone.
const HOSTS: &str = "10.30.0.2 web.example\n127.0.0.1 inside.example\n10.20.0.1 own.example\n10.10.0.2 lan.example\n\
                     127.0.0.1 mixed.example\n10.30.0.2 mixed.example\n::1 inside6.example\n";

/// Nobody may reach these without being allowed to, and the server's own not even then.
const DENIED: [&str; 27] = [
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
        ..SiteConfig::default()
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
        reload(site, "reloaded: 1 clients")?;
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
            "only = [\"10.30.0.10\", \"fd00:30::/64\", \"10.20.0.0/16\", \"127.0.0.0/8\"]\nallow = [",
        )?;
        site.start_server()?;
        site.start_client()?;
        let _services = listen_everywhere(site)?;
        let (first, web, web6) = (host(0).to_string(), WEB.to_string(), WEB6.to_string());
        expect(
            site,
            &[
                (&first, SUCCEEDED),
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
