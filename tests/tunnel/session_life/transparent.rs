//! Outer connections of sealed flows that go to the flows' own destinations, and are taken in by a server on the way; what strangers on
//! that way, and destinations past the server, see of it.

mod strangers;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{
    GATEWAY_SAT, GATEWAY_WAN, TERMINAL_SAT, TERMINAL_SAT6, WEB, host,
};
use bentpipe_lab::capture::Capture;
use bentpipe_testbed::peer::{
    Service, accept, echo, listen, read_to_reset, read_to_the_end, set_patience, who,
};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{PORT, Site, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::{RTT, SLACK, SOON, connect, echo_address, exchange, on_site, route, talk};
use crate::BENTPIPE;

/// Time for which a client waits for an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Bytes that a destination past the server sees.
const PREFACE: usize = 16;

/// A server that takes in what comes from the terminal by `interface`, with `more` in its `[sle]`, and a client that has it do so.
fn taking_in(interface: &str, more: &str) -> SiteConfig {
    SiteConfig {
        server_tables: format!(
            "[sle]\ninterfaces = [\"{interface}\"]\nprefixes = [\"10.30.0.0/24\", \"fd00:30::/64\"]\n\
             sources = [\"{TERMINAL_SAT}\", \"{TERMINAL_SAT6}\"]\n{more}"
        ),
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\nother = \"tunnel\"\n\
                        [sle]\nmode = \"transparent\"\n"
            .into(),
        ..SiteConfig::new(BENTPIPE)
    }
}

/// A figure of the client's `status` about sealed flows.
fn figure(site: &Site, name: &str) -> Result<u64> {
    let status = site.client_report()?;
    Ok(status["sle"][name].as_u64().unwrap_or_default())
}

/// Every flow of a site's client was sealed, `least` of them at least.
pub(crate) fn all_are_sealed(site: &Site, least: u64) -> Result<()> {
    says_all_are_sealed(&site.client_report()?, least)
}

/// The `status` of a client says that every flow was sealed, `least` of them at least.
pub(crate) fn says_all_are_sealed(status: &Value, least: u64) -> Result<()> {
    let [sealed, in_tunnel] = counts(status)?;
    ensure!(
        sealed >= least && in_tunnel == 0,
        "{sealed} flows sealed, {in_tunnel} in the tunnel"
    );
    Ok(())
}

/// Flows of a site's client that were sealed, and those that had to go through the tunnel.
pub(crate) fn sealed_and_not(site: &Site) -> Result<[u64; 2]> {
    counts(&site.client_report()?)
}

fn counts(status: &Value) -> Result<[u64; 2]> {
    let count = |name: &str| {
        let count = status["sle"][name].as_u64();
        count.with_context(|| format!("no `{name}` in {}", status["sle"]))
    };
    Ok([count("flows_total")?, count("fell_back_total")?])
}

/// The client's `status` says why not all is as it is to be.
fn gives_as_reason(site: &Site, text: &str) -> Result<()> {
    let status = site.client_report()?;
    let reason = status["sle"]["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains(text), "the reason is `{reason}`");
    Ok(())
}

/// Outer connections that the server has refused for `cause`.
fn refused(site: &Site, cause: &str) -> Result<u64> {
    let status = site.server_report()?;
    let count = status["sle"]["refused_total"][cause].as_u64();
    count.with_context(|| format!("no `{cause}` in {}", status["sle"]))
}

/// A connection from the terminal itself, or from another address that it has there, to `address`.
fn stranger(site: &Site, from: impl Into<IpAddr>, address: SocketAddr) -> Result<TcpStream> {
    let from = SocketAddr::new(from.into(), 0);
    let stream = site.topology.terminal().enter(|| {
        let socket = Socket::new(Domain::for_address(from), Type::STREAM, None)?;
        socket.bind(&from.into())?;
        socket.connect_timeout(&address.into(), SOON)?;
        std::io::Result::Ok(TcpStream::from(socket))
    })??;
    set_patience(&stream, SOON)?;
    Ok(stream)
}

#[test]
fn flows_go_to_their_own_destinations_and_are_taken_in() {
    on_site("transparent flows", taking_in("sat0", ""), |site| {
        let capture = Capture::start(site.topology.terminal(), "sat0", PORT)?;
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        for most in [3, 2] {
            let began = Instant::now();
            let mut stream = connect(site, web.address, RTT)?;
            exchange(&mut stream)?;
            let took = began.elapsed();
            // Connect and talk; the first time the server is asked in between.
            ensure!(took <= most * RTT + SLACK, "answered after {took:?}");
        }
        for route in site.routes() {
            let download = Transfer::start(&route, Way::Download, 2_000_000)?;
            let upload = Transfer::start(&route, Way::Upload, 2_000_000)?;
            download.finish_whole()?;
            upload.finish_whole()?;
        }
        let [flows, fell_back, broken] =
            ["flows_total", "fell_back_total", "broken_total"].map(|name| figure(site, name));
        ensure!(
            flows? == 6 && fell_back? == 0 && broken? == 0,
            "not all sealed"
        );
        let report = capture.stop()?;
        ensure!(
            report.marker_packets == 0,
            "content can be read: {report:?}"
        );
        let outer = |what: &str| what.contains("TCP") && what.contains(&web.address.to_string());
        ensure!(
            report.clear.iter().any(|packet| outer(&packet.what)),
            "no outer connection to {}: {:?}",
            web.address,
            report.clear
        );
        // The server has dialled, and nobody else.
        let place = Place::from(site.topology.web());
        let asked = Service::start(&place, echo_address(), who)?;
        let mut told = String::new();
        connect(site, asked.address, RTT)?.read_to_string(&mut told)?;
        ensure!(told.trim() == GATEWAY_WAN.to_string(), "dialled by {told}");
        Ok(())
    });
}

/// The real destination gets the connection, sixteen bytes and a reset; the flow goes through the tunnel.
#[test]
fn a_destination_past_the_server_sees_a_preface_and_the_flow_takes_the_tunnel() {
    on_site("past the server", taking_in("elsewhere0", ""), |site| {
        let place = Place::from(site.topology.web());
        let listener = place.at(|| listen(echo_address()))??;
        let address = listener.local_addr()?;
        let destination = thread::spawn(move || -> Result<_> {
            let mut outer = accept(&listener, SOON)?;
            let seen = read_to_reset(&mut outer)?;
            echo(accept(&listener, SOON)?)?;
            Ok(seen)
        });
        let began = Instant::now();
        let mut flow = connect(site, address, RTT)?;
        exchange(&mut flow)?;
        let took = began.elapsed();
        ensure!(took <= ANSWER + 2 * RTT + SLACK, "answered after {took:?}");
        let line = "flows cannot be sealed beside the tunnel: no answer of the server on the way";
        site.client().wait_for_line(line, SOON)?;
        drop(flow);
        let seen = destination.join().expect("no panic")?;
        ensure!(seen.len() == PREFACE, "it has seen {} bytes", seen.len());
        // Nobody waits for it again, whatever the destination.
        let began = Instant::now();
        talk(&route(site, RTT))?;
        let took = began.elapsed();
        ensure!(took <= RTT + SLACK, "answered after {took:?}");
        let [flows, fell_back] = ["flows_total", "fell_back_total"].map(|it| figure(site, it));
        ensure!(flows? == 0 && fell_back? == 2, "sealed all the same");
        gives_as_reason(site, "no answer of the server on the way")
    });
}

/// A destination that speaks first is no server of ours either.
#[test]
fn a_greeting_of_a_destination_past_the_server_is_no_answer() {
    fn greet(mut stream: TcpStream) -> Result<()> {
        stream.write_all(b"220 ready for whoever you may be\r\n")?;
        echo(stream)
    }
    on_site("a greeting", taking_in("elsewhere0", ""), |site| {
        let place = Place::from(site.topology.web());
        let web = Service::start(&place, echo_address(), greet)?;
        let mut flow = connect(site, web.address, RTT)?;
        let mut greeting = [0; 34];
        flow.read_exact(&mut greeting)?;
        ensure!(greeting.starts_with(b"220 ready"), "{greeting:?}");
        exchange(&mut flow)?;
        let line = "not the server has answered on the way";
        site.client().wait_for_line(line, SOON)
    });
}

#[test]
fn a_server_that_takes_in_nothing_on_its_way_gets_flows_at_its_port() {
    let config = SiteConfig {
        server_tables: format!("[sle]\nlisten = \"{GATEWAY_SAT}:4434\"\n"),
        ..taking_in("sat0", "")
    };
    on_site("a server with a port alone", config, |site| {
        exchange(&mut talk(&route(site, RTT))?)?;
        let line = "the server takes in no connections on their way";
        site.client().wait_for_line(line, SOON)?;
        ensure!(figure(site, "flows_total")? == 1, "not sealed");
        gives_as_reason(site, line)
    });
}

/// So does a release that knows nothing else; port 0 was always that.
#[test]
fn a_client_that_knows_ports_alone_goes_through_the_tunnel() {
    let config = SiteConfig {
        client_tables: "[intercept]\ninterfaces = [\"lan0\"]\n[sle]\n".into(),
        ..taking_in("sat0", "")
    };
    on_site("a client that knows ports alone", config, |site| {
        exchange(&mut talk(&route(site, RTT))?)?;
        let line = "the server seals no flows";
        site.client().wait_for_line(line, SOON)?;
        ensure!(figure(site, "flows_total")? == 0, "sealed");
        ensure!(figure(site, "fell_back_total")? == 1, "not counted");
        gives_as_reason(site, line)
    });
}

#[test]
fn rules_that_others_flush_are_put_back() {
    on_site("flushed rules", taking_in("sat0", ""), |site| {
        let mut before = talk(&route(site, RTT))?;
        let gateway = site.topology.gateway();
        gateway.run("nft", &["delete", "table", "inet", "bentpipe_sle"])?;
        let line = "table inet bentpipe_sle is gone and was put back";
        site.server().wait_for_line(line, SOON)?;
        gateway.run("ip", &["rule", "del", "priority", "98"])?;
        let line = "IPv4 rule 98 of [sle] for sat0 is gone and was put back";
        site.server().wait_for_line(line, SOON)?;
        let route_of_marks = ["route", "flush", "table", "25204"];
        gateway.run("ip", &route_of_marks)?;
        let line = "IPv4 route to this machine in routing table 25204 is gone and was put back";
        site.server().wait_for_line(line, SOON)?;
        exchange(&mut before)?;
        exchange(&mut talk(&route(site, RTT))?)?;
        ensure!(figure(site, "flows_total")? == 2, "not sealed");
        let status = site.server_report()?;
        let repairs = status["kernel"].as_array().context("no repairs")?;
        let of = |part: &str| repairs.iter().any(|repair| repair["part"] == part);
        ensure!(of("table inet bentpipe_sle"), "{repairs:?}");
        site.stop_server()?;
        let tables = site.topology.gateway().run("nft", &["list", "tables"])?;
        ensure!(!tables.contains("bentpipe_sle"), "left behind: {tables}");
        let rules = site.topology.gateway().run("ip", &["rule"])?;
        ensure!(!rules.contains("25204"), "left behind: {rules}");
        Ok(())
    });
}

/// Until the rules are back segments pass to the destination, which may reset what it does not know; nothing else comes of it.
#[test]
fn a_flush_under_busy_flows_leaves_them_whole_or_resets_them() {
    const LENGTH: usize = 6_000_000;
    on_site("a flush under busy flows", taking_in("sat0", ""), |site| {
        let route_of_both = route(site, RTT);
        let start = |way| Transfer::start(&route_of_both, way, LENGTH);
        let transfers = [
            (Way::Download, start(Way::Download)?),
            (Way::Upload, start(Way::Upload)?),
        ];
        for (_, transfer) in &transfers {
            transfer.until(1_000_000, SOON)?;
        }
        site.topology.gateway().run("nft", &["flush", "ruleset"])?;
        let line = "table inet bentpipe_sle is gone and was put back";
        site.server().wait_for_line(line, SOON)?;
        for (way, transfer) in transfers {
            let arrivals = transfer.finish()?;
            println!("{way:?}: {:?}", arrivals.end);
        }
        exchange(&mut talk(&route(site, RTT))?)
    });
}

/// A proxy's address stands for all clients behind it: their flows are told apart by the tunnels that they name.
#[test]
fn hundreds_of_flows_that_ask_at_once_are_all_sealed() {
    const FLOWS: u64 = 600;
    on_site("many at once", taking_in("sat0", ""), |site| {
        let web = Service::start(&Place::from(site.topology.web()), echo_address(), echo)?;
        let talk = || exchange(&mut connect(site, web.address, SOON)?);
        thread::scope(|scope| {
            let talks: Vec<_> = (0..FLOWS).map(|_| scope.spawn(talk)).collect();
            let mut ended = talks.into_iter().map(|it| it.join().expect("no panic"));
            ended.try_for_each(|ended| ended)
        })?;
        ensure!(refused(site, "crowded")? == 0, "too many for the server");
        all_are_sealed(site, FLOWS)
    });
}

/// Rules are one server's; those of one that was killed go with the next, whatever that is for.
#[test]
fn rules_are_one_servers_and_no_leftover_outlives_the_next_start() {
    on_site("one server's rules", taking_in("sat0", ""), |site| {
        let text = fs::read_to_string(site.server_file())?;
        let second = site.topology.directory().join("second.toml");
        let other = text
            .replace(&format!(":{PORT}"), ":4999")
            .replace("server.sock", "second.sock")
            .replace("\"state\"", "\"second-state\"")
            .replace("[sle]", "[packets]\nenabled = false\n[sle]");
        fs::write(&second, other)?;
        let mut command = std::process::Command::new(BENTPIPE);
        command.args(["server", "--config"]).arg(&second);
        let second = site.topology.spawn_in(site.topology.gateway(), command)?;
        let line = "another server takes in connections on this machine";
        second.wait_for_line(line, SOON)?;
        exchange(&mut talk(&route(site, RTT))?).context("its rules are still there")?;
        all_are_sealed(site, 1)?;

        site.kill_server()?;
        let gateway = site.topology.gateway();
        let left = |what: &str, list: &[&str], name: &str| -> Result<bool> {
            Ok(gateway.run(what, list)?.contains(name))
        };
        ensure!(
            left("nft", &["list", "tables"], "bentpipe_sle")?,
            "a kill takes it along"
        );
        let from = text.find("[sle]").context("no table")?;
        let until = text.find("[[client]]").context("no client")?;
        fs::write(site.server_file(), [&text[..from], &text[until..]].concat())?;
        site.start_server()?;
        let gateway = site.topology.gateway();
        let tables = gateway.run("nft", &["list", "tables"])?;
        let rules = gateway.run("ip", &["rule"])?;
        ensure!(
            !tables.contains("bentpipe_sle") && !rules.contains("25204"),
            "left behind: {tables} {rules}"
        );
        site.server()
            .wait_for_line("which a server that was killed had left", SOON)
    });
}
