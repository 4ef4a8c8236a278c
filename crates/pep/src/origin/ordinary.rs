//! Everybody else: bytes inside of TLS to the web server and back, as they come.

use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::OriginServer;
use super::upstream::connect;
use crate::relay::over_tcp::OverTcp as _;

/// Relays a connection to its end.
pub(super) async fn serve(origin: &OriginServer, tls: TlsStream<TcpStream>) {
    relay(origin, tls, &[]).await;
}

/// Relays a connection of which `first` was read already.
pub(super) async fn relay(origin: &OriginServer, mut tls: TlsStream<TcpStream>, first: &[u8]) {
    let mut web = match connect(origin.upstream).await {
        Ok(web) => web,
        Err(error) => return tell(origin, &error),
    };
    if web.write_all(first).await.is_ok() && copy_bidirectional(&mut tls, &mut web).await.is_ok() {
        tls.close_in_order();
    }
}

/// Tells the log of a web server that cannot be reached; the connection is reset.
pub(super) fn tell(origin: &OriginServer, error: &std::io::Error) {
    if origin.complaints.is_due(crate::process::now()) {
        let upstream = origin.upstream;
        tracing::warn!(
            "the web server http://{upstream} cannot be reached: {error}; start it, or correct `upstream`"
        );
    }
}
