//! TLS connections that a shard has taken in: each carries the datagrams of one client, until its tunnel is elsewhere or over.

use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use bentpipe_tunnel::engine::{identity, over_tcp};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::FreshWire;
use crate::process;
use crate::shard::{Shard, TlsWire, owner};
use crate::tls::TlsSocket;

/// Time that a wire is kept without a connection that uses it.
const UNUSED: Duration = Duration::from_secs(10);

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
    let mut unproven = fresh.unproven;
    let unused = async {
        loop {
            sleep(UNUSED).await;
            let proven = shard.peek(|engine| {
                let connection = engine.wire_user(remote)?;
                Some(identity::peer_key(connection.quic()).is_some())
            });
            match proven {
                Some(true) => drop(unproven.take()),
                Some(false) => {}
                None => return,
            }
        }
    };
    tokio::select! {
        end = wire.carry(is_ours) => end.to_string(),
        () = unused => "no tunnel uses it".into(),
    }
}
