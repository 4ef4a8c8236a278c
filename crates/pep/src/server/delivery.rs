//! Packets between clients' tunnels, or their associations of LES, and this machine.

use std::convert::Infallible;
use std::future::pending;

use bentpipe_proto::tunnel::CloseCode;
use bytes::Bytes;

use super::les::LesInbox;
use super::packets::Inbox;
use super::sessions::Sessions;
use crate::les::BATCH;
use crate::process;
use bentpipe_tunnel::engine::ConnectionId;

/// Packets of a client have come by LES.
pub(super) fn take_layered(sessions: &Sessions, id: ConnectionId, packets: Vec<Bytes>) {
    let now = process::now();
    let mut open = sessions.open.borrow_mut();
    let Some(session) = open.get_mut(&id).filter(|_| !packets.is_empty()) else {
        return;
    };
    sessions.shard.change(id, |connection| {
        let crossing = &mut session.crossing;
        crossing.take_layered(&sessions.shared, now, connection, packets);
    });
}

/// Takes in packets of LES; never ends.
pub(super) async fn take_in_layered(sessions: &Sessions, inbox: Option<LesInbox>) -> Infallible {
    if let Some((layered, mut inbox)) = sessions.ways().layered().zip(inbox) {
        let mut batch = Vec::with_capacity(BATCH);
        while inbox.recv_many(&mut batch, BATCH).await > 0 {
            for (id, packets) in layered.open(batch.drain(..)) {
                take_layered(sessions, id, packets);
            }
        }
    }
    pending().await
}

/// A client's packets have come.
pub(super) fn take(sessions: &Sessions, id: ConnectionId) {
    let now = process::now();
    let mut open = sessions.open.borrow_mut();
    let Some(session) = open.get_mut(&id) else {
        return;
    };
    sessions.shard.change(id, |connection| {
        session.crossing.take(&sessions.shared, now, connection);
    });
}

/// Sends packets for this shard's clients; never ends.
pub(super) async fn deliver(sessions: &Sessions, inbox: Option<Inbox>) {
    let Some(mut inbox) = inbox else {
        return pending().await;
    };
    while let Some(batch) = inbox.recv().await {
        let now = process::now();
        let mut open = sessions.open.borrow_mut();
        sessions.shard.with(|engine| {
            for (id, packet) in batch {
                let known = open.get_mut(&id);
                if known.is_some_and(|known| !known.crossing.admits(now, &packet)) {
                    continue;
                }
                let layered = sessions.ways().layered();
                if layered.is_some_and(|layered| layered.send(id, &packet)) {
                    continue;
                }
                if let Some(connection) = engine.connection(id) {
                    connection.tunnel.send_packet(now, packet);
                }
            }
        });
    }
    pending::<()>().await;
}

/// Ends the tunnels of clients that have been given a `max_rate`, which packets of LES do not keep. They come back without.
pub(super) fn withdraw_les(sessions: &Sessions) {
    let Some(layered) = sessions.ways().layered() else {
        return;
    };
    let open = sessions.open.borrow();
    let paced = open
        .iter()
        .filter(|(id, session)| session.client.is_paced() && layered.has(**id));
    let paced: Vec<_> = paced.map(|(id, _)| *id).collect();
    drop(open);
    for id in paced {
        tracing::info!(
            client = sessions.name(id),
            "has a max_rate now, which packets of LES do not keep: its tunnel begins anew"
        );
        sessions.close(
            id,
            CloseCode::NoError,
            "a max_rate, which LES does not keep",
        );
    }
}

/// Asks for new tunnels from clients that have lost addresses or prefixes to the list. Their flows go on in the old ones; nothing that is
/// for what they had comes there any more.
pub(super) fn renew(sessions: &Sessions) {
    let mut open = sessions.open.borrow_mut();
    for (&id, session) in open.iter_mut() {
        let place = (sessions.index, id);
        if !session.crossing.withdraw(&sessions.shared, place) {
            continue;
        }
        tracing::info!(
            client = session.client.name,
            "addresses or routes that it had are no longer its own: it is asked for a new tunnel"
        );
        // Those of UDP lead to an address, which is another client's now.
        session.ports.clear();
        session.renewed = true;
        sessions
            .shard
            .change(id, |connection| connection.tunnel.send_goaway());
    }
}

/// Ends tunnels whose clients were asked for new ones, once no flow is left in them.
pub(super) fn end_renewed(sessions: &Sessions) {
    let open = sessions.open.borrow();
    let idle = sessions.shard.peek(|engine| {
        let is_idle = |id| engine.peek(id).is_some_and(|it| it.tunnel.is_idle());
        let renewed = open.iter().filter(|(_, session)| session.renewed);
        let idle = renewed.map(|(id, _)| *id).filter(|id| is_idle(*id));
        idle.collect::<Vec<_>>()
    });
    drop(open);
    for id in idle {
        sessions.close(
            id,
            CloseCode::NoError,
            "the client was asked for a new tunnel",
        );
    }
}
