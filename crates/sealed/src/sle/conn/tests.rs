//! Every row of the table of states, at one end; the peer seals what the test says.

mod outer_ends;

use bytes::Bytes;
use zeroize::Zeroizing;

use super::*;
use crate::Exporter;
use crate::sle::{Offers, Preface, RecordError};

/// One end, and its peer's keys.
struct Pair {
    now: Instant,
    conn: Conn,
    sealer: Sealer,
    opener: Opener,
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn origin() -> Instant {
    Instant::now()
}

fn keys() -> Keys {
    let exporter = Exporter::new(Zeroizing::new([7; 32]));
    Offers::new(1, exporter.epoch(0, &[8; 32])).open()
}

/// Client whose OPEN has left.
fn client() -> Pair {
    let now = origin();
    let conn = Conn::client(now, keys(), b"open", |body| body == b"ok");
    let (sealer, opener) = keys().server();
    let mut pair = Pair {
        now,
        conn,
        sealer,
        opener,
    };
    assert_eq!(pair.conn.outer_output()[..16], keys().preface().encode());
    pair.conn.outer_written(now, 16);
    assert_eq!(pair.sent(), ["OPEN open"]);
    pair
}

/// Server that has read OPEN.
fn server() -> Pair {
    let (mut peer_sealer, opener) = keys().client();
    let (sealer, mut own_opener) = keys().server();
    let mut out = BytesMut::new();
    peer_sealer.seal(Kind::Open, b"open", &mut out).unwrap();
    assert!(own_opener.next(&mut &out[..]).unwrap().is_some());
    let now = origin();
    Pair {
        now,
        conn: Conn::server(now, sealer, own_opener),
        sealer: peer_sealer,
        opener,
    }
}

fn open_client() -> Pair {
    let mut pair = client();
    pair.brings(Kind::Reply, b"ok");
    assert_eq!(pair.steps(), [Action::Replied(Bytes::from_static(b"ok"))]);
    pair
}

fn open_server() -> Pair {
    let mut pair = server();
    pair.conn.on_dialled(b"ok");
    assert_eq!(pair.sent(), ["REPLY ok"]);
    pair
}

impl Pair {
    /// The peer sends a record.
    fn brings(&mut self, kind: Kind, body: &[u8]) {
        let mut out = BytesMut::new();
        self.sealer.seal(kind, body, &mut out).unwrap();
        assert_eq!(self.conn.on_outer(self.now, &out), out.len());
    }

    /// Records that have left for the peer.
    fn sent(&mut self) -> Vec<String> {
        let out = self.conn.outer_output().to_vec();
        self.conn.outer_written(self.now, out.len());
        let (mut input, mut found) = (&*out, Vec::new());
        while let Some(record) = self.opener.next(&mut input).unwrap() {
            let text = String::from_utf8_lossy(record.body).into_owned();
            found.push(format!("{} {text}", record.kind).trim().to_owned());
        }
        found
    }

    fn steps(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.conn.poll_action()).collect()
    }

    fn takes(&mut self) -> Vec<u8> {
        let taken = self.conn.lan_output().to_vec();
        self.conn.lan_written(self.now, taken.len());
        taken
    }

    fn assert_broken(&mut self, fault: Fault) {
        assert_eq!(self.conn.outcome(), Some(Outcome::Broken(fault)));
        assert_eq!(self.steps(), [Action::ResetLan, Action::ResetOuter]);
        assert!(self.conn.lan_output().is_empty() && self.conn.outer_output().is_empty());
    }
}

#[test]
fn first_bytes_follow_open_at_once() {
    let now = origin();
    let mut conn = Conn::client(now, keys(), b"open", |_| true);
    assert_eq!(conn.on_lan(now, b"GET /"), 5);
    let (_, mut opener) = keys().server();
    let mut input = &conn.outer_output()[16..];
    assert_eq!(opener.next(&mut input).unwrap().unwrap().kind, Kind::Open);
    assert_eq!(opener.next(&mut input).unwrap().unwrap().body, b"GET /");
    assert!(input.is_empty());
}

