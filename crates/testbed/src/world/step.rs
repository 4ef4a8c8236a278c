//! What happens at one instant: packets arrive, timers fire, everybody acts until nobody has anything left to do.

use std::time::{Duration, Instant};

use bentpipe_link::Duplex;
use bentpipe_link::sim::next_wakeup;
use bentpipe_proto::tunnel::ReplyCode;
use bentpipe_tunnel::engine::{ConnectionNotice, Event, is_over_tcp};
use bentpipe_tunnel::transport::TunnelEvent;

use super::stream::{TcpWire, arrival};
use super::wire::{Access, Packet, Towards, packets};
use super::{Competitor, SERVER, Terminal, World};

impl World {
    /// Everything that happens at this instant, then on to the next one, at most to `deadline`.
    pub(super) fn step(&mut self, deadline: Instant) {
        let now = self.now;
        self.deliver();
        self.deliver_by_tcp();
        for terminal in &mut self.terminals {
            terminal.wake(now);
        }
        self.server.handle_timeout(now);
        self.refuse();
        while self.act() {}
        self.compete_now();
        let timeouts = [
            self.server.poll_timeout(),
            self.link.poll_timeout(),
            self.access.poll_timeout(),
            self.behaviour.refusals.first().map(|(due, ..)| *due),
            self.inner.poll_timeout(),
            self.origins.poll_timeout(),
        ];
        let tcp = self
            .terminals
            .iter()
            .filter_map(|terminal| terminal.tcp.as_ref());
        let tcp = next_wakeup(tcp.map(TcpWire::poll_timeout));
        let terminals = self.terminals.iter_mut().map(Terminal::poll_timeout);
        let competitors = self.competitors.iter().map(Competitor::poll_timeout);
        let all = timeouts
            .into_iter()
            .chain([tcp])
            .chain(terminals)
            .chain(competitors);
        let next = next_wakeup(all).unwrap_or(deadline);
        // In real time this would be a busy loop.
        self.spins = if next > now { 0 } else { self.spins + 1 };
        assert!(
            self.spins < 100,
            "a timer is due and nothing happens; {}",
            self.describe()
        );
        self.now = next.clamp(now + Duration::from_nanos(1), deadline);
    }

    /// One turn of everybody who is awake; true if anything moved.
    fn act(&mut self) -> bool {
        let mut busy = false;
        for terminal in &mut self.terminals {
            busy |= terminal.awake && terminal.poll(self.start, self.now);
        }
        if self.server.is_dirty() {
            while let Some(event) = self.server.poll_event(self.now) {
                self.on_server_event(event);
                busy = true;
            }
        }
        if self.server.is_dirty() || self.origins.is_due(self.now) {
            busy |= self.origins.poll(self.now, &mut self.server);
        }
        busy |= self.carry_packets();
        busy |= self.transmit();
        busy || self.work()
    }

    /// Does work that can wait for others: as in the shell, when nothing else is to be done.
    fn work(&mut self) -> bool {
        let mut busy = false;
        for terminal in &mut self.terminals {
            if terminal.engine.has_work() {
                terminal.engine.work(self.now);
                terminal.awake = true;
                busy = true;
            }
        }
        if self.server.has_work() {
            self.server.work(self.now);
            busy = true;
        }
        busy
    }

    /// Packets go into the first terminal's tunnel and come out of it.
    fn carry_packets(&mut self) -> bool {
        let terminal = &mut self.terminals[0];
        let server = self.server.connections().next().map(|(id, _)| id);
        let (Some((tunnel, _)), Some(server)) = (terminal.ready, server) else {
            return false;
        };
        let ends = [(&mut self.server, server), (&mut terminal.engine, tunnel)];
        let busy = self.inner.poll(self.now, ends);
        // Its engine has to be asked for output.
        terminal.awake |= busy;
        busy
    }

