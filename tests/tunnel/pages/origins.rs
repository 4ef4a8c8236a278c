//! An origin of DSSL by itself, on loopback addresses: what strangers and hubs may take of it, what it tells, and what a reload
//! takes over.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_sealed::dssl::{
    ALPN_HUB, HubFrame, HubFrameReader, MAX_HUB_FRAME, ObjectId, SessionId,
};
use bentpipe_testbed::daemon::{Daemon, free_port};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::status::report;
use bentpipe_tunnel::engine::identity::PrivateKey;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

use super::browser::{Browser, exchange, get};
use super::certified::Certified;
use super::origin::{OBJECT, Origin};
use super::speech::NAME;
use crate::BENTPIPE;

/// Time for what takes milliseconds.
pub(super) const SOON: Duration = Duration::from_secs(10);

/// A running origin, with a web server behind it.
pub(super) struct Alone {
    daemon: Daemon,
    pub(super) certified: Certified,
    pub(super) address: SocketAddr,
    metrics: SocketAddr,
    pub(super) hub: PrivateKey,
    /// Address of the web server.
    web: SocketAddr,
}

type HubStream = StreamOwned<ClientConnection, TcpStream>;

impl Alone {
    pub(super) fn start() -> Result<Self> {
        Self::start_with(Certified::new()?, true)
    }

    /// Starts it with this certificate, with or without a web server behind it.
    fn start_with(certified: Certified, behind: bool) -> Result<Self> {
        let local = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let (address, web, metrics) = (local(free_port()), local(free_port()), local(free_port()));
        let hub = PrivateKey::generate()?;
        if behind {
            Origin::start(&Place::here(), web, None, Duration::ZERO)?;
        }
        let text = format!(
            "status_socket = \"origin.sock\"\n[metrics]\nlisten = \"{metrics}\"\n[origin]\nlisten = \"{address}\"\n\
             upstream = \"http://{web}\"\ncertificate = \"site.pem\"\nkey = \"site.key\"\nhubs = [\"{}\"]\n",
            hub.public()
        );
        fs::write(certified.path("origin.toml"), text)?;
        let daemon = Daemon::start(BENTPIPE, "origin", certified.directory(), "origin")?;
        daemon.wait_for("ready", SOON);
        Ok(Self {
            daemon,
            certified,
            address,
            metrics,
            hub,
            web,
        })
    }

    /// Loads an object as a browser that trusts the authority of `certified`.
    pub(super) fn load(&self, certified: &Certified) -> Result<()> {
        let browser = Browser {
            place: Place::here(),
            origin: self.address,
            tls: Some(certified.trust()?),
        };
        let body = exchange(&mut browser.connect()?, &get("/o/1", ""))?;
        ensure!(body.len() == OBJECT, "another object");
        Ok(())
    }

    /// Connects as the hub with this key.
    pub(super) fn connect_as(&self, key: &PrivateKey) -> Result<HubStream> {
        let tls = self.certified.trust_shown(key, ALPN_HUB)?;
        let connection = ClientConnection::new(tls, ServerName::try_from(NAME)?)?;
        let tcp = TcpStream::connect(self.address)?;
        tcp.set_read_timeout(Some(SOON))?;
        let mut stream = StreamOwned::new(connection, tcp);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }

    /// Exit code of `status --check`, and what it says.
    fn check(&self) -> Result<(Option<i32>, String)> {
        let socket = self.certified.path("origin.sock");
        let mut command = Command::new(BENTPIPE);
        command.args(["status", "--check", "--socket"]).arg(socket);
        let output = command.output()?;
        Ok((output.status.code(), String::from_utf8(output.stdout)?))
    }

    pub(super) fn status(&self) -> Result<serde_json::Value> {
        report(BENTPIPE, &self.certified.path("origin.sock"))
    }