#[test]
fn a_refused_flow_resets_the_lan_side() {
    let mut pair = client();
    pair.brings(Kind::Reply, b"no");
    let replied = Action::Replied(Bytes::from_static(b"no"));
    assert_eq!(
        pair.steps(),
        [replied, Action::ResetLan, Action::CloseOuter]
    );
    assert_eq!(pair.conn.outcome(), Some(Outcome::Refused));

    let mut pair = server();
    pair.brings(Kind::Data, b"early");
    pair.conn.on_refused(pair.now, b"no");
    assert_eq!(pair.conn.state(), State::Refused);
    assert_eq!(pair.sent(), ["REPLY no"]);
    // What the client had sent is read and thrown away, so that nothing overtakes the answer.
    pair.brings(Kind::Data, b"late");
    pair.brings(Kind::Fin, b"");
    assert!(pair.steps().is_empty() && pair.conn.lan_output().is_empty());
    pair.conn.on_outer_end();
    assert_eq!(pair.conn.outcome(), Some(Outcome::Refused));
    assert_eq!(pair.steps(), [Action::ResetLan, Action::CloseOuter]);
}

#[test]
fn early_payload_waits_for_the_dial() {
    let mut pair = server();
    pair.brings(Kind::Data, b"early");
    pair.brings(Kind::Fin, b"");
    assert!(pair.conn.lan_output().is_empty() && pair.steps().is_empty());
    assert_eq!(
        (pair.conn.lan_room(), pair.conn.state()),
        (0, State::Opening)
    );
    pair.conn.on_dialled(b"ok");
    assert_eq!(pair.conn.state(), State::HalfRemote);
    assert_eq!(pair.takes(), b"early");
    assert_eq!(pair.steps(), [Action::ShutLan]);
}

#[test]
fn both_directions_end_in_order() {
    for begin in [open_client, open_server] {
        let mut pair = begin();
        assert_eq!(pair.conn.on_lan(pair.now, b"last"), 4);
        pair.conn.on_lan_end(pair.now);
        assert_eq!(pair.conn.state(), State::HalfLocal);
        assert_eq!(pair.sent(), ["DATA last", "FIN"]);
        assert_eq!((pair.conn.lan_room(), pair.conn.deadline()), (0, None));
        pair.brings(Kind::Data, b"more");
        pair.brings(Kind::Fin, b"");
        assert_eq!(pair.conn.state(), State::Closing);
        assert!(pair.steps().is_empty(), "the LAN has not taken everything");
        assert_eq!(pair.takes(), b"more");
        assert_eq!(pair.steps(), [Action::ShutLan]);
        assert!(pair.sent().is_empty(), "the LAN has not been told");
        pair.conn.on_lan_shut(pair.now);
        pair.conn.on_lan_shut(pair.now);
        pair.brings(Kind::Done, b"");
        assert!(pair.steps().is_empty(), "DONE has not left");
        assert_eq!(pair.sent(), ["DONE"]);
        assert_eq!(pair.steps(), [Action::CloseOuter]);
        assert_eq!(pair.conn.outcome(), Some(Outcome::Closed));
        pair.conn.on_outer_end();
        assert!(pair.steps().is_empty());
    }
}

#[test]
fn an_end_before_a_reset_reaches_the_host_first() {
    for begin in [open_client, open_server] {
        let mut pair = begin();
        pair.brings(Kind::Data, b"all");
        pair.brings(Kind::Fin, b"");
        pair.brings(Kind::Abort, &[1]);
        assert!(pair.steps().is_empty(), "the LAN has not taken everything");
        assert_eq!(pair.takes(), b"all");
        assert_eq!(pair.steps(), [Action::ShutLan, Action::ResetLan]);
        assert_eq!(pair.sent(), ["DONE"]);
    }
}

