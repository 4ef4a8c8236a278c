//! TLS connections that a shard has taken in: each carries the datagrams of one client, until its tunnel is elsewhere or over.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_tunnel::engine::{identity, over_tcp};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::FreshWire;
use crate::process;
use crate::shard::{Shard, TlsWire, owner};
use crate::tls::TlsSocket;

/// Time that a wire is kept without a connection that uses it.
const UNUSED: Duration = Duration::from_secs(10);
/// Time from one look at who uses a wire to the next.
const LOOK: Duration = Duration::from_secs(1);

/// Takes in wires for shard `own` of so many `shards`; never ends.
pub(in crate::server) async fn take_in(
    shard: &Rc<Shard>,
    (own, shards): (usize, usize),
    inbox: Option<mpsc::Receiver<FreshWire>>,
) -> Infallible {
    if let Some(mut inbox) = inbox {
        while let Some(fresh) = inbox.recv().await {
            let shard = shard.clone();
            spawn_local(async move {
                let peer = fresh.peer;
                let why = carry(&shard, (own, shards), fresh).await;
                tracing::debug!(%peer, "TLS connection ended: {why}");
            });
        }
    }
    pending().await
}

/// Carries datagrams until the wire ends; says why it did.
async fn carry(shard: &Rc<Shard>, (own, shards): (usize, usize), fresh: FreshWire) -> String {
    let socket = match TcpStream::from_std(fresh.tcp) {
        Ok(tcp) => TlsSocket::new(tcp, fresh.tls),
        Err(error) => return error.to_string(),
    };
    let remote = over_tcp(fresh.peer);
    let mut wire = TlsWire::resumed(shard, remote, socket, fresh.deframer);
    wire.deliver(process::now(), fresh.first);
    let is_ours = |datagram: &[u8]| owner(shards, datagram).is_none_or(|owner| owner == own);
    tokio::select! {
        end = wire.carry(is_ours) => end.to_string(),
        why = look_after(shard, remote, fresh.proven) => why.into(),
    }
}

/// Tells `proven` of the client's key; ends, and says why, once the wire is to end.
async fn look_after(
    shard: &Rc<Shard>,
    remote: SocketAddr,
    proven: oneshot::Sender<()>,
) -> &'static str {
    let (mut proven, mut unused) = (Some(proven), Duration::ZERO);
    while unused < UNUSED {
        tokio::select! {
            () = sleep(LOOK) => {}
            () = is_unheard(&mut proven) => {
                return "its client has shown no key, and another needs its place";
            }
        }
        let shown = shard.peek(|engine| {
            let connection = engine.wire_user(remote)?;
            Some(identity::peer_key(connection.quic()).is_some())
        });
        unused = shown.map_or(unused + LOOK, |_| Duration::ZERO);
        if shown == Some(true)
            && let Some(proven) = proven.take()
        {
            // The main thread ends with the daemon.
            let _ = proven.send(());
        }
    }
    "no tunnel uses it"
}

/// Ready once nobody waits for the word that the client has proven its key.
async fn is_unheard(proven: &mut Option<oneshot::Sender<()>>) {
    match proven {
        Some(proven) => proven.closed().await,
        None => pending().await,
    }
}
