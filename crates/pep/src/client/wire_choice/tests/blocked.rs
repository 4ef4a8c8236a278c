//! UDP that is blocked and freed below a whole tunnel: choice, engines, flows and a TCP connection in virtual time. What the
//! shell does with sockets is done here at the instant at which that would be over.

use bentpipe_testbed::world::{Ending, TcpPath, World, preset};
use bentpipe_tunnel::engine::Connection;
use bentpipe_units::{BitRate, ByteCount};

use super::*;

/// Round-trip time of the path.
const RTT: Duration = Duration::from_millis(500);

/// TCP over that path.
const PATH: TcpPath = TcpPath {
    rate: BitRate::megabits_per_second(10),
    one_way_delay: Duration::from_millis(250),
    loss: 0.0,
    buffer: ByteCount::new(1 << 20),
};

/// Time in which TCP and TLS are open, and in which a handshake over UDP is answered or given up (`wires.rs`).
const OPENS: Duration = Duration::from_secs(1);
const GIVEN_UP: Duration = Duration::from_secs(8);

/// Time between two looks at what is to be done.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes a second that the flow reads which lasts from beginning to end.
const STEADY: u64 = 20_000;

/// A client with its tunnel and the wires that it may use.
struct Client {
    world: World,
    choice: WireChoice,
    opens: Option<Instant>,
    tried: Option<Instant>,
    /// Bytes that the first flow has read, and since when.
    got: (u64, Instant),
    /// Longest time in which it has read nothing.
    gap: Duration,
}

impl Client {
    /// A client that has just begun to connect.
    fn new() -> Self {
        let link = preset("geo").expect("a preset");
        let world = World::new(&link.link_config().expect("a link"), 1);
        Self {
            choice: WireChoice::new(WirePreference::Auto),
            opens: None,
            tried: None,
            got: (0, world.now),
            gap: Duration::ZERO,
            world,
        }
    }

    fn need(&self) -> Need {
        let terminal = &self.world.terminals[0];
        let Some((tunnel, _)) = terminal.ready else {
            return attempt(self.world.start);
        };
        let tunnel = terminal.engine.peek(tunnel);
        Need::Tunnel {
            silent: tunnel.and_then(Connection::unanswered_since),
        }
    }

    /// Runs to this time since the beginning.
    fn run_to(&mut self, at: Duration) {
        while self.world.at() < at {
            self.world.run_for(LOOK);
            self.choose();
            self.watch();
        }
    }

    fn choose(&mut self) {
        let (now, need) = (self.world.now, self.need());
        if self.opens.take_if(|due| *due <= now).is_some() {
            self.open(now, need);
        }
        let blocked = self.world.impairments.blocks_udp;
        if self.tried.take_if(|due| *due <= now).is_some() && self.choice.on_tried(now, !blocked) {
            println!("{:?}: UDP again", self.world.at());
            self.world.change_wire(0, None);
        }
        match self.choice.poll(now, need) {
            WireStep::Wait(_) => {}
            WireStep::Open => self.opens = Some(now + OPENS),
            WireStep::TryUdp => self.tried = Some(now + if blocked { GIVEN_UP } else { OPENS }),
        }
    }

    fn open(&mut self, now: Instant, need: Need) {
        if self.choice.on_opened(now, need) == TlsFate::Unwanted {
            return;
        }
        println!("{:?}: over TLS", self.world.at());
        self.world.change_wire(0, Some(PATH));
        if let Need::Attempt { .. } = need {
            let terminal = &mut self.world.terminals[0];
            let attempt = terminal.tunnels[0];
            let attempt = terminal.engine.connection(attempt).expect("the attempt");
            attempt.abandon(now);
            self.world.connect(0);
        }
    }

    /// Looks how long the first flow reads nothing.
    fn watch(&mut self) {
        let Some(reader) = self.world.terminals[0].apps.readers.first() else {
            self.got.1 = self.world.now;
            return;
        };
        if reader.got > self.got.0 {
            self.gap = self.gap.max(self.world.now - self.got.1);
            self.got = (reader.got, self.world.now);
        }
    }

    /// Opens flows for `lasting`, one of them for all that time, while UDP is blocked `from` then on and freed later.
    fn carry(&mut self, from: Duration, freed: Duration, lasting: Duration) {
        let bytes = STEADY * lasting.as_secs();
        let mut at = Duration::ZERO;
        while at < lasting {
            at += 10 * SECOND;
            self.run_to(at);
            self.world.impairments.blocks_udp = (from..freed).contains(&at);
            if at == 10 * SECOND {
                self.world.download(bytes, Some(STEADY));
            }
            self.world.download(100_000, None);
            let now = self.world.now;
            self.world.terminals[0].upload(now, 100_000);
        }
        self.run_to(lasting + 60 * SECOND);
    }

    /// Every flow has ended in order, and no tunnel was lost; the wire in use is UDP.
    fn expect_all_whole(&self) {
        let terminal = &self.world.terminals[0];
        let ends = terminal.apps.readers.iter().map(|reader| reader.end);
        for (number, end) in ends.enumerate() {
            assert_eq!(end.map(|end| end.1), Some(Ending::Fin), "flow {number}");
        }
        let tunnel = terminal.engine.peek(terminal.tunnel()).expect("a tunnel");
        assert!(!tunnel.is_on_reliable_wire(), "UDP passes again");
        println!(
            "{} flows; nothing for {:?}",
            terminal.apps.readers.len(),
            self.gap
        );
    }
}

#[test]
fn udp_that_is_blocked_from_the_start_and_freed_resets_no_flow() {
    let mut client = Client::new();
    client.world.impairments.blocks_udp = true;
    client.run_to(10 * SECOND);
    let (_, ready) = client.world.terminals[0].ready.expect("a tunnel");
    let ready = ready - client.world.start;
    // TCP, TLS, QUIC and HELLO, and a look at the time before and after.
    assert!(ready <= PATIENCE + 4 * RTT + 2 * LOOK, "{ready:?}");
    client.carry(Duration::ZERO, 300 * SECOND, 500 * SECOND);
    client.expect_all_whole();
    // The abandoned attempt alone.
    assert_eq!(client.world.terminals[0].notices.len(), 1);
    assert!(client.gap <= 3 * RTT, "{:?}", client.gap);
}

#[test]
fn udp_that_is_blocked_in_use_and_freed_resets_no_flow() {
    let mut client = Client::new();
    client.carry(60 * SECOND, 300 * SECOND, 560 * SECOND);
    client.expect_all_whole();
    assert!(client.world.terminals[0].notices.is_empty());
    assert!(client.gap <= SILENT + OPENS + 6 * RTT, "{:?}", client.gap);
}
