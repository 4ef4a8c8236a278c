//! Peers that let this side send little at a time, as RFC 9000 §4 permits: streams take parts of what they are given; and one that
//! wants nothing more.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};

use bentpipe_proto::tunnel::{FlowId, Open, ReplyCode};
use bentpipe_testbed::world::source;
use bentpipe_tunnel::engine::Connection;
use bentpipe_tunnel::relay::{FlowAccess, LanSocket, Outcome, Relay};
use bentpipe_tunnel::transport::{FlowKey, Streams, Tunnel, TunnelEvent};
use bytes::Bytes;
use quinn_proto::{StreamId, TransportConfig, VarInt};

use crate::released::{World, served};

/// Begins a flow at the peer, with credit for `bytes`, and takes it here.
fn begin(world: &mut World, bytes: usize) -> (StreamId, FlowKey) {
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
    (stream, flow)
}

/// Downloads `bytes` by a client that gives the connection and each stream so much credit at a time.
fn download(connection: u32, stream: u32, bytes: usize) {
    let mut transport = TransportConfig::default();
    transport
        .receive_window(VarInt::from_u32(connection))
        .stream_receive_window(VarInt::from_u32(stream));
    let (mut world, _) = served(transport);
    let (stream, flow) = begin(&mut world, bytes);
    let (tunnel, _) = world.ours().parts();
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

/// A flow of this side's, and its tunnel.
struct At<'a>(&'a mut Connection, FlowKey);

impl FlowAccess for At<'_> {
    fn look<T>(&self, question: impl FnOnce(&Tunnel, FlowKey) -> T) -> Option<T> {
        Some(question(&self.0.tunnel, self.1))
    }

    fn with(&mut self, change: impl FnOnce(&mut Tunnel, FlowKey, &mut Streams)) {
        let (tunnel, quic) = self.0.parts();
        change(tunnel, self.1, quic);
    }
}

/// A host that has said something, and is reset.
struct ResetHost;

impl LanSocket for ResetHost {
    fn poll_read(&mut self, _: &mut Context<'_>, _: usize) -> Poll<io::Result<Bytes>> {
        panic!("read, though the peer takes nothing more");
    }

    fn poll_write(&mut self, _: &mut Context<'_>, _: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn poll_hangup(&mut self, _: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Ready(io::ErrorKind::ConnectionReset.into())
    }
}

#[test]
fn a_host_is_heard_to_be_reset_though_the_peer_takes_nothing_more_of_the_flow() {
    let (mut world, _) = served(TransportConfig::default());
    let (stream, flow) = begin(&mut world, 1 << 20);
    let stopped = world.peer.quic().recv_stream(stream).stop(0_u32.into());
    stopped.expect("it is open");
    world.run_until("STOP_SENDING", |world| {
        let (tunnel, _) = world.ours().parts();
        (!tunnel.is_sending(flow)).then_some(())
    });
    let mut relay = Relay::default();
    let mut cx = Context::from_waker(Waker::noop());
    let ended = relay.poll(&mut cx, &mut At(world.ours(), flow), &mut ResetHost);
    assert_eq!(ended, Poll::Ready(Outcome::LanReset));
}
