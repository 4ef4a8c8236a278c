//! Plain HTTP through the proxy: each request in a connection of its own, and how responses end. Needs root.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bentpipe_emulator::topology::{WEB, WEB6};
use bentpipe_testbed::peer::{
    PATIENCE, Service, payload, read_exactly, read_to_eof, read_to_reset, reset, set_patience,
    until_acknowledged,
};
use bentpipe_testbed::privileged;
use bentpipe_testbed::proxy::HTTP;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::Site;

use crate::proxies::site;

/// Bytes of a body of which not more comes.
const PART: usize = 200_000;

/// A connection to the proxy.
fn connect(site: &Site) -> TcpStream {
    let proxy: SocketAddr = HTTP.parse().expect("an address");
    let connected = site.topology.terminal().enter(|| TcpStream::connect(proxy));
    let stream = connected.expect("a namespace").expect("a connection");
    set_patience(&stream, PATIENCE).expect("a timeout");
    stream
}

fn read_head(stream: &mut TcpStream) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_exactly(stream, 1)?);
    }
    Ok(())
}

/// Answers one request with what came of it, its body in chunks.
fn mirror(mut stream: TcpStream) -> Result<()> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.extend(read_exactly(&mut stream, 1)?);
    }
    if text.windows(7).any(|bytes| bytes == b"chunked") {
        while !text.ends_with(b"0\r\n\r\n") {
            text.extend(read_exactly(&mut stream, 1)?);
        }
    }
    write!(
        stream,
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n",
        text.len()
    )?;
    stream.write_all(&text)?;
    stream.write_all(b"\r\n0\r\n\r\n")?;
    match stream.read(&mut [0; 1]) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(()),
    }
}

/// Asks the HTTP proxy over `stream` and returns everything up to the end of a response in chunks.
fn ask(stream: &mut TcpStream, request: &str) -> Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n0\r\n\r\n") || text.ends_with(b"hello\r\n0\r\n\r\n") {
        text.extend(read_exactly(stream, 1)?);
    }
    Ok(String::from_utf8(text)?)
}

#[test]
fn plain_http_is_forwarded_to_one_host_after_another() {
    if !privileged("proxies: plain HTTP") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    let _servers = [(IpAddr::from(WEB), 8080), (WEB6.into(), 8081)].map(|(address, port)| {
        Service::start(&web, SocketAddr::new(address, port), mirror).expect("a server")
    });
    let mut stream = connect(&site);
    for (target, host) in [
        ("http://four.example:8080/one?x", "four.example:8080"),
        ("http://[fd00:30::2]:8081/one?x", "[fd00:30::2]:8081"),
        ("http://10.30.0.2:8080/one?x", "10.30.0.2:8080"),
    ] {
        let request = format!(
            "POST {target} HTTP/1.1\r\nHost: liar\r\nProxy-Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n"
        );
        let answer = ask(&mut stream, &request).expect("an answer");
        let seen = format!(
            "POST /one?x HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nVia: 1.1 bentpipe\r\n\
             Connection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        assert!(answer.contains(&seen), "{answer}");
        assert!(
            answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"),
            "{answer}"
        );
        assert!(answer.contains("Connection: keep-alive\r\n"), "{answer}");
    }
    for (request, status) in [
        (
            "GET http://10.30.0.2:8080/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400",
        ),
        ("GET / HTTP/1.1\r\nHost: 10.30.0.2\r\n\r\n", "400"),
        ("GET http://127.0.0.1:7000/ HTTP/1.1\r\n\r\n", "403"),
        ("GET http://10.30.0.2:7003/ HTTP/1.1\r\n\r\n", "502"),
    ] {
        let mut stream = connect(&site);
        stream.write_all(request.as_bytes()).expect("room");
        let answer = read_to_eof(&mut stream).expect("an answer");
        let answer = String::from_utf8(answer).expect("text");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}{answer}"
        );
    }
}

/// Says a head that `fields` end and a part of a body, and waits until it has arrived.
fn say_part(stream: &mut TcpStream, fields: &str) -> Result<()> {
    read_head(stream)?;
    write!(stream, "HTTP/1.0 200 OK\r\n{fields}\r\n")?;
    stream.write_all(&payload(PART))?;
    until_acknowledged(stream, PATIENCE)
}

/// Breaks off within a body that the end of the connection ends.
fn breaks_off(mut stream: TcpStream) -> Result<()> {
    say_part(&mut stream, "")?;
    Ok(reset(stream)?)
}