#[test]
fn a_direction_of_which_something_was_thrown_away_has_no_end_in_order() {
    let mut pair = server();
    pair.brings(Kind::Data, b"early");
    pair.brings(Kind::Fin, b"");
    pair.brings(Kind::Abort, &[0]);
    assert_eq!(pair.steps(), [Action::ResetLan]);
    let mut pair = open_server();
    pair.brings(Kind::Data, b"untaken");
    pair.brings(Kind::Fin, b"");
    pair.brings(Kind::Abort, &[0]);
    pair.conn.abort(pair.now, 1);
    assert_eq!(pair.steps(), [Action::ResetLan]);
}

#[test]
fn a_reset_crosses_after_the_bytes_before_it() {
    let mut pair = open_client();
    pair.conn.on_lan(pair.now, b"before");
    pair.conn.abort(pair.now, 1);
    assert_eq!(pair.steps(), [Action::ResetLan]);
    assert_eq!(pair.sent(), ["DATA before", "ABORT \u{1}"]);
    assert_eq!(
        (pair.conn.state(), pair.conn.lan_room()),
        (State::Aborting, 0)
    );
    pair.brings(Kind::Data, b"nobody's");
    assert!(pair.conn.lan_output().is_empty());
    pair.brings(Kind::Done, b"");
    assert_eq!(pair.conn.outcome(), Some(Outcome::Aborted(1)));
    assert_eq!(pair.steps(), [Action::CloseOuter]);

    let mut pair = open_server();
    pair.brings(Kind::Data, b"before");
    pair.brings(Kind::Abort, &[1]);
    assert_eq!(pair.conn.state(), State::Aborted);
    assert!(pair.steps().is_empty(), "the LAN has not taken everything");
    pair.conn.lan_written(pair.now, 5);
    assert!(pair.steps().is_empty(), "a byte is left");
    assert_eq!(pair.takes(), b"e");
    assert_eq!(pair.steps(), [Action::ResetLan]);
    assert_eq!(pair.sent(), ["DONE"]);
    assert_eq!(pair.steps(), [Action::CloseOuter]);
    assert_eq!(pair.conn.outcome(), Some(Outcome::PeerAborted(1)));
}

#[test]
fn a_reset_is_delivered_though_the_outer_connection_is_gone() {
    let mut pair = open_server();
    pair.brings(Kind::Data, b"before");
    pair.brings(Kind::Abort, &[0]);
    pair.conn.on_outer_end();
    assert_eq!(pair.takes(), b"before");
    assert_eq!(pair.steps(), [Action::ResetLan, Action::CloseOuter]);
    assert_eq!(pair.conn.outcome(), Some(Outcome::PeerAborted(0)));
}

#[test]
fn a_reset_before_the_dial_ended_gives_the_dial_up() {
    let mut pair = server();
    pair.brings(Kind::Data, b"early");
    pair.brings(Kind::Abort, &[0]);
    assert_eq!(pair.steps(), [Action::ResetLan]);
    pair.conn.on_dialled(b"ok");
    assert_eq!(pair.sent(), ["DONE"]);
    assert_eq!(pair.conn.outcome(), Some(Outcome::PeerAborted(0)));

    // DONE before REPLY is an answer to ABORT, and to nothing else.
    let mut pair = client();
    pair.conn.abort(pair.now, 0);
    assert_eq!(pair.sent(), ["ABORT \0"]);
    pair.brings(Kind::Done, b"");
    assert_eq!(pair.conn.outcome(), Some(Outcome::Aborted(0)));
    let mut pair = client();
    pair.conn.on_lan_end(pair.now);
    pair.brings(Kind::Done, b"");
    let state = State::Opening;
    let kind = Kind::Done;
    pair.assert_broken(Fault::Order { kind, state });
}

#[test]
fn resets_from_both_sides_meet() {
    let mut pair = open_client();
    pair.conn.abort(pair.now, 0);
    pair.sent();
    pair.brings(Kind::Abort, &[1]);
    assert_eq!(pair.conn.outcome(), Some(Outcome::Aborted(0)));
    assert_eq!(pair.steps(), [Action::ResetLan, Action::CloseOuter]);
}

