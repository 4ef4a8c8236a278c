//! Everybody else: bytes inside of TLS to the web server and back, as they come.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::upstream::{ClientEnds, connect};
use super::web_server::WebStream;
use super::{OriginServer, PATIENCE};
use crate::relay::over_tcp::OverTcp as _;

/// Relays a connection to its end.
pub(super) async fn serve(origin: &OriginServer, tls: TlsStream<TcpStream>) {
    relay(origin, tls, &[]).await;
}

/// Relays a connection of which `first` was read already.
pub(super) async fn relay(origin: &OriginServer, mut tls: TlsStream<TcpStream>, first: &[u8]) {
    let Ok(ends) = ClientEnds::of(tls.get_ref().0) else {
        return;
    };
    // The fault is told already; the connection is reset.
    let Ok(mut web) = connect(origin, ends).await else {
        return;
    };
    if web.write_all(first).await.is_ok() && both_ways(&mut tls, &mut web).await.is_ok() {
        tls.close_in_order();
    }
}

/// Copies until both sides have ended; a peer that stays when the web server has ended is left soon, for it holds a place.
async fn both_ways(
    peer: &mut (impl AsyncRead + AsyncWrite + Unpin),
    web: &mut WebStream,
) -> std::io::Result<()> {
    let (mut from_peer, mut to_peer) = split(peer);
    let (mut from_web, mut to_web) = split(web);
    let up = async {
        copy(&mut from_peer, &mut to_web).await?;
        to_web.shutdown().await
    };
    let down = async {
        copy(&mut from_web, &mut to_peer).await?;
        to_peer.shutdown().await
    };
    tokio::pin!(up, down);
    tokio::select! {
        ended = &mut up => {
            ended?;
            down.await
        }
        ended = &mut down => {
            ended?;
            // What it has not ended by then says nothing more to anybody.
            timeout(PATIENCE, up).await.unwrap_or(Ok(()))
        }
    }
}