    /// Waits until this figure of `status` is `wanted`.
    pub(super) fn wait_for_figure(&self, pointer: &str, wanted: u64) -> Result<()> {
        let deadline = Instant::now() + SOON;
        loop {
            let status = self.status()?;
            let found = status.pointer(pointer).and_then(serde_json::Value::as_u64);
            if found == Some(wanted) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{pointer} is {found:?}: {status:#}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn reload(&self, says: &str) -> Result<()> {
        let pid = i32::try_from(self.daemon.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process")?, Signal::HUP)?;
        self.daemon.wait_for(says, SOON);
        Ok(())
    }

    /// Puts the certificate of `other` in the place of this one's.
    fn renew(&self, other: &Certified) -> Result<()> {
        for file in ["site.pem", "site.key"] {
            fs::copy(other.path(file), self.certified.path(file))?;
        }
        Ok(())
    }
}

/// Connection from another address of this machine.
pub(super) fn connect_from(from: [u8; 4], to: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(IpAddr::from(from), 0).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

#[test]
fn one_address_keeps_nobody_out_of_an_origin() -> Result<()> {
    let alone = Alone::start()?;
    let silent: Result<Vec<_>> = (0..300)
        .map(|_| connect_from([127, 0, 0, 2], alone.address))
        .collect();
    let silent = silent?;
    // The last ones are those that are refused.
    alone
        .daemon
        .wait_for("a host begins too many handshakes", SOON);
    alone.load(&alone.certified)?;
    let refused = alone.status()?["origin"]["refused_total"]["crowded"].as_u64();
    ensure!(refused.unwrap_or_default() > 0, "nobody was refused");
    drop(silent);
    Ok(())
}

#[test]
fn a_hub_that_hears_nothing_is_not_read() -> Result<()> {
    let alone = Alone::start()?;
    let mut hub = alone.connect_as(&alone.hub)?;
    hub.sock.set_write_timeout(Some(Duration::from_secs(3)))?;
    let mut asks = Vec::new();
    let id = ObjectId::from_number(1).context("an id")?;
    for _ in 0..1000 {
        HubFrame::Fetch(SessionId::new([7; 16]), id).encode(&mut asks);
    }
    // More than both sockets hold.
    let (mut written, most) = (0, 40 << 20);
    let stuck = loop {
        match hub.write_all(&asks).and_then(|()| hub.flush()) {
            Ok(()) if written > most => break false,
            Ok(()) => written += asks.len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
            Err(error) => return Err(error.into()),
        }
    };
    ensure!(
        stuck,
        "{written} bytes of requests were read, and no answer was"
    );
    // Others are served meanwhile.
    alone.load(&alone.certified)
}

#[test]
fn a_hub_that_is_not_listed_hears_so_and_the_log_as_well() -> Result<()> {
    let alone = Alone::start()?;
    let other = PrivateKey::generate()?;
    let mut hub = alone.connect_as(&other)?;
    let heard = hub.read(&mut [0; 16]);
    let denied = rustls::Error::AlertReceived(rustls::AlertDescription::AccessDenied);
    let said = heard.err().map(|error| error.to_string());
    ensure!(
        said.as_deref() == Some(&denied.to_string()),
        "heard {said:?}"
    );
    let line = format!("a hub that shows the key {} is refused", other.public());
    alone.daemon.wait_for(&line, SOON);
    alone.wait_for_figure("/origin/refused_total/unlisted_hubs", 1)?;
    alone.wait_for_figure("/origin/hubs_total", 0)
}

#[test]
fn an_origin_tells_of_itself() -> Result<()> {
    let alone = Alone::start()?;
    alone.load(&alone.certified)?;
    alone.wait_for_figure("/origin/others_total", 1)?;
    let mut command = Command::new(BENTPIPE);
    let socket = alone.certified.path("origin.sock");
    command.args(["status", "--check", "--socket"]).arg(socket);
    let output = command.output()?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success() && said.contains("origin on 127.0.0.1"),
        "{said}"
    );
    let mut scraper = TcpStream::connect(alone.metrics)?;
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")?;
    let mut figures = String::new();
    scraper.read_to_string(&mut figures)?;
    for line in [
        "bentpipe_origin_others_total{} 1.0",
        "bentpipe_origin_refused_total_handshake_total{} 0.0",
        "# TYPE bentpipe_origin_connections gauge",
    ] {
        ensure!(figures.contains(line), "no {line}:\n{figures}");
    }
    Ok(())
}

#[test]
fn a_reload_takes_over_what_is_good() -> Result<()> {
    let alone = Alone::start()?;
    alone.load(&alone.certified)?;
    let mut hub = alone.connect_as(&alone.hub)?;
    // A certificate that was renewed by another authority.
    let renewed = Certified::new()?;
    alone.renew(&renewed)?;
    alone.load(&alone.certified)?;
    alone.reload("reloaded: certificate")?;
    alone.load(&renewed)?;
    ensure!(
        alone.load(&alone.certified).is_err(),
        "the old certificate is shown"
    );
    // One that is cut short: what is in force stays.
    fs::write(alone.certified.path("site.pem"), "-----BEGIN CERT")?;
    alone.reload("not reloaded, certificate and lists stay as they were")?;
    alone.load(&renewed)?;
    // The hub has lost nothing by that, until it is taken off the list.
    let mut said = Vec::new();
    HubFrame::KeyRequest(SessionId::new([7; 16])).encode(&mut said);
    hub.write_all(&said)?;
    hub.flush()?;
    let refused = next_frame(&mut hub)?;
    ensure!(matches!(refused, HubFrame::Refused(_, None)), "{refused:?}");
    alone.renew(&renewed)?;
    let file = alone.certified.path("origin.toml");
    let other = PrivateKey::generate()?.public().to_string();
    let text = fs::read_to_string(&file)?.replace(&alone.hub.public().to_string(), &other);
    fs::write(
        &file,
        text.replace("http://127.0.0.1:", "http://127.0.0.2:"),
    )?;
    alone.reload("changed but needs a restart: upstream")?;
    let heard = hub.read(&mut [0; 16]);
    ensure!(
        !matches!(heard, Ok(1..)),
        "a hub that was taken off the list hears {heard:?}"
    );
    alone.load(&renewed)
}

fn next_frame(hub: &mut HubStream) -> Result<HubFrame> {
    let (mut reader, mut bytes) = (HubFrameReader::new(MAX_HUB_FRAME), [0; 4096]);
    loop {
        if let Some(frame) = reader.read()? {
            return Ok(frame);
        }
        let read = hub.read(&mut bytes)?;
        ensure!(read > 0, "the end");
        reader.push(&bytes[..read]);
    }
}

#[test]
fn a_certificate_that_has_expired_is_told_of_until_it_is_renewed() -> Result<()> {
    let alone = Alone::start_with(Certified::expired()?, true)?;
    alone
        .daemon
        .wait_for("site.pem expired on 2021-01-01", SOON);
    let (code, said) = alone.check()?;
    ensure!(
        code == Some(1) && said.contains("expired on 2021-01-01"),
        "{code:?}: {said}"
    );
    let checked = check_file(&alone)?;
    ensure!(
        checked.0 == Some(0) && checked.1.contains("expired on 2021-01-01"),
        "{checked:?}"
    );
    let renewed = Certified::new()?;
    alone.renew(&renewed)?;
    alone.reload("reloaded: certificate")?;
    alone.load(&renewed)?;
    let (code, said) = alone.check()?;
    ensure!(code == Some(0), "{said}");
    let status = alone.status()?;
    let left = status["origin"]["certificate_left_s"].as_u64();
    ensure!(left.unwrap_or_default() > 86_400, "{status:#}");
    Ok(())
}

/// Exit code of `bentpipe check` for the file of an origin, and what it says.
fn check_file(alone: &Alone) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(BENTPIPE);
    let checked = command
        .arg("check")
        .arg(alone.certified.path("origin.toml"));
    let output = checked.output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(said)?))
}

