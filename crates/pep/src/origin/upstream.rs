//! Connections to the web server behind an origin.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::asked::AskedStream;

/// Time in which a web server takes a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection to the web server, on which a request has been sent.
pub(super) type Upstream = AskedStream<TcpStream>;

/// A new connection to the web server at `address`.
pub(super) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = timeout(CONNECT, TcpStream::connect(address)).await??;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
