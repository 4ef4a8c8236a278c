//! What one client may use of the server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{USER, WEB, WEB6};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::keys;
use bentpipe_testbed::peer::{Service, echo, endless, read_exactly};
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::{Place, Route};
use bentpipe_testbed::site::{Site, SiteConfig, with_config};
use rustix::process::Signal;

use crate::BENTPIPE;
use crate::{RTT, SLACK, SOON, on_site};

fn exchange(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"there?")?;
    let heard = read_exactly(stream, 6)?;
    ensure!(heard == b"there?", "heard something else");
    Ok(())
}

#[test]
fn a_client_has_no_more_flows_than_it_may() {
    on_site("flow limit", SiteConfig::new(BENTPIPE), |site| {
        // The tunnel announces the highest limit of all clients: this one's own must hold all the same.
        let other = keys::generate(BENTPIPE, &site.topology.directory().join("other.key"))?;
        let file = site.server_file();
        edit(
            &file,
            "name = \"terminal-1\"",
            &format!(
                "name = \"terminal-2\"\npublic_key = \"{other}\"\nmax_flows = 100\n\
                 [[client]]\nname = \"terminal-1\"\nmax_flows = 3"
            ),
        )?;
        site.start_server()?;
        site.start_client()?;
        let web = SocketAddr::new(WEB.into(), 0);
        let web = Service::start(&site.topology.web().into(), web, echo)?;
        let [route, _] = site.routes();
        let mut flows = Vec::new();
        for _ in 0..3 {
            let mut flow = route.connect(web.address)?;
            exchange(&mut flow)?;
            flows.push(flow);
        }
        let asked = Instant::now();
        let mut surplus = route.connect(web.address)?;
        let end = surplus.read(&mut [0]);
        let after = asked.elapsed();
        ensure!(
            end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset),
            "a fourth flow is not reset"
        );
        ensure!(after <= RTT + SLACK, "reset after {after:?}");
        ensure!(web.accepted() == 3, "a fourth flow reached the web");
        for flow in &mut flows {
            exchange(flow)?;
        }
        // One that has ended makes room.
        drop(flows.pop());
        let deadline = Instant::now() + SOON;
        loop {
            let mut next = route.connect(web.address)?;
            match exchange(&mut next) {
                Ok(()) => return Ok(()),
                Err(error) => ensure!(Instant::now() < deadline, "no room was made: {error:#}"),
            }
            thread::sleep(Duration::from_millis(200));
        }
    });
}

/// How many of `number` connections that are opened at once are carried.
fn carried(site: &Site, web: SocketAddr, number: usize) -> usize {
    let [route, _] = site.routes();
    opened_at_once(&route, web, number).len()
}

/// Those of `number` connections, all opened at once, that carry something.
fn opened_at_once(route: &Route, web: SocketAddr, number: usize) -> Vec<TcpStream> {
    thread::scope(|scope| {
        let one = |_| {
            scope.spawn(|| {
                let mut flow = route.connect(web).ok()?;
                exchange(&mut flow).ok().map(|()| flow)
            })
        };
        let all: Vec<_> = (0..number).map(one).collect();
        let open = all.into_iter().map(|one| one.join().expect("an outcome"));
        open.collect::<Vec<_>>().into_iter().flatten().collect()
    })
}

/// What one host of the LAN holds open leaves room for the others, for the last of its connections make way.
#[test]
fn a_host_with_all_descriptors_of_the_client_makes_way_for_another() {
    on_site(
        "descriptors of the client",
        SiteConfig::new(BENTPIPE),
        |site| {
            site.start_server()?;
            let mut command = Command::new("prlimit");
            command.args(["--nofile=400:400", BENTPIPE]);
            with_config(&mut command, site.client_home());
            let client = site.start_client_in(site.topology.terminal(), command)?;
            let services = [WEB.into(), WEB6.into()].map(|address| {
                let place: Place = site.topology.web().into();
                Service::start(&place, SocketAddr::new(address, 0), echo).expect("a service")
            });
            let [greedy, modest] = site.routes();
            // A hundred are kept for all else.
            let mut held = opened_at_once(&greedy, services[0].address, 450);
            let open = held.len();
            ensure!((250..=300).contains(&open), "{open} of 450 are carried");
            let mut other = modest.connect(services[1].address)?;
            exchange(&mut other)?;
            exchange(&mut held[0])?;
            let log = client.stderr_text();
            let said = log.matches("has most of the 300 connections").count();
            ensure!(said == 1, "said {said} times: {log}");
            drop(held);
            let deadline = Instant::now() + SOON;
            while opened_at_once(&greedy, services[0].address, 100).len() < 100 {
                ensure!(Instant::now() < deadline, "no recovery");
            }
            client.signal(Signal::TERM)?;
            ensure!(client.wait(SOON)?.success(), "{}", client.stderr_text());
            Ok(())
        },
    );
}

