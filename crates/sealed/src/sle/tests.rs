//! The test vectors of `PROTOCOL.md` §18.6: both ends write and read exactly these bytes, and the
//! page shows them.

use std::time::Instant;

use zeroize::Zeroizing;

use super::*;
use crate::page::{self, bytes};
use crate::{Epoch, Exporter};

/// Body of the OPEN in the vectors: OPEN of PROTOCOL.md §6 without the kind of its stream.
const OPEN: &str = "100004c000020101bb04c0a8010ac73800";
/// Body of the REPLY in the vectors.
const REPLY: &str = "090004c63364079c4000";

fn vector(name: &str) -> Vec<u8> {
    page::vector("18.6", name)
}

fn epoch() -> Epoch {
    let run = |first: u8| Zeroizing::new(std::array::from_fn(|at| first + at as u8));
    Exporter::new(run(0)).epoch(5, &run(32))
}

/// Keys of connection 7.
fn keys() -> Keys {
    let mut offers = Offers::new(0x0a0b_0c0d, epoch());
    (0..8).map(|_| offers.open()).last().expect("eight")
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn origin() -> Instant {
    Instant::now()
}

/// Takes all that `conn` has for its peer.
fn leave(conn: &mut Conn, now: Instant) -> Vec<u8> {
    let out = conn.outer_output().to_vec();
    conn.outer_written(now, out.len());
    out
}

#[test]
fn keys_are_those_of_the_page() {
    assert_eq!(epoch().secret().to_vec(), vector("SLE: secret of an epoch"));
    let expected = vector("SLE: keys of a connection");
    assert_eq!(keys().bytes().to_vec(), expected);
    let preface = keys().preface();
    assert_eq!(preface.encode().to_vec(), vector("SLE: preface"));
}

#[test]
fn an_answer_is_that_of_the_page() {
    let mut offers = Offers::new(0x0a0b_0c0d, epoch());
    let open = (0..8).map(|_| offers.open()).last().expect("eight");
    let keys = offers.ask();
    assert_eq!(open.preface().number + 1, keys.preface().number);
    let expected = vector("SLE: preface that asks");
    assert_eq!(keys.preface().encode().to_vec(), expected);
    let answer = keys.answer("192.0.2.1:443".parse().expect("an address"));
    assert_eq!(answer.to_vec(), vector("SLE: answer"));
}

#[test]
fn a_flow_is_that_of_the_page() {
    let now = origin();
    let connected = |body: &[u8]| body == bytes(REPLY);
    let mut client = Conn::client(now, keys(), &bytes(OPEN), connected);
    client.on_lan(now, b"GET /");
    client.on_lan_end(now);
    let mut associations = Associations::from([(0x0a0b_0c0d, Admissions::new(epoch()))]);
    let mut upwards = leave(&mut client, now);
    let mut rest = &upwards[..];
    let mut acceptor = Acceptor::new(now);
    let accepted = acceptor.push(now, &mut rest, &mut associations);
    let mut accepted = accepted.expect("admitted").expect("whole");
    assert_eq!(accepted.open, bytes(OPEN));
    let server = &mut accepted.conn;
    server.on_dialled(&bytes(REPLY));
    server.on_lan(now, b"200 OK");
    assert_eq!(server.on_outer(now, rest), rest.len());
    assert_eq!(server.lan_output(), b"GET /");
    server.lan_written(now, 5);
    assert_eq!(server.poll_action(), Some(Action::ShutLan));
    server.on_lan_shut(now);
    server.on_lan_end(now);
    let downwards = leave(server, now);
    assert_eq!(downwards, vector("SLE: server to client"));
    client.on_outer(now, &downwards);
    assert_eq!(client.lan_output(), b"200 OK");
    client.lan_written(now, 6);
    client.on_lan_shut(now);
    upwards.extend(leave(&mut client, now));
    let expected = [vector("SLE: preface"), vector("SLE: client to server")];
    assert_eq!(upwards, expected.concat());
    assert_eq!(client.outcome(), Some(Outcome::Closed));
}

#[test]
fn an_abort_is_that_of_the_page() {
    let now = origin();
    let mut client = Conn::client(now, keys(), &bytes(OPEN), |_| true);
    client.on_lan(now, b"GET /");
    leave(&mut client, now);
    client.abort(now, 1);
    assert_eq!(leave(&mut client, now), vector("SLE: ABORT"));
}
