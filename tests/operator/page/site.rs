//! Daemons with a page, alone or as a pair with traffic between them, in a network namespace of their own.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_sys::privilege;
use bentpipe_testbed::daemon::free_port;
use bentpipe_testbed::namespace::namespace;
use bentpipe_testbed::peer;
use bentpipe_testbed::status::report;
use serde_json::Value;

use super::super::config_errors::home::{Home, PATIENCE, Running};
use crate::BENTPIPE;

/// Runs `test` in a network namespace of its own, where one can be made: a daemon of root's has tables in the kernel.
pub(super) fn apart(test: impl FnOnce() + Send) {
    match privilege::has_net_admin() {
        true => namespace("page").enter(test).expect("a namespace"),
        false => test(),
    }
}

/// An address for a page.
pub(super) fn page() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// Starts the daemon of `home` in `role` with a page on loopback, `more` in its table; returns where.
pub(super) fn start(home: &Home, role: &str, more: &str) -> (Running, SocketAddr) {
    start_at(home, role, "127.0.0.1", more)
}

/// As [`start`], with a page that listens on `address`; what is returned leads there over loopback.
pub(super) fn start_at(
    home: &Home,
    role: &str,
    address: &str,
    more: &str,
) -> (Running, SocketAddr) {
    let page = page();
    let file = format!("{role}.toml");
    let text = fs::read_to_string(home.path(&file)).expect("a file");
    let table = format!("[page]\nlisten = \"{address}:{}\"\n{more}\n", page.port());
    home.write(&file, &format!("{text}{table}"));
    let running = Running::start(home.daemon(role), &home.path(&format!("{role}.sock")));
    (running, page)
}

/// The answer to `request` with `headers`, head and body; `Host` names the address unless it is given.
pub(super) fn ask(address: SocketAddr, request: &str, headers: &[(&str, &str)]) -> String {
    let mut stream = TcpStream::connect(address).expect("the page is served");
    stream.set_read_timeout(Some(2 * PATIENCE)).expect("a time");
    let mut head = format!("{request} HTTP/1.1\r\n");
    if headers.iter().all(|(name, _)| *name != "Host") {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream
        .write_all((head + "\r\n").as_bytes())
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The report of the daemon of `home` in `role`.
pub(super) fn status(home: &Home, role: &str) -> Value {
    report(BENTPIPE, &home.path(&format!("{role}.sock"))).expect("a report")
}

/// A server and a client with their pages, and an origin that sends for as long as it is read.
pub(super) struct Site {
    pub(super) home: Home,
    /// The client's page.
    pub(super) client: SocketAddr,
    /// The server's page.
    pub(super) server: SocketAddr,
    daemons: Vec<Running>,
    socks5: SocketAddr,
    origin: SocketAddr,
}

impl Site {
    /// Starts both, and waits for the tunnel.
    pub(super) fn start() -> Self {
        let home = Home::new();
        let (tunnel, socks5) = (page(), page());
        let origin = peer::listen(page()).expect("a port");
        let origin_address = origin.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in origin.incoming().flatten() {
                thread::spawn(|| peer::endless(stream));
            }
        });
        home.edit("server.toml", "127.0.0.1:0", &tunnel.to_string());
        home.edit(
            "server.toml",
            "10.30.0.0/24",
            &format!("127.0.0.1/32:{}", origin_address.port()),
        );
        home.edit("client.toml", "127.0.0.1:4433", &tunnel.to_string());
        home.edit("client.toml", "127.0.0.1:0", &socks5.to_string());
        let link = "[link]\nprofile = \"geo\"\n[link.forward]\nrate = \"20 Mbit/s\"\nmax_rate = \"20 Mbit/s\"\n\
                    [link.return]\nrate = \"2 Mbit/s\"\nmax_rate = \"2 Mbit/s\"\n\
                    [metering]\ncap = \"50 MB\"\nprice_per_mb = 0.35\nperiod = \"run\"\n";
        let text = fs::read_to_string(home.path("client.toml")).expect("a file");
        home.write("client.toml", &format!("{text}{link}"));
        let (server, server_page) = start(&home, "server", "");
        let (client, client_page) = start(&home, "client", "");
        let site = Self {
            home,
            client: client_page,
            server: server_page,
            daemons: vec![server, client],
            socks5,
            origin: origin_address,
        };
        let deadline = Instant::now() + PATIENCE;
        while status(&site.home, "client")["tunnel"]["state"] != "ready" {
            assert!(Instant::now() < deadline, "no tunnel");
            thread::sleep(Duration::from_millis(50));
        }
        site
    }

    /// Reads `bytes` from the origin through the tunnel; returns how many came.
    pub(super) fn download(&self, bytes: usize) -> usize {
        let mut stream = TcpStream::connect(self.socks5).expect("SOCKS5 is served");
        stream.set_read_timeout(Some(2 * PATIENCE)).expect("a time");
        let IpAddr::V4(address) = self.origin.ip() else {
            panic!("an IPv4 address");
        };
        let mut request = vec![5, 1, 0, 5, 1, 0, 1];
        request.extend(address.octets());
        request.extend(self.origin.port().to_be_bytes());
        stream.write_all(&request).expect("a request");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[3], 0, "it is granted: {answer:?}");
        let mut content = stream.take(bytes as u64);
        std::io::copy(&mut content, &mut std::io::sink()).expect("content") as usize
    }

    /// Stops the server in order.
    pub(super) fn stop_server(&mut self) {
        self.daemons.remove(0).stop();
    }

    /// Ends both daemons at once.
    pub(super) fn kill(&mut self) {
        self.daemons.clear();
    }
}