#[test]
fn a_client_opens_no_more_flows_a_second_than_it_may() {
    on_site("flow rate", SiteConfig::new(BENTPIPE), |site| {
        edit(
            &site.server_file(),
            "allow = ",
            "max_flows_per_s = 4\nallow = ",
        )?;
        site.start_server()?;
        site.start_client()?;
        let web = SocketAddr::new(WEB.into(), 0);
        let web = Service::start(&site.topology.web().into(), web, echo)?;
        // Eight are saved up, and a second or two pass.
        let open = carried(site, web.address, 60);
        ensure!((8..40).contains(&open), "{open} of 60 are carried");
        let log = site.server().stderr_text();
        let said = log.matches("max_flows_per_s").count();
        ensure!(said == 1, "said {said} times: {log}");
        thread::sleep(Duration::from_secs(3));
        let open = carried(site, web.address, 4);
        ensure!(open == 4, "{open} of 4 are carried after a pause");
        Ok(())
    });
}

#[test]
fn a_client_sends_no_more_packets_a_second_than_it_may() {
    on_site("packet rate", SiteConfig::new(BENTPIPE), |site| {
        edit(
            &site.server_file(),
            "allow = ",
            "max_packets_per_s = 5\nallow = ",
        )?;
        site.start_server()?;
        site.start_client()?;
        let web = SocketAddr::new(WEB.into(), 7001);
        let sink = site.topology.web().enter(|| UdpSocket::bind(web))??;
        sink.set_read_timeout(Some(Duration::from_secs(2)))?;
        let host = site.topology.user();
        let host = host.enter(|| UdpSocket::bind((USER, 0)))??;
        let arrived = |number: usize| -> Result<usize> {
            for _ in 0..number {
                host.send_to(b"there?", web)?;
            }
            let mut arrived = 0;
            while sink.recv(&mut [0; 16]).is_ok() {
                arrived += 1;
            }
            Ok(arrived)
        };
        // The device has its addresses once the tunnel is up.
        let deadline = Instant::now() + SOON;
        while arrived(1)? == 0 {
            ensure!(Instant::now() < deadline, "no packet crosses");
        }
        // Ten are saved up, and a second or two pass.
        let carried = arrived(200)?;
        ensure!((8..40).contains(&carried), "{carried} of 200 are carried");
        let log = site.server().stderr_text();
        let said = log.matches("max_packets_per_s").count();
        ensure!(said == 1, "said {said} times: {log}");
        thread::sleep(Duration::from_secs(3));
        let carried = arrived(4)?;
        ensure!(carried == 4, "{carried} of 4 are carried after a pause");
        Ok(())
    });
}

/// Memory of all tunnels has one ceiling, which `status` shows with what is used of it, and which a reload changes.
#[test]
fn all_tunnels_together_take_no_more_memory_than_the_server_may() {
    on_site("total memory", SiteConfig::new(BENTPIPE), |site| {
        edit(
            &site.server_file(),
            "[[client]]",
            "[limits]\ntotal_memory = \"16 MiB\"\nmemory = \"64 MiB\"\n[[client]]",
        )?;
        site.start_server()?;
        site.start_client()?;
        let web = SocketAddr::new(WEB.into(), 0);
        let web = Service::start(&site.topology.web().into(), web, endless)?;
        // Hosts that read nothing.
        let [route, _] = site.routes();
        let idle: Vec<_> = (0..40)
            .map(|_| route.connect(web.address))
            .collect::<Result<_>>()?;
        let memory = || -> Result<(u64, u64)> {
            let memory = &site.server_report()?["all_tunnels_memory"];
            let figures = memory["used"].as_u64().zip(memory["ceiling"].as_u64());
            figures.with_context(|| format!("no figures in {memory}"))
        };
        let deadline = Instant::now() + SOON;
        loop {
            let (used, ceiling) = memory()?;
            ensure!(
                ceiling == 16 << 20 && used <= ceiling,
                "{used} of {ceiling}"
            );
            if used > 1 << 20 {
                break;
            }
            ensure!(Instant::now() < deadline, "only {used} bytes are in use");
            thread::sleep(Duration::from_millis(200));
        }
        edit(&site.server_file(), "16 MiB", "32 MiB")?;
        reload(site, "reloaded")?;
        let (_, ceiling) = memory()?;
        ensure!(ceiling == 32 << 20, "{ceiling} after a reload");
        drop(idle);
        Ok(())
    });
}

/// What is open goes on, the operator hears of it once, and what ends makes room.
#[test]
fn a_server_without_descriptors_says_so_and_recovers() {
    on_site("descriptors", SiteConfig::new(BENTPIPE), |site| {
        site.start_server()?;
        site.start_client()?;
        let web = SocketAddr::new(WEB.into(), 0);
        let web = Service::start(&site.topology.web().into(), web, echo)?;
        let [route, _] = site.routes();
        let mut first = route.connect(web.address)?;
        exchange(&mut first)?;
        let pid = site.server().id();
        let used = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        let limit = format!("--nofile={0}:{0}", used + 12);
        let status = Command::new("prlimit")
            .args(["--pid", &pid.to_string(), &limit])
            .status()?;
        ensure!(status.success(), "prlimit: {status}");
        let open = carried(site, web.address, 40);
        ensure!(open < 40, "all are carried with {} descriptors", used + 12);
        let log = site.server().stderr_text();
        let said = log.matches("no file descriptors left").count();
        ensure!(
            said == 1 && log.contains("LimitNOFILE"),
            "said {said} times: {log}"
        );
        exchange(&mut first)?;
        let deadline = Instant::now() + SOON;
        while carried(site, web.address, 1) == 0 {
            ensure!(Instant::now() < deadline, "no recovery");
        }
        Ok(())
    });
}
