//! A web page and who loads it: up to six connections a host, each with a TLS handshake, one request at a time on each, and
//! objects asked for when what refers to them is whole.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bentpipe_tunnel::transport::{FlowKey, Incoming};
use bentpipe_units::Seed;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::sites::{message, site};

/// Connections that a browser opens to one host at most.
const CONNECTIONS: usize = 6;
/// Bytes of a TLS 1.3 handshake: the client's first flight, the server's, the client's second.
const HELLO: usize = 320;
const FLIGHT: u64 = 2800;
const FINISHED: usize = 80;
/// Bytes of a request, and of an answer's fields.
const REQUEST: usize = 350;
const FIELDS: u64 = 250;
/// The smallest object.
const LEAST: u64 = 400;

/// One object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PageObject {
    length: u64,
    host: usize,
    /// Object that refers to it; the first has none.
    parent: Option<usize>,
}

/// Objects of a page, each after the one that refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagePlan(Vec<PageObject>);

/// Objects of each level, which refer to those of the next, and hosts that are known by then.
const LEVELS: [(usize, usize); 5] = [(1, 1), (34, 9), (17, 12), (11, 12), (7, 12)];
/// Bytes of all objects.
const BYTES: u64 = 2_000_000;
/// Deviation of the logarithm of lengths.
const SIGMA: f64 = 1.3;
/// Objects of a level that refer to those of the next, at most.
const REFERRERS: usize = 6;

impl PagePlan {
    /// Another page for each seed: 70 objects on 12 hosts, dependencies four deep, lengths as unequal as the web's.
    pub fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(Seed::new(seed).stream("page").as_u64());
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let (mut objects, mut weights) = (Vec::new(), Vec::new());
        let (mut above, mut known) = (0..0, 0);
        for (count, hosts) in LEVELS {
            let first = objects.len();
            for place in 0..count {
                // A level's own hosts have an object each, at least.
                let any = (uniform() * hosts as f64) as usize;
                objects.push(PageObject {
                    length: 0,
                    host: (known..hosts).nth(place).unwrap_or(any),
                    parent: above.clone().nth(place % REFERRERS.min(above.len().max(1))),
                });
                let angle = (std::f64::consts::TAU * uniform()).cos();
                let normal = (-2.0 * (1.0 - uniform()).ln()).sqrt() * angle;
                weights.push((SIGMA * normal).exp());
            }
            (above, known) = (first..objects.len(), hosts);
        }
        let sum: f64 = weights.iter().sum();
        let spare = (BYTES - LEAST * objects.len() as u64) as f64;
        for (object, weight) in objects.iter_mut().zip(weights) {
            object.length = LEAST + (spare * weight / sum) as u64;
        }
        Self(objects)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Bytes of the server's flight still to come.
    Hello(u64),
    /// Open and unused; true if the client's second flight is still to be sent.
    Idle(bool),
    /// An object, and bytes of its answer still to come.
    Busy(usize, u64),
}

/// One connection to a host.
struct Link {
    flow: FlowKey,
    host: usize,
    state: State,
}

/// A page that is being loaded.
pub struct Browser {
    connection: ConnectionId,
    plan: PagePlan,
    waiting: Vec<VecDeque<usize>>,
    links: Vec<Link>,
    /// Hosts that a connection is to be opened to.
    to_open: Vec<usize>,
    /// Objects that are not whole yet.
    left: usize,
    since: Instant,
    end: Option<Instant>,
}

impl Browser {
    pub(super) fn new(now: Instant, connection: ConnectionId, plan: PagePlan) -> Self {
        let hosts = plan
            .0
            .iter()
            .map(|object| object.host + 1)
            .max()
            .unwrap_or(0);
        let mut browser = Self {
            connection,
            waiting: vec![VecDeque::new(); hosts],
            links: Vec::new(),
            to_open: Vec::new(),
            left: plan.0.len(),
            plan,
            since: now,
            end: None,
        };
        browser.discover(0);
        browser
    }

