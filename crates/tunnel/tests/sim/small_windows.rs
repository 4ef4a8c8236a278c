//! Peers that let this side send little at a time, as RFC 9000 §4 permits: streams take parts of what they are given.

use bentpipe_proto::tunnel::{FlowId, Open, ReplyCode};
use bentpipe_testbed::world::source;
use bentpipe_tunnel::transport::TunnelEvent;
use bytes::Bytes;
use quinn_proto::{TransportConfig, VarInt};

use crate::released::served;

/// Downloads `bytes` by a client that gives the connection and each stream so much credit at a time.
fn download(connection: u32, stream: u32, bytes: usize) {
    let mut transport = TransportConfig::default();
    transport
        .receive_window(VarInt::from_u32(connection))
        .stream_receive_window(VarInt::from_u32(stream));
    let (mut world, _) = served(transport);
    let mut open = Vec::new();
    let header = Open {
        flow: FlowId(0),
        destination: source(0),
        source: None,
        credit: bytes as u64,
        page: false,
    };
    header.encode(&mut open);
    let stream = world.peer.begin(&open);
    let flow = world.run_until("a flow", |world| {
        let mut events = world.events.drain(..);
        events.find_map(|event| match event {
            TunnelEvent::Opened(flow, _) => Some(flow),
            _ => None,
        })
    });
    let (tunnel, quic) = world.ours().parts();
    tunnel.reply(quic, flow, ReplyCode::Ok, None);
    // So small that it is written in one piece with REPLY.
    let first = Bytes::from_static(&[0x5a; 1000]);
    let mut left = bytes - first.len();
    tunnel.push(flow, first);
    world.run_until("all of it", |world| {
        let (tunnel, _) = world.ours().parts();
        let piece = left.min(tunnel.capacity(flow));
        tunnel.push(flow, Bytes::from(vec![0x5a; piece]));
        left -= piece;
        let came = &world.peer.came[&stream];
        // REPLY precedes it.
        let payload = came.len().checked_sub(bytes).map(|header| &came[header..]);
        payload?.iter().all(|byte| *byte == 0x5a).then_some(())
    });
}

#[test]
fn a_peer_with_little_credit_for_the_connection_gets_all() {
    download(10_000, 1 << 20, 1_000_000);
}

/// Not even a REPLY fits into the stream at once.
#[test]
fn a_peer_with_little_credit_for_a_stream_gets_all() {
    download(1 << 20, 4, 2_000);
}
