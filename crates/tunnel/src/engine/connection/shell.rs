//! Questions of the engine and its shell to a connection, for turns, `status`, metrics and records, and what they tell one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bentpipe_congestion::{Kind, Saved};
use bentpipe_proto::tunnel::CloseCode;
use bentpipe_units::BitRate;
use bytes::Bytes;
use quinn_proto::{Dir, VarInt};
use zeroize::Zeroizing;

use super::super::ledger::Ledger;
use super::super::profile::{AckPolicy, Link};
use super::super::reliable::peer_of;
use super::super::settings::Wishes;
use super::super::totals::Totals;
use super::streams::streams_for;
use super::{Connection, FirstWords, Unreachable, UnreachableCause};
use crate::transport::{Lane, OpenError, QueryKey, Streams, Tunnel};

impl Connection {
    /// The QUIC connection below, to ask for its path, peer and counters.
    #[must_use]
    pub fn quic(&self) -> &quinn_proto::Connection {
        self.quic.quic()
    }

    /// The connection but for its flows and streams, to ask for its queries and repairs.
    #[must_use]
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Peer's address, an IPv4 address in its own form whichever family the socket below has. One of a link alone has the interface of that as
    /// its scope, where datagrams leave by the UDP socket.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        peer_of(self.quic.remote_address())
    }

    /// Peer's address as the engine knows it: of the UDP socket's form, or made by [`over_tcp`](crate::engine::over_tcp).
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.quic.remote_address()
    }

    /// True if the wire below delivers in order whatever it takes.
    #[must_use]
    pub fn is_on_reliable_wire(&self) -> bool {
        self.control.is_reliable()
    }

    /// Streams that the peer may hold open now.
    pub fn allowed_streams(&self) -> u64 {
        self.quic.max_concurrent_streams(Dir::Bi)
    }

    /// True if the last datagram came from the peer whose key this side has verified.
    #[must_use]
    pub fn trusts_last(&self) -> bool {
        self.stage.trusts_last()
    }

    /// The time of the last datagram from the peer; `None` before the first (client).
    pub fn heard(&self) -> Option<Instant> {
        self.validation.is_heard().then(|| self.liveness.heard())
    }

    /// Instant since which the peer is silent: an answer is overdue, and nothing has been heard for longer than short gaps of a link
    /// last, or nothing was answered for longer still, which a path does that is blocked in one direction. `None`: it is not.
    pub fn silent_since(&self, now: Instant) -> Option<Instant> {
        let silent = self.liveness.silent_since(now);
        silent.filter(|_| self.validation.is_heard())
    }

    /// Instant since which nothing that this side sends is answered, in an outage. The peer may be heard all the same, where the
    /// path is blocked in one direction.
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.liveness.unanswered_since()
    }

    /// Notes that the last datagram did not leave this machine.
    pub(in crate::engine) fn on_unsent(&mut self, why: UnreachableCause) {
        let sent = self.quic.stats().udp_tx.datagrams;
        self.liveness.on_unsent(sent, why);
    }

    /// Report that the last datagram did not leave this machine; `None` if it has left, and is answered or lost elsewhere.
    #[must_use]
    pub fn unsent(&self) -> Option<Unreachable> {
        let cause = self.liveness.unsent(self.quic.stats().udp_tx.datagrams)?;
        Some(Unreachable {
            cause,
            from: None,
            to: self.peer(),
        })
    }

    /// Asks the peer for an answer, unless one has come within `patience` or is awaited. A peer that is heard all the time would
    /// else never be asked, and a path that is blocked in this direction alone not be found out before something is sent on it.
    pub fn ask_for_answer(&mut self, now: Instant, patience: Duration) {
        let flight = self.control.gate.flight();
        let (since, awaited) = (flight.progress.since, flight.in_flight() > 0);
        drop(flight);
        let lately = now.saturating_duration_since(since) < patience;
        if self.stage.is_established() && !awaited && !lately {
            self.quic.ping();
        }
    }

    /// Knowledge of the path in this direction, for the next connection.
    pub fn saved(&self, now: Instant) -> Option<Saved> {
        self.control.gate.flight().saved(now)
    }

    /// Knowledge of the path that this controller goes by and an earlier connection's has learned.
    pub fn resumed(&self) -> Option<Saved> {
        self.control.gate.flight().resumed()
    }

    /// Settings that this side sends with now; a server knows them once the client's HELLO came.
    pub fn sends_with(&self) -> Wishes {
        self.control.current
    }

    /// The congestion controller at work.
    pub fn controller(&self) -> Kind {
        self.control.gate.flight().controller().kind()
    }

    /// Acknowledgements that the peer was asked for.
    pub fn asks(&self) -> AckPolicy {
        self.control.path.asks
    }

    /// Facts of the link that the connection was begun with.
    pub fn link(&self) -> Link {
        self.control.path.link
    }

    /// Round-trip time, smoothed and smallest.
    pub fn rtt(&self) -> (Duration, Duration) {
        (self.quic.rtt(), self.quic.min_rtt())
    }

    /// Window in bytes, pacing rate in bit/s and bytes in flight.
    pub fn congestion(&self) -> (u64, BitRate, u64) {
        let flight = self.control.gate.flight();
        (
            flight.controller().window(),
            flight.controller().pacing_rate(),
            flight.in_flight(),
        )
    }

    /// Ledger of what the bytes on the link were for.
    pub fn ledger(&self) -> Ledger {
        let path = self.quic.stats().path;
        let stats = self.tunnel.stats();
        let (mut sent, mut received) = (stats.sent, stats.received);
        [sent.trains, received.trains] = self.train.bytes();
        self.books
            .close(sent, received, path.lost_bytes, path.lost_packets)
    }

    /// True once nothing more is owed to the peer, nor to a LAN side.
    pub(in crate::engine) fn is_over(&self) -> bool {
        let over = self.stage.is_over(self.quic.side(), self.quic.is_drained());
        over && !self.tunnel.delivers()
    }

    /// True once the end was reported.
    pub(in crate::engine) fn is_lost(&self) -> bool {
        self.stage.is_lost()
    }

    /// True while repairs of the peer's wait to be decoded.
    pub(in crate::engine) fn has_work(&self) -> bool {
        self.lane.has_repairs()
    }

    /// Decodes some of the repairs that wait. True if there are more.
    pub(in crate::engine) fn work(&mut self, now: Instant) -> bool {
        !self.is_lost() && self.lane.decode_repairs(now)
    }

    /// True if the tunnel had to give way to others.
    pub(in crate::engine) fn share_memory(&mut self) -> bool {
        self.lane.share_memory(&mut self.tunnel, &mut self.quic)
    }

    /// Rate at which the path has delivered lately, or a little more.
    pub(in crate::engine) fn delivery_rate(&self) -> BitRate {
        self.control.gate.flight().delivery_rate()
    }

    /// Figures that are summed over connections.
    pub(in crate::engine) fn totals(&self) -> Totals {
        Totals {
            ledger: self.ledger(),
            flows: self.tunnel.stats(),
            packets: self.tunnel.packet_stats(),
        }
    }

    /// Datagrams that left a second time.
    pub fn repeated(&self) -> u64 {
        self.duplicates.repeated()
    }

    /// Notes that the connection began with a datagram of `size` bytes.
    pub(in crate::engine) fn began_with(&mut self, size: usize) {
        self.validation.began_with(size);
    }

    /// Closes the connection with an application code (`PROTOCOL.md` "Closing").
    pub fn close(&mut self, now: Instant, code: u64, reason: String) {
        let code = VarInt::from_u64(code).unwrap_or_default();
        self.quic.close(now, code, Bytes::from(reason));
        self.duplicates.end_handshake();
        self.stage.close();
        self.lane.on_closed(&mut self.tunnel, &mut self.quic);
    }

    /// Notes whether the wire below delivers in order whatever it takes. Then repairs, copies and trains are of no use: each
    /// waits behind what it is to make up for.
    pub(in crate::engine) fn set_reliable(&mut self, now: Instant, reliable: bool) {
        if self.control.is_reliable() != reliable {
            self.control.set_reliable(now, reliable, self.quic.rtt());
            self.configure_repairs();
        }
    }

    /// Bounds what leaves before the peer was heard (client): a peer that is not there costs no more.
    pub fn set_first_words(&mut self, first: FirstWords) {
        self.validation.set_first_words(first);
    }

    /// Forgets a connection without another datagram: its peer was never heard.
    pub fn abandon(&mut self, now: Instant) {
        self.validation.silence();
        self.close(now, CloseCode::NoError.code(), String::new());
    }

    /// Datagrams leave by another wire from now on (client): the server is to hear of it at once.
    pub fn change_wire(&mut self, now: Instant) {
        self.forget_mtu(now);
        self.quic.change_address();
        self.liveness.hurry(now);
    }

    /// Asks the peer whether it still answers (client), as after a sleep of this machine: the peer may have given the connection up
    /// meanwhile. Until it has answered, that counts as an outage, whose end is told.
    pub fn doubt(&mut self, now: Instant) {
        if self.stage.is_established() {
            self.liveness.doubt(now);
        }
    }

    /// Server: sets how many flows and queries this client may hold open at once.
    pub fn set_max_flows(&mut self, max_flows: u64) {
        let most = streams_for(u32::try_from(max_flows).unwrap_or(u32::MAX));
        self.streams.set_most(&mut self.quic, most);
    }

    /// Server: this client is sent to no faster than `max_rate`, whatever it wishes.
    pub fn set_max_rate(&mut self, now: Instant, max_rate: Option<BitRate>) {
        self.control.limit(now, max_rate, self.quic.rtt());
    }

    /// Goes on from what an earlier connection learned of the path; false if the controller makes no use of that.
    pub fn resume(&mut self, now: Instant, saved: Saved) -> bool {
        self.control.gate.flight().resume(now, saved)
    }

    /// Notes that somebody waits for the end of an outage: it is to be looked for as often as if flows were open.
    pub fn want(&mut self) {
        self.liveness.want();
    }

    /// The tunnel together with the streams that its flows use, for calls that need both.
    pub fn parts(&mut self) -> (&mut Tunnel, &mut Streams) {
        (&mut self.tunnel, &mut self.quic)
    }

    /// Secret of 32 bytes that this side and the peer have from the TLS session, and nobody else, for the use that `label` names
    /// in this `context` (RFC 8446 §7.5); `None` before the handshake is complete.
    pub fn exporter(&self, label: &[u8], context: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let mut secret = Zeroizing::new([0; 32]);
        let session = self.quic.quic().crypto_session();
        let exported = session.export_keying_material(&mut *secret, label, context);
        exported.ok().map(|()| secret)
    }

    /// Has both directions use new keys from now on (RFC 9001 §6): what was sent before cannot be opened with them.
    pub fn renew_keys(&mut self) {
        self.quic.force_key_update();
    }

    /// Client: sends a query; its answer is a [`TunnelEvent::Answer`](crate::transport::TunnelEvent::Answer).
    ///
    /// # Errors
    /// The server takes no queries, or no more of them now.
    pub fn ask(&mut self, message: &[u8]) -> Result<QueryKey, OpenError> {
        self.lane.ask(&self.tunnel, &mut self.quic, message)
    }

    /// Client: gives up a query; there will be no event.
    pub fn forget_query(&mut self, query: QueryKey) {
        self.lane.forget_query(&mut self.quic, query);
    }

    /// Server: answers a query; without a message it is refused.
    pub fn answer(&mut self, query: QueryKey, message: Option<Bytes>) {
        self.lane.answer(&mut self.quic, query, message);
    }
}
