//! Losses in flows that the server opens: mended like those of the client's, and never with bytes of a flow of the client's
//! whose stream has the same index.

use bentpipe_tunnel::engine::{Connection, Wishes};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use std::time::{Duration, Instant};

use bentpipe_link::{LinkConfig, LossModel};
use bentpipe_proto::fec::Fec;
use bentpipe_proto::relay::End;
use bentpipe_proto::tunnel::ReplyCode;
use bentpipe_testbed::world::{Setup, World, preset};
use bentpipe_units::{Ratio, Seed};
use bytes::Bytes;

use crate::inbound::{client, open, server};

const SOON: Duration = Duration::from_secs(60);
const SIZE: usize = 20_000;
const ROUNDS: usize = 60;

/// 50/10 Mbit/s, 650 ms, with independent losses in both directions.
fn link(loss: f64) -> LinkConfig {
    let link = preset("g5").expect("a preset");
    let mut link = link.link_config().expect("a link");
    if loss > 0.0 {
        let loss = LossModel::Iid(Ratio::new(loss).expect("a ratio"));
        (link.forward_link.loss, link.return_link.loss) = (loss, loss);
    }
    link
}

/// Bytes that stand nowhere else.
fn said(by: &str, round: usize) -> Bytes {
    let stream = Seed::new(9).stream(&format!("{by} {round}"));
    let words = (0..SIZE / 8).map(|word| stream.stream(&word.to_string()).as_u64());
    words.flat_map(u64::to_be_bytes).collect()
}

/// One end of a flow: what it has to say, and what it has heard.
struct Talk {
    flow: FlowKey,
    heard: Vec<u8>,
    ended: bool,
}

impl Talk {
    fn begin(connection: &mut Connection, flow: FlowKey, said: Bytes) -> Self {
        connection.tunnel.push(flow, said);
        connection.tunnel.finish(flow);
        Self {
            flow,
            heard: Vec::new(),
            ended: false,
        }
    }

    fn listen(&mut self, connection: &mut Connection) {
        let tunnel = &mut connection.tunnel;
        tunnel.take_notice(self.flow);
        let before = self.heard.len();
        let ready: Vec<_> = tunnel.ready(self.flow).cloned().collect();
        ready.iter().for_each(|bytes| self.heard.extend(bytes));
        tunnel.consume(self.flow, (self.heard.len() - before) as u64);
        self.ended = tunnel.incoming(self.flow) == Incoming::End(End::Fin);
    }

    fn release(&self, connection: &mut Connection) {
        let (tunnel, quic) = connection.parts();
        tunnel.release(quic, self.flow);
    }
}

/// A question of the server's side, and its answer; returns how long both took.
fn exchange(world: &mut World, round: usize) -> Duration {
    let began: Instant = world.now;
    let known = world.terminals[0].inbound.len();
    let flow = open(world).expect("a flow");
    let mut asking = Talk::begin(server(world), flow, said("question", round));
    let mut answering = None::<Talk>;
    while !asking.ended {
        assert!(world.now < began + SOON, "round {round} does not end");
        world.run_for(Duration::from_millis(5));
        let arrived = world.terminals[0].inbound.get(known).copied();
        if let Some((flow, _)) = arrived.filter(|_| answering.is_none()) {
            let (tunnel, quic) = client(world).parts();
            tunnel.reply(quic, flow, ReplyCode::Ok, None);
            answering = Some(Talk::begin(client(world), flow, said("answer", round)));
        }
        if let Some(answering) = &mut answering {
            answering.listen(client(world));
        }
        asking.listen(server(world));
    }
    let took = world.now - began;
    let mut answering = answering.expect("it came");
    // The answer does not wait for the question's last bytes.
    while !answering.ended {
        assert!(world.now < began + SOON, "round {round} does not end");
        world.run_for(Duration::from_millis(5));
        answering.listen(client(world));
    }
    let took = took.max(world.now - began);
    assert!(answering.heard == said("question", round), "round {round}");
    assert!(asking.heard == said("answer", round), "round {round}");
    asking.release(server(world));
    answering.release(client(world));
    took
}

/// The times of exchanges beside downloads of the client's, whose streams have the same indices, and what was mended at the
/// client and the server.
fn exchanges(fec: Fec, loss: f64) -> (Vec<Duration>, [u64; 2]) {
    let link = link(loss);
    let wishes = Wishes {
        fec,
        ..Wishes::default()
    };
    let mut world = World::with(&Setup {
        wishes,
        publish: [true; 2],
        ..Setup::new(&link, 7)
    });
    world.run_until(SOON, "the handshake", World::is_ready);
    world.timed_download(20_000_000);
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        world.run_for(Duration::from_millis(700));
        world.download(SIZE as u64, None);
        times.push(exchange(&mut world, round));
    }
    let at_client = client(&mut world).lane().fec().received.mended;
    let at_server = server(&mut world).lane().fec().received.mended;
    (times, [at_client, at_server])
}

#[test]
fn what_the_server_begins_does_not_wait_for_what_is_lost_and_is_what_was_sent() {
    let (usual, _) = exchanges(Fec::Auto, 0.0);
    let usual = *usual.iter().min().expect("some");
    let late = |times: &[Duration]| {
        let late = times.iter().filter(|time| **time > usual * 23 / 20);
        late.count()
    };
    let (times, mended) = exchanges(Fec::Auto, 0.02);
    let (bare, _) = exchanges(Fec::Off, 0.02);
    let (with, without) = (late(&times), late(&bare));
    println!(
        "of {ROUNDS} exchanges {with} are late, {without} without repairs; mended at client and server: {mended:?} bytes; usual {usual:?}"
    );
    assert!(mended.iter().all(|bytes| *bytes > 0), "{mended:?}");
    assert!(with <= 6, "{with}");
    assert!(without >= 20, "{without}: the test shows nothing");
}