    fn refuse(&mut self) {
        let due = self
            .behaviour
            .refusals
            .partition_point(|(due, ..)| *due <= self.now);
        for (_, connection, flow) in self.behaviour.refusals.drain(..due) {
            if let Some(connection) = self.server.connection(connection) {
                let (tunnel, quic) = connection.parts();
                tunnel.reply(quic, flow, ReplyCode::Refused, None);
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((_, mut packet)) = self.link.forward_link.poll_output(self.now) {
            if self.impairments.mark_all {
                packet.mark();
            }
            let access = self.access_of(&packet);
            if access.is_zero() {
                self.receive(packet);
            } else {
                let due = self.now + access;
                self.access.push(due, Towards::Terminals, packet);
            }
        }
        while let Some((towards, packet)) = self.access.pop_due(self.now) {
            match towards {
                Towards::Terminals => self.receive(packet),
                Towards::Server => {
                    let size = packet.size();
                    self.link.return_link.handle_packet(self.now, size, packet);
                }
            }
        }
        while let Some((_, packet)) = self.link.return_link.poll_output(self.now) {
            self.receive(packet);
        }
    }

    /// Delay between the link and the terminal that `packet` goes to.
    fn access_of(&self, packet: &Packet) -> Duration {
        match packet {
            Packet::Tunnel(datagram) => self
                .terminals
                .iter()
                .find(|terminal| terminal.address == datagram.to)
                .map_or(Duration::ZERO, |terminal| terminal.access),
            Packet::Segment(flow, _) | Packet::Ack(flow, _) => self.competitors[*flow].access,
        }
    }

    fn receive(&mut self, packet: Packet) {
        let datagram = match packet {
            Packet::Tunnel(datagram) => datagram,
            Packet::Segment(flow, segment) => {
                let receiver = &mut self.competitors[flow].receiver;
                return receiver.handle_segment(self.now, segment);
            }
            Packet::Ack(flow, ack) => {
                let sender = &mut self.competitors[flow].sender;
                return sender.handle_ack(self.now, &ack);
            }
        };
        if self
            .impairments
            .largest
            .is_some_and(|largest| datagram.data.len() > largest)
        {
            return;
        }
        if self.impairments.blocks_udp {
            return;
        }
        let engine = if datagram.to == SERVER.into() {
            &mut self.server
        } else {
            let mut terminals = self.terminals.iter_mut();
            // Nobody has the address any more: the datagram is lost.
            match terminals.find(|terminal| terminal.address == datagram.to) {
                Some(terminal) => &mut terminal.engine,
                None => return,
            }
        };
        engine.handle_datagram(self.now, arrival(self.now, datagram));
    }

    fn transmit(&mut self) -> bool {
        let mut buf = Vec::new();
        let mut busy = false;
        let now = self.now;
        for terminal in self.terminals.iter_mut().filter(|terminal| terminal.awake) {
            while let Some(output) = terminal.engine.poll_transmit(now, &mut buf) {
                for packet in packets(terminal.address, &output, &buf) {
                    self.sent[1].count(packet.size());
                    let Some(packet) = terminal.send_by_tcp(now, packet) else {
                        continue;
                    };
                    let way = (Towards::Server, terminal.access);
                    send(now, &mut self.link, &mut self.access, way, packet);
                }
                self.trace.push((now - self.start, 1, output.size));
                buf.clear();
                busy = true;
            }
        }
        while let Some(output) = self.server.poll_transmit(now, &mut buf) {
            let before = turned_away(&self.link);
            for packet in packets(SERVER.into(), &output, &buf) {
                self.sent[0].count(packet.size());
                let Some(packet) = self.reply_by_tcp(packet) else {
                    continue;
                };
                let way = (Towards::Terminals, Duration::ZERO);
                send(now, &mut self.link, &mut self.access, way, packet);
            }
            self.sent[0].dropped += turned_away(&self.link) - before;
            self.trace.push((now - self.start, 0, output.size));
            buf.clear();
            busy = true;
        }
        busy
    }

    /// Hands over what has arrived by TCP, and says how much waits.
    pub(super) fn deliver_by_tcp(&mut self) {
        let now = self.now;
        for terminal in &mut self.terminals {
            let Some(tcp) = &mut terminal.tcp else {
                continue;
            };
            while let Some(datagram) = tcp.up.pop(now) {
                self.server.handle_datagram(now, arrival(now, datagram));
            }
            while let Some(datagram) = tcp.down.pop(now) {
                terminal.engine.handle_datagram(now, arrival(now, datagram));
            }
            if is_over_tcp(terminal.address) {
                let [up, down] = [&tcp.up, &tcp.down].map(|stream| Some(stream.waiting()));
                terminal.engine.set_waiting(SERVER.into(), up);
                self.server.set_waiting(terminal.address, down);
            }
        }
    }

    /// Has a packet of the server's travel by the TCP connection that leads to its terminal; gives it back if none does.
    pub(super) fn reply_by_tcp(&mut self, packet: Packet) -> Option<Packet> {
        let Packet::Tunnel(datagram) = packet else {
            return Some(packet);
        };
        let to = datagram.to;
        let mut terminals = self.terminals.iter_mut();
        let terminal = terminals.find(|terminal| is_over_tcp(to) && terminal.address == to);
        let Some(tcp) = terminal.and_then(|terminal| terminal.tcp.as_mut()) else {
            return Some(Packet::Tunnel(datagram));
        };
        tcp.down.push(self.now, datagram);
        self.server.set_waiting(to, Some(tcp.down.waiting()));
        None
    }

    fn compete_now(&mut self) {
        let (now, link, access) = (self.now, &mut self.link, &mut self.access);
        for (flow, competitor) in self.competitors.iter_mut().enumerate() {
            let distance = competitor.access;
            competitor.transmit(now, flow, |towards, packet| {
                send(now, link, access, (towards, distance), packet);
            });
        }
    }

    fn on_server_event(&mut self, event: Event) {
        match event.notice {
            ConnectionNotice::Tunnel(TunnelEvent::Opened(flow, open)) => {
                if let Some(opened) = &mut self.behaviour.opened {
                    let number = super::origins::amount(&open.destination);
                    return opened.push((event.connection, flow, number));
                }
                if let Some(delay) = self.behaviour.refuse_after {
                    let due = self.now + delay;
                    return self.behaviour.refusals.push((due, event.connection, flow));
                }
                if self.behaviour.silent {
                    return super::origins::answer(&mut self.server, event.connection, flow);
                }
                let flow = (event.connection, flow);
                self.origins
                    .open(self.now, &mut self.server, flow, &open.destination);
            }
            ConnectionNotice::Tunnel(TunnelEvent::Flow(flow)) => {
                let noticed = &mut self.behaviour.noticed;
                noticed
                    .iter_mut()
                    .for_each(|noticed| noticed.push((event.connection, flow)));
            }
            ConnectionNotice::Tunnel(TunnelEvent::Query(query, _)) => {
                if let Some(held) = self.server.connection(event.connection) {
                    held.answer(query, Some(super::origins::payload(300)));
                }
            }
            ConnectionNotice::Tunnel(TunnelEvent::SleEpoch(epoch, random)) => {
                self.behaviour.sle_epochs.push((epoch, random));
            }
            ConnectionNotice::Connected => {
                let connection = self.server.connection(event.connection);
                if let Some(connection) = connection {
                    let terminal = connection.parts().1.remote_address();
                    if let Some(saved) = self.behaviour.known_paths.get(&terminal) {
                        connection.resume(self.now, *saved);
                    }
                }
            }
            ConnectionNotice::Fault(_) if self.behaviour.expects_fault => {}
            ConnectionNotice::Fault(fault) => panic!("the server found a fault: {fault}"),
            _ => {}
        }
    }
}

/// Packets that did not get into the forward link.
fn turned_away(link: &Duplex<Packet>) -> u64 {
    let stats = link.forward_link.stats();
    stats.dropped_queue + stats.dropped_policer
}

/// Gives a packet to the link; from a terminal that is some way off it gets there later.
fn send(
    now: Instant,
    link: &mut Duplex<Packet>,
    access: &mut Access,
    (towards, distance): (Towards, Duration),
    packet: Packet,
) {
    let size = packet.size();
    match towards {
        Towards::Terminals => link.forward_link.handle_packet(now, size, packet),
        Towards::Server if distance.is_zero() => link.return_link.handle_packet(now, size, packet),
        Towards::Server => access.push(now + distance, Towards::Server, packet),
    }
}
