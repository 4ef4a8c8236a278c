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

    /// Every flow has ended in order, and no tunnel was lost; the wire in use is UDP. Returns the longest time of a short flow.
    fn expect_all_whole(&self) -> Duration {
        let terminal = &self.world.terminals[0];
        assert!(terminal.notices.is_empty(), "{:?}", terminal.notices);
        let tunnel = terminal.engine.peek(terminal.tunnel()).expect("a tunnel");
        assert!(!tunnel.is_on_reliable_wire(), "UDP passes again");
        let mut longest = Duration::ZERO;
        for (number, reader) in terminal.apps.readers.iter().enumerate() {
            let (at, ending) = reader.end.expect("it has ended");
            assert_eq!(ending, Ending::Fin, "flow {number}");
            if number > 0 {
                longest = longest.max(at - reader.since);
            }
        }
        println!(
            "{} flows, the longest {longest:?}",
            terminal.apps.readers.len()
        );
        longest
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
    let longest = client.expect_all_whole();
    assert!(longest <= 5 * RTT, "{longest:?}");
}

#[test]
fn udp_that_is_blocked_in_use_and_freed_resets_no_flow() {
    let mut client = Client::new();
    client.carry(60 * SECOND, 300 * SECOND, 560 * SECOND);
    // Those that begin as UDP is blocked wait until TLS is open.
    let longest = client.expect_all_whole();
    let limit = SILENT + OPENS + 6 * RTT;
    assert!((SILENT..limit).contains(&longest), "{longest:?}");
}