#[test]
fn a_check_of_an_origins_file_reads_certificate_and_key() -> Result<()> {
    let alone = Alone::start()?;
    let (code, said) = check_file(&alone)?;
    ensure!(code == Some(0) && !said.contains("certificate"), "{said}");
    let other = Certified::new()?;
    let key = alone.certified.path("site.key");
    fs::copy(other.path("site.key"), &key)?;
    let (code, said) = check_file(&alone)?;
    let words = [
        "origin.toml:8: ",
        "site.key: it is not the key of",
        "site.pem",
    ];
    ensure!(
        code == Some(3) && words.iter().all(|word| said.contains(word)),
        "{said}"
    );
    fs::remove_file(&key)?;
    let (code, said) = check_file(&alone)?;
    ensure!(code == Some(3) && said.contains("site.key: "), "{said}");
    fs::write(alone.certified.path("site.pem"), "no certificate\n")?;
    let (code, said) = check_file(&alone)?;
    ensure!(
        code == Some(3) && said.contains("site.pem: it holds no certificate"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_web_server_that_is_not_there_is_told_of_until_it_is() -> Result<()> {
    let alone = Alone::start_with(Certified::new()?, false)?;
    alone
        .daemon
        .wait_for("cannot be reached: Connection refused", SOON);
    ensure!(
        alone.load(&alone.certified).is_err(),
        "a page without a web server"
    );
    let (code, said) = alone.check()?;
    let why = format!("web server http://{}: cannot be reached", alone.web);
    ensure!(code == Some(1) && said.contains(&why), "{code:?}: {said}");
    Origin::start(&Place::here(), alone.web, None, Duration::ZERO)?;
    // Nobody asks for a page: the origin finds out by itself.
    alone.daemon.wait_for("is back, after", SOON);
    let (code, said) = alone.check()?;
    ensure!(code == Some(0), "{said}");
    alone.load(&alone.certified)?;
    let log = alone.daemon.log();
    ensure!(log.matches("cannot be reached").count() == 1, "{log}");
    Ok(())
}