/// Records that the peer has sealed, and that have no place where they come.
#[test]
fn records_out_of_order_break_the_flow() {
    let fin = [Kind::Fin];
    type Row<'a> = (fn() -> Pair, &'a [Kind], Kind, State);
    let rows: [Row<'_>; 13] = [
        (client, &[], Kind::Open, State::Opening),
        (client, &[], Kind::Data, State::Opening),
        (client, &[], Kind::Fin, State::Opening),
        (client, &[], Kind::Done, State::Opening),
        (server, &[], Kind::Open, State::Opening),
        (server, &[], Kind::Reply, State::Opening),
        (open_client, &[], Kind::Reply, State::Open),
        (open_client, &[], Kind::Open, State::Open),
        (open_client, &[], Kind::Done, State::Open),
        (open_server, &[], Kind::Done, State::Open),
        (open_server, &fin, Kind::Data, State::HalfRemote),
        (open_server, &fin, Kind::Fin, State::HalfRemote),
        (open_server, &fin, Kind::Done, State::HalfRemote),
    ];
    for (begin, before, kind, state) in rows {
        let mut pair = begin();
        for kind in before {
            pair.brings(*kind, b"");
            assert_eq!(pair.steps(), [Action::ShutLan]);
        }
        let body = if matches!(kind, Kind::Fin | Kind::Done) {
            &b""[..]
        } else {
            b"x"
        };
        pair.brings(kind, body);
        pair.assert_broken(Fault::Order { kind, state });
    }
    let mut twice = open_client();
    twice.conn.on_lan_end(twice.now);
    twice.brings(Kind::Done, b"");
    twice.brings(Kind::Done, b"");
    let (kind, state) = (Kind::Done, State::HalfLocal);
    twice.assert_broken(Fault::Order { kind, state });
    let mut after = open_server();
    after.brings(Kind::Data, b"held");
    after.brings(Kind::Abort, &[0]);
    after.brings(Kind::Data, b"x");
    let (kind, state) = (Kind::Data, State::Aborted);
    after.assert_broken(Fault::Order { kind, state });
    let text = Fault::Order { kind, state }.to_string();
    assert_eq!(text, "DATA out of order: Aborted when it came");
}

#[test]
fn a_record_that_cannot_be_believed_breaks_the_flow() {
    let mut pair = open_client();
    let mut out = BytesMut::new();
    pair.sealer.seal(Kind::Data, b"good", &mut out).unwrap();
    pair.sealer.seal(Kind::Data, b"evil", &mut out).unwrap();
    *out.last_mut().unwrap() ^= 1;
    assert_eq!(pair.conn.on_outer(pair.now, &out), out.len());
    pair.assert_broken(Fault::Record(RecordError::Tag(2)));
    assert_eq!(pair.conn.on_outer(pair.now, b"more"), 4, "and is not read");
}

#[test]
fn an_end_that_the_peer_owes_is_given_up_after_a_time_without_progress() {
    let mut pair = open_client();
    pair.conn.on_lan_end(pair.now);
    assert_eq!(pair.conn.deadline(), None, "a half-closed flow may stay so");
    pair.brings(Kind::Fin, b"");
    assert_eq!(pair.conn.deadline(), Some(pair.now + CLOSING));
    pair.now += CLOSING / 2;
    pair.sent();
    let late = pair.now + CLOSING;
    assert_eq!(pair.conn.deadline(), Some(late), "something moved");
    pair.conn.handle_timeout(late - Duration::from_nanos(1));
    assert_eq!(pair.conn.state(), State::Closing);
    pair.conn.handle_timeout(late);
    pair.assert_broken(Fault::Silence);

    let mut pair = open_client();
    pair.conn.abort(pair.now, 3);
    pair.conn.handle_timeout(pair.now + SILENCE);
    assert_eq!(pair.conn.outcome(), Some(Outcome::Aborted(3)));
    assert_eq!(pair.steps(), [Action::ResetLan, Action::ResetOuter]);

    let mut pair = open_server();
    pair.brings(Kind::Data, b"stuck");
    pair.brings(Kind::Abort, &[3]);
    pair.conn.handle_timeout(pair.now + SILENCE);
    assert_eq!(pair.conn.outcome(), Some(Outcome::PeerAborted(3)));
    assert_eq!(pair.steps(), [Action::ResetLan, Action::ResetOuter]);

    let mut pair = server();
    pair.conn.on_refused(pair.now, b"no");
    pair.conn.handle_timeout(pair.now + SILENCE);
    assert_eq!(pair.conn.outcome(), Some(Outcome::Refused));
}

