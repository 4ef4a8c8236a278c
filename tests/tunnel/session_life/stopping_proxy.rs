//! A client that stops while an application is still reading from its proxy.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{TERMINAL_LAN, WEB};
use bentpipe_testbed::peer::{Service, payload, read_exactly, read_to_eof};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::SiteConfig;
use rustix::process::Signal;

use super::drain::Side;
use super::last_bytes::{LENGTH, read_late};
use super::{RTT, SOON, echo_address, on_site, route};
use crate::BENTPIPE;

/// Bytes of a download that takes seconds.
const LONG: usize = 5_000_000;

/// TCP port of the client's proxy.
const PROXY: u16 = 8080;

/// Sends [`LONG`] bytes and an end.
fn say_at_length(mut stream: TcpStream) -> Result<()> {
    Ok(stream.write_all(&payload(LONG))?)
}

/// Reads a head of HTTP, and nothing behind it.
fn read_head(stream: &mut TcpStream) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_exactly(stream, 1)?);
    }
    Ok(())
}

/// Answers a request of HTTP with [`LENGTH`] bytes, and may be asked for more.
fn answer_much(mut stream: TcpStream) -> Result<()> {
    read_head(&mut stream)?;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
    stream.write_all(answer.as_bytes())?;
    stream.write_all(&payload(LENGTH))?;
    read_to_eof(&mut stream).map(drop)
}

/// Configuration of a site whose client is an HTTP proxy, with these `rules`.
fn with_proxy(rules: &str) -> SiteConfig {
    SiteConfig {
        client_tables: format!("[http]\nlisten = \"{TERMINAL_LAN}:{PROXY}\"\n{rules}"),
        ..SiteConfig::new(BENTPIPE)
    }
}

#[test]
fn a_slow_application_gets_its_answer_from_a_proxy_that_stops() {
    on_site("a slow application", with_proxy(""), |site| {
        let read = read_late(site, answer_much, |site, web| {
            let mut host = route(site, RTT).connect_slowly((TERMINAL_LAN, PROXY).into())?;
            let address = web.address;
            write!(
                host,
                "GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n"
            )?;
            Ok(host)
        })?;
        ensure!(read.ends_with(&payload(LENGTH)), "{} bytes", read.len());
        Ok(())
    });
}

#[test]
fn a_connection_past_the_tunnel_ends_before_its_proxy_does() {
    let rule = format!("[[rule]]\ndestinations = [\"{WEB}\"]\naction = \"direct\"\n");
    on_site("past the tunnel", with_proxy(&rule), |site| {
        Side::Client.set_drain_timeout(site, "60 s")?;
        let web = Place::from(site.topology.web());
        let web = Service::start(&web, echo_address(), say_at_length)?;
        let mut host = route(site, RTT).connect((TERMINAL_LAN, PROXY).into())?;
        let address = web.address;
        write!(
            host,
            "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"
        )?;
        read_head(&mut host)?;
        read_exactly(&mut host, 1)?;
        host.shutdown(Shutdown::Write)?;
        site.client().signal(Signal::TERM)?;
        site.client().wait_for_line("stopping", SOON)?;
        let rest = read_to_eof(&mut host)?.len();
        ensure!(rest + 1 == LONG, "{rest} bytes arrived after the first");
        let status = site.client().wait(SOON)?;
        ensure!(status.code() == Some(0), "stopped with {status}");
        Ok(())
    });
}
