//! What crosses the first terminal's tunnel as packets: voice, and bulk with a congestion control of its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::tcp::{self, Ack, Config, Receiver, Segment, Sender};
use bentpipe_link::sim::next_wakeup;
use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bytes::Bytes;

/// From one packet of a call to the next: 50 a second.
const EVERY: Duration = Duration::from_millis(20);
/// Of one packet, headers included.
const VOICE: usize = 200;
const PING: usize = 84;
/// Expedited forwarding, as a traffic class.
const EXPEDITED: u8 = 46 << 2;

/// Packets of the first terminal.
#[derive(Default)]
pub struct Inner {
    /// Streams of packets at even intervals.
    pub calls: Vec<Call>,
    /// TCP connections in packets.
    pub bulks: Vec<Bulk>,
    /// Pings that have arrived: of which call, and when they left.
    echoes: Vec<(usize, Instant)>,
    flying: HashMap<u32, Content>,
    count: u32,
}

/// Packets sent at even intervals.
pub struct Call {
    down: bool,
    size: usize,
    class: u8,
    /// Packets that arrive are sent back.
    echoed: bool,
    next: Instant,
    until: Instant,
    /// Packets sent so far.
    pub sent: u64,
    /// One-way, of those that came; of pings both ways.
    pub delays: Vec<Duration>,
}

impl Call {
    /// The delay that 95 of 100 packets do not exceed.
    pub fn p95(&self) -> Duration {
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        delays[delays.len() * 95 / 100]
    }
}

/// A transport's bulk transfer to the terminal.
pub struct Bulk {
    /// End that sends data.
    pub sender: Sender,
    /// End that acknowledges them.
    pub receiver: Receiver,
}

enum Content {
    Voice(usize, Instant),
    Ping(usize, Instant),
    Segment(usize, Segment),
    Ack(usize, Ack),
}

impl Inner {
    /// 50 packets a second for `span`.
    pub fn call(&mut self, now: Instant, down: bool, span: Duration) -> usize {
        self.stream(now, down, span, VOICE, EXPEDITED)
    }

    /// Begins a call of another size and traffic class.
    pub fn stream(
        &mut self,
        now: Instant,
        down: bool,
        span: Duration,
        size: usize,
        class: u8,
    ) -> usize {
        self.calls.push(Call {
            down,
            size,
            class,
            echoed: false,
            next: now,
            until: now + span,
            sent: 0,
            delays: Vec::new(),
        });
        self.calls.len() - 1
    }

    /// Pings by the terminal, as often.
    pub fn ping(&mut self, now: Instant, span: Duration) -> usize {
        let call = self.stream(now, false, span, PING, 0);
        self.calls[call].echoed = true;
        call
    }

    /// A download by a transport inside.
    pub fn bulk(&mut self, config: Config) -> usize {
        self.bulks.push(Bulk {
            sender: Sender::new(config),
            receiver: Receiver::default(),
        });
        self.bulks.len() - 1
    }

    /// Sends and takes what is due; `ends` are the server and the terminal. True if anything moved.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        mut ends: [(&mut Engine, ConnectionId); 2],
    ) -> bool {
        let mut busy = false;
        for (engine, id) in &mut ends {
            // Looking at a connection wakes it: only those that have something for us.
            while let Some(packet) = engine
                .peek(*id)
                .is_some_and(|connection| connection.tunnel.has_packet())
                .then(|| engine.connection(*id)?.tunnel.take_packet())
                .flatten()
            {
                self.receive(now, &packet);
                busy = true;
            }
        }
        for (down, number, size, class) in self.due(now) {
            let (engine, id) = &mut ends[usize::from(!down)];
            if let Some(connection) = engine.connection(*id) {
                connection
                    .tunnel
                    .send_packet(now, packet(down, number, size, class));
            }
            busy = true;
        }
        busy
    }

    /// Packets that are to be sent: direction, number, size and traffic class.
    fn due(&mut self, now: Instant) -> Vec<(bool, u32, usize, u8)> {
        let mut due = Vec::new();
        let mut fly = |down, content, size, class| {
            self.count += 1;
            self.flying.insert(self.count, content);
            due.push((down, self.count, size, class));
        };
        for (index, call) in self.calls.iter_mut().enumerate() {
            while call.next <= now && call.next < call.until {
                let content = match call.echoed {
                    true => Content::Ping(index, now),
                    false => Content::Voice(index, now),
                };
                fly(call.down, content, call.size, call.class);
                call.sent += 1;
                call.next += EVERY;
            }
        }
        for (index, sent) in self.echoes.drain(..) {
            let call = &self.calls[index];
            fly(
                !call.down,
                Content::Voice(index, sent),
                call.size,
                call.class,
            );
        }
        for (index, bulk) in self.bulks.iter_mut().enumerate() {
            bulk.sender.handle_timeout(now);
            while let Some(segment) = bulk.sender.poll_transmit(now) {
                let size = tcp::SEGMENT.as_u64() as usize;
                fly(true, Content::Segment(index, segment), size, 0);
            }
            while let Some(ack) = bulk.receiver.poll_transmit(now) {
                let size = tcp::ACK.as_u64() as usize;
                fly(false, Content::Ack(index, ack), size, 0);
            }
        }
        due
    }

    fn receive(&mut self, now: Instant, packet: &[u8]) {
        let number = u32::from_be_bytes(packet[28..32].try_into().expect("four bytes"));
        match self.flying.remove(&number).expect("each comes once") {
            Content::Voice(call, sent) => self.calls[call].delays.push(now - sent),
            Content::Ping(call, sent) => self.echoes.push((call, sent)),
            Content::Segment(bulk, segment) => {
                self.bulks[bulk].receiver.handle_segment(now, segment);
            }
            Content::Ack(bulk, ack) => self.bulks[bulk].sender.handle_ack(now, &ack),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let calls = self.calls.iter().filter(|call| call.next < call.until);
        let calls = calls.map(|call| Some(call.next));
        let timers = |bulk: &Bulk| [bulk.sender.poll_timeout(), bulk.receiver.poll_timeout()];
        next_wakeup(calls.chain(self.bulks.iter().flat_map(timers)))
    }
}

/// A UDP packet over IPv4.
fn packet(down: bool, number: u32, size: usize, class: u8) -> Bytes {
    let mut packet = vec![0; size];
    packet[..2].copy_from_slice(&[0x45, class]);
    packet[2..4].copy_from_slice(&(size as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    let ends = [[100, 96, 0, 2], [192, 0, 2, 1]];
    packet[12..16].copy_from_slice(&ends[usize::from(down)]);
    packet[16..20].copy_from_slice(&ends[usize::from(!down)]);
    packet[20..22].copy_from_slice(&u16::from(class).to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet.into()
}