#[test]
fn an_answer_is_given_up_after_60_s_without_progress() {
    let mut pair = client();
    assert_eq!(pair.conn.deadline(), Some(pair.now + SILENCE));
    pair.now += SILENCE / 2;
    pair.sent();
    pair.conn.handle_timeout(pair.now + SILENCE / 2);
    assert_eq!(pair.conn.state(), State::Opening, "something moved");
    pair.conn.handle_timeout(pair.now + SILENCE);
    pair.assert_broken(Fault::Silence);

    let mut pair = client();
    pair.brings(Kind::Reply, b"yes");
    assert_eq!(pair.conn.deadline(), None, "an open flow may be silent");
    assert_eq!(server().conn.deadline(), None, "a dial takes its time");
}

#[test]
fn what_is_held_has_a_bound_each_way() {
    let mut pair = open_client();
    let much = vec![9; 3 * MAX_HELD];
    let taken = pair.conn.on_lan(pair.now, &much);
    assert_eq!((taken, pair.conn.lan_room()), (MAX_HELD, 0));
    assert_eq!(pair.conn.on_lan(pair.now, &much), 0);
    pair.sent();
    assert_eq!(pair.conn.lan_room(), MAX_HELD);

    let mut out = BytesMut::new();
    for _ in 0..100 {
        pair.sealer
            .seal(Kind::Data, &[8; MAX_BODY], &mut out)
            .unwrap();
    }
    let mut read = pair.conn.on_outer(pair.now, &out);
    assert!(read < out.len() && pair.conn.outer_room() == 0);
    assert!((MAX_HELD..MAX_HELD + MAX_BODY).contains(&pair.conn.lan_output().len()));
    assert_eq!(pair.conn.on_outer(pair.now, &out[read..]), 0);
    let mut taken = 0;
    while taken < 100 * MAX_BODY {
        taken += pair.takes().len();
        read += pair.conn.on_outer(pair.now, &out[read..]);
    }
    assert_eq!(read, out.len());
}

#[test]
fn a_direction_without_numbers_ends_the_flow() {
    let mut pair = open_client();
    pair.sealer = keys().server().0;
    pair.conn.sealer.spend_all_but(5);
    assert_eq!(pair.conn.on_lan(pair.now, &[1; 3 * MAX_BODY]), 3 * MAX_BODY);
    assert_eq!(pair.conn.state(), State::Aborting);
    assert_eq!(pair.steps(), [Action::ResetLan]);
}

#[test]
fn nothing_secret_is_printed() {
    let mut pair = open_client();
    pair.conn.on_lan(pair.now, b"secret");
    let text = format!("{:?}", pair.conn);
    let expected = "Conn { phase: Flowing, to_outer: 25, to_lan: 0, \
                    sealer: Sealer(at record 2, …), opener: Opener(at record 1, …), .. }";
    assert_eq!(text, expected);
}

#[test]
fn a_preface_names_its_connection() {
    let preface = keys().preface();
    let expected = Preface {
        epoch: 0,
        id: 1,
        number: 0,
        asks: false,
    };
    assert_eq!(preface, expected);
}