    /// An object is known: asks for it as soon as a connection is free.
    fn discover(&mut self, index: usize) {
        let host = self.plan.0[index].host;
        self.waiting[host].push_back(index);
        let opening = self.to_open.iter().filter(|to| **to == host).count();
        let own = || self.links.iter().filter(|link| link.host == host);
        let free = own()
            .filter(|link| !matches!(link.state, State::Busy(..)))
            .count();
        if free + opening < self.waiting[host].len() && own().count() + opening < CONNECTIONS {
            self.to_open.push(host);
        }
    }

    /// Opens, asks and reads; true if anything was done.
    pub(super) fn poll(&mut self, now: Instant, client: &mut Engine) -> bool {
        if self.end.is_some() || client.peek(self.connection).is_none() {
            return false;
        }
        let mut busy = false;
        for index in 0..self.links.len() {
            busy |= self.read(client, index);
        }
        busy |= self.open(client);
        for index in 0..self.links.len() {
            busy |= self.ask(client, index);
        }
        if self.left == 0 {
            self.end = Some(now);
            self.close(client);
        }
        busy
    }

    fn open(&mut self, client: &mut Engine) -> bool {
        let hosts = std::mem::take(&mut self.to_open);
        for host in &hosts {
            let (tunnel, quic) = client
                .connection(self.connection)
                .expect("a tunnel")
                .parts();
            let flow = tunnel
                .open(quic, site(), None, message(HELLO, FLIGHT))
                .expect("a flow can be opened");
            let (host, state) = (*host, State::Hello(FLIGHT));
            self.links.push(Link { flow, host, state });
        }
        !hosts.is_empty()
    }

    fn ask(&mut self, client: &mut Engine, index: usize) -> bool {
        let link = &mut self.links[index];
        let State::Idle(fresh) = link.state else {
            return false;
        };
        let Some(object) = self.waiting[link.host].pop_front() else {
            return false;
        };
        let answer = FIELDS + self.plan.0[object].length;
        link.state = State::Busy(object, answer);
        let (tunnel, _) = client
            .connection(self.connection)
            .expect("a tunnel")
            .parts();
        let size = REQUEST + if fresh { FINISHED } else { 0 };
        tunnel.push(link.flow, message(size, answer));
        true
    }

    fn read(&mut self, client: &mut Engine, index: usize) -> bool {
        let flow = self.links[index].flow;
        let held = client.peek(self.connection).expect("a tunnel");
        match held.tunnel.incoming(flow) {
            Incoming::Data => {}
            Incoming::Blocked => return false,
            other => panic!("a flow of a page: {other:?}"),
        }
        let (tunnel, _) = client
            .connection(self.connection)
            .expect("a tunnel")
            .parts();
        tunnel.take_notice(flow);
        let came: u64 = tunnel.ready(flow).map(|chunk| chunk.len() as u64).sum();
        tunnel.consume(flow, came);
        let link = &mut self.links[index];
        match link.state {
            State::Hello(left) if left > came => link.state = State::Hello(left - came),
            State::Hello(_) => link.state = State::Idle(true),
            State::Idle(_) => panic!("an answer that nobody has asked for"),
            State::Busy(object, left) if left > came => {
                link.state = State::Busy(object, left - came);
            }
            State::Busy(object, _) => {
                link.state = State::Idle(false);
                self.left -= 1;
                self.follow(object);
            }
        }
        true
    }

    /// An object is whole: what it refers to is known.
    fn follow(&mut self, object: usize) {
        let refers = |(_, child): &(usize, &PageObject)| child.parent == Some(object);
        let children = self.plan.0.iter().enumerate().filter(refers);
        let children: Vec<_> = children.map(|(child, _)| child).collect();
        for child in children {
            self.discover(child);
        }
    }

    fn close(&mut self, client: &mut Engine) {
        for link in &self.links {
            let (tunnel, quic) = client
                .connection(self.connection)
                .expect("a tunnel")
                .parts();
            tunnel.finish(link.flow);
            tunnel.release(quic, link.flow);
        }
    }

    /// Time that the page took, once the last object is whole.
    pub fn time(&self) -> Option<Duration> {
        self.end.map(|end| end - self.since)
    }
}