/// Breaks off within a body whose length is known.
fn breaks_off_short(mut stream: TcpStream) -> Result<()> {
    say_part(&mut stream, "Content-Length: 1000000\r\n")?;
    Ok(reset(stream)?)
}

/// Ends in order, within a body whose length is known.
fn ends_short(mut stream: TcpStream) -> Result<()> {
    say_part(&mut stream, "Content-Length: 1000000\r\n")
}

/// Ends in order: that was all.
fn ends(mut stream: TcpStream) -> Result<()> {
    say_part(&mut stream, "")
}

/// Goes on until the connection breaks.
fn goes_on(mut stream: TcpStream) -> Result<()> {
    say_part(&mut stream, "")?;
    loop {
        stream.write_all(&[b'x'; 1000])?;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Reads a request, and says nothing.
fn says_nothing(mut stream: TcpStream) -> Result<()> {
    read_head(&mut stream)?;
    let _ = stream.read(&mut [0; 1]);
    Ok(())
}

/// Asks the server on this port of the web.
fn get(site: &Site, port: u16) -> TcpStream {
    let mut stream = connect(site);
    let request = format!("GET http://{WEB}:{port}/file HTTP/1.1\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("room");
    stream
}

/// A response ends as its origin ends it: a short file must not pass for a whole one.
#[test]
fn a_response_that_breaks_off_is_reset_behind_what_has_come() {
    if !privileged("plain HTTP: responses that break off") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    let serve = |port: u16, handler| {
        Service::start(&web, SocketAddr::new(WEB.into(), port), handler).expect("a server")
    };
    let _servers = [
        serve(8090, breaks_off),
        serve(8091, breaks_off_short),
        serve(8092, ends),
        serve(8093, ends_short),
    ];
    let whole = |bytes: &[u8]| bytes.ends_with(&payload(PART));
    for port in [8090, 8091] {
        let bytes = read_to_reset(&mut get(&site, port));
        let bytes = bytes.unwrap_or_else(|error| panic!("{port}: {error:#}"));
        assert!(whole(&bytes), "{port}: {} bytes", bytes.len());
    }
    for port in [8092, 8093] {
        let bytes = read_to_eof(&mut get(&site, port));
        let bytes = bytes.unwrap_or_else(|error| panic!("{port}: {error:#}"));
        assert!(whole(&bytes), "{port}: {} bytes", bytes.len());
    }
}

#[test]
fn a_response_whose_server_is_killed_is_reset() {
    if !privileged("plain HTTP: the server is killed") {
        return;
    }
    let mut site = site();
    let web: Place = site.topology.web().into();
    let address = SocketAddr::new(WEB.into(), 8090);
    let _server = Service::start(&web, address, goes_on).expect("a server");
    let mut stream = get(&site, 8090);
    read_head(&mut stream).expect("a head");
    read_exactly(&mut stream, PART).expect("a part");
    site.kill_server().expect("it runs");
    site.start_server().expect("another one");
    read_to_reset(&mut stream).unwrap_or_else(|error| panic!("{error:#}\n{}", site.logs()));
}

/// Flows that the client has open.
fn flows(site: &Site) -> Result<u64> {
    let report = site.client_report()?;
    let active = report["flows"]["active"].as_u64();
    active.ok_or_else(|| anyhow::anyhow!("no figure in {report}"))
}

/// An origin that never answers, and applications that are gone: nothing is held for them.
#[test]
fn a_request_whose_application_is_gone_is_given_up() {
    if !privileged("plain HTTP: applications that are gone") {
        return;
    }
    let site = site();
    let web: Place = site.topology.web().into();
    let address = SocketAddr::new(WEB.into(), 8090);
    let server = Service::start(&web, address, says_nothing).expect("a server");
    let until = |wanted: u64, patience: u64| -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(patience);
        while flows(&site)? != wanted {
            ensure!(Instant::now() < deadline, "{} flows", flows(&site)?);
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    };
    let waiting = [get(&site, 8090), get(&site, 8090), get(&site, 8090)];
    until(3, 20).expect("they are open");
    // The client has a flow before the server has its connection.
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.accepted() < 3 {
        assert!(Instant::now() < deadline, "{} reached", server.accepted());
        thread::sleep(Duration::from_millis(20));
    }
    let [closed, aborted, patient] = waiting;
    drop(closed);
    reset(aborted).expect("it is open");
    until(1, 25).expect("what nobody waits for has ended");
    drop(patient);
}
