//! Connections to the web server behind an origin.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

use super::OriginServer;
use super::counts::count;
use super::web_server::WebStream;
use crate::asked::AskedStream;
use crate::process;

/// A connection to the web server, on which a request has been sent.
pub(super) type Upstream = AskedStream<WebStream>;

/// Both ends of a connection to the origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientEnds {
    from: SocketAddr,
    to: SocketAddr,
}

impl ClientEnds {
    /// Ends of `tcp`.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn of(tcp: &TcpStream) -> io::Result<Self> {
        Ok(Self {
            from: process::canonical(tcp.peer_addr()?),
            to: process::canonical(tcp.local_addr()?),
        })
    }

    /// Header of the PROXY protocol, version 2 (HAProxy's `proxy-protocol.txt` §2.2): a TCP connection with these ends.
    fn header(self) -> Vec<u8> {
        // Family and protocol, and the length of what follows.
        let (kind, addresses) = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ([0x11, 0, 12], [from.octets(), to.octets()].concat())
            }
            (from, to) => ([0x21, 0, 36], [from, to].map(in_ipv6).concat()),
        };
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
        header.extend(kind);
        header.extend(addresses);
        header.extend(self.from.port().to_be_bytes());
        header.extend(self.to.port().to_be_bytes());
        header
    }
}

fn in_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A new connection to the web server of `origin`, for somebody whose connection has these `ends`.
///
/// # Errors
/// The web server takes none, which is counted and told.
pub(super) async fn connect(origin: &OriginServer, ends: ClientEnds) -> io::Result<WebStream> {
    let header = origin.config.proxy_protocol.then(|| ends.header());
    let connected = origin.web.connect(&header.unwrap_or_default()).await;
    connected.inspect_err(|_| count(&origin.counts.unreached))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::super::web_server::WebServer;
    use super::*;

    fn ends(from: &str, to: &str) -> ClientEnds {
        let [from, to] = [from, to].map(|text| text.parse().unwrap());
        ClientEnds { from, to }
    }

    #[tokio::test]
    async fn a_web_server_hears_whose_connection_it_is_before_all_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let header = ends("192.0.2.7:50000", "198.51.100.1:443").header();
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        expected.extend([192, 0, 2, 7, 198, 51, 100, 1, 0xc3, 0x50, 0x01, 0xbb]);
        assert_eq!(header, expected);
        let server = WebServer::new(listener.local_addr().unwrap());
        let connected = server.connect(&header).await;
        let (mut web, _) = listener.accept().await.unwrap();
        let mut heard = [0; 28];
        web.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard.to_vec(), expected);
        drop(connected);
    }

    #[test]
    fn ends_of_ipv6_are_told_as_such() {
        let header = ends("[2001:db8::7]:50000", "[2001:db8::1]:443").header();
        assert_eq!((header.len(), header[13], header[15]), (52, 0x21, 36));
        assert_eq!(header[16..20], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(header[48..], [0xc3, 0x50, 0x01, 0xbb]);
    }
}
