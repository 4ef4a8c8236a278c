//! SOCKS5 and HTTP CONNECT as applications speak them, to a client that listens on the terminal's loopback.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};

use anyhow::{Context as _, Result, ensure};

use super::peer::{PATIENCE, read_exactly, set_patience};
use super::site::Site;

/// Address of the client's SOCKS5 front end.
pub const SOCKS5: &str = "127.0.0.1:1080";
/// Address of the client's HTTP CONNECT front end.
pub const HTTP: &str = "127.0.0.1:3128";

/// Both protocols, as an application speaks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    /// SOCKS version 5.
    Socks5,
    /// HTTP/1.1 with CONNECT.
    Http,
}

/// Answer of a proxy to an application.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A SOCKS5 reply code.
    Code(u8),
    /// An HTTP status.
    Status(u16),
}

impl Proxy {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Socks5, Self::Http];

    /// Answer that grants a connection.
    pub fn success(self) -> Answer {
        match self {
            Self::Socks5 => Answer::Code(0),
            Self::Http => Answer::Status(200),
        }
    }

    /// Asks a site's client for `target`, a name or an address, and returns the answer.
    pub fn connect(self, site: &Site, target: &str, port: u16) -> Result<(TcpStream, Answer)> {
        let address: SocketAddr = match self {
            Self::Socks5 => SOCKS5,
            Self::Http => HTTP,
        }
        .parse()?;
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let mut stream = site.topology.terminal().enter(connect)??;
        set_patience(&stream, PATIENCE)?;
        let answer = self.ask(&mut stream, target, port)?;
        Ok((stream, answer))
    }

    /// Asks the client behind `stream` for `target`, a name or an address, and returns the answer.
    pub fn ask(self, stream: &mut TcpStream, target: &str, port: u16) -> Result<Answer> {
        let answer = match self {
            Self::Socks5 => socks5(stream, target, port),
            Self::Http => http(stream, target, port),
        };
        answer.with_context(|| format!("{self:?} to {target}:{port}"))
    }
}

/// RFC 1928, without authentication.
fn socks5(stream: &mut TcpStream, target: &str, port: u16) -> Result<Answer> {
    stream.write_all(&[5, 1, 0])?;
    ensure!(
        read_exactly(stream, 2)? == [5, 0],
        "no agreement on a method"
    );
    let mut request = vec![5, 1, 0];
    match target.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend(address.octets());
        }
        Err(_) => {
            request.extend([3, u8::try_from(target.len())?]);
            request.extend(target.bytes());
        }
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request)?;
    let reply = read_exactly(stream, 4)?;
    ensure!(reply[0] == 5 && reply[2] == 0, "no SOCKS5 reply: {reply:?}");
    let bound = match reply[3] {
        1 => 6,
        4 => 18,
        other => anyhow::bail!("address type {other}"),
    };
    read_exactly(stream, bound)?;
    Ok(Answer::Code(reply[1]))
}

/// RFC 9110, section 9.3.6.
fn http(stream: &mut TcpStream, target: &str, port: u16) -> Result<Answer> {
    let authority = match target.parse() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("{target}:{port}"),
    };
    write!(
        stream,
        "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // One at a time: what follows the head is the destination's.
        head.extend(read_exactly(stream, 1)?);
    }
    let head = String::from_utf8(head)?;
    let status = head
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    let status = status.with_context(|| format!("no status: {head}"))?;
    Ok(Answer::Status(status.parse()?))
}
