//! Streams of the peer's that have begun and not yet said what they are: OPEN, INBOUND or a query has to be whole in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use quinn_proto::{Connection, Side};

use super::flow::{FlowKey, Header};
use super::tunnel::{Tunnel, refuse};
use bentpipe_proto::tunnel::AbortCode;

/// Time that a stream has from its first byte to the last of its OPEN, INBOUND or query (`PROTOCOL.md` §9). What was lost is
/// there after some round trips.
const PATIENCE: Duration = Duration::from_secs(10);

/// Deadlines of streams that have not said what they are. There are no more of them than flows and queries.
#[derive(Debug, Default)]
pub(super) struct Headers {
    due: BTreeMap<FlowKey, Instant>,
    order: BTreeSet<(Instant, FlowKey)>,
}

impl Headers {
    /// A stream that came now is to say what it is.
    pub(super) fn expect(&mut self, now: Instant, key: FlowKey) {
        if !self.due.contains_key(&key) {
            self.keep(Some(now + PATIENCE), key);
        }
    }

    /// Deadline of a stream, if it has one.
    pub(super) fn due(&self, key: FlowKey) -> Option<Instant> {
        self.due.get(&key).copied()
    }

    /// The stream has until `due`.
    pub(super) fn keep(&mut self, due: Option<Instant>, key: FlowKey) {
        if let Some(due) = due {
            self.due.insert(key, due);
            self.order.insert((due, key));
        }
    }

    /// The stream has said what it is, or is no more.
    pub(super) fn forget(&mut self, key: FlowKey) {
        if let Some(due) = self.due.remove(&key) {
            self.order.remove(&(due, key));
        }
    }
}

impl Tunnel {
    /// The stream has not said all that it has to say first.
    pub(super) fn is_headless(&self, key: FlowKey) -> bool {
        let flow = self.flows.get(&key);
        flow.is_some_and(|flow| !flow.opened_here && flow.header == Header::Expected)
            || self.side == Side::Server && self.queries.is_unfinished(key.stream())
    }

    /// Earliest deadline.
    pub(crate) fn header_timeout(&self) -> Option<Instant> {
        self.headers.order.first().map(|(due, _)| *due)
    }

    /// Refuses the streams that are out of time; if the peer is `excused`, by an outage of the link, they get more of it.
    pub(crate) fn expire_headers(&mut self, now: Instant, quic: &mut Connection, excused: bool) {
        while let Some(&(due, key)) = self.headers.order.first()
            && due <= now
        {
            self.headers.forget(key);
            if excused {
                self.headers.expect(now, key);
            } else if self.flows.contains_key(&key) {
                self.throw_away(quic, key, AbortCode::MemoryLimit);
            } else if self.queries.knows(key.stream()) {
                self.drop_query(quic, key.stream());
            } else {
                refuse(quic, key.stream());
            }
        }
    }
}
