//! Ends of one half of an outer connection, at every offset: who reads that half has its host's connection reset, and ended in order
//! before only if all of the direction had come.

use std::time::Instant;

use bentpipe_sealed::sle::{
    Acceptor, Action, Admissions, Associations, Conn, Fault, Offers, Outcome,
};

use crate::hostile::{ID, epoch};
use crate::origin;

const ASK: &[u8] = b"GET /";
const ANSWER: &[u8] = b"200 OK";
const CONNECTED: &[u8] = b"yes";

/// Length of a record without a body: length, kind and tag.
const EMPTY: usize = 19;

/// Way in which an outer connection ends, with the fault that it is.
type OuterEnd = (Fault, fn(&mut Conn));

const ENDS: [OuterEnd; 2] = [
    (Fault::Ended, Conn::on_outer_end),
    (Fault::Reset, Conn::on_outer_reset),
];

/// One end of a flow, with what it has said, and what its host has got.
struct End {
    conn: Conn,
    said: Vec<u8>,
    payload: Vec<u8>,
    steps: Vec<Action>,
}

impl End {
    /// End whose host says this and ends its direction.
    fn saying(mut conn: Conn, now: Instant, words: &[u8]) -> Self {
        conn.on_lan(now, words);
        conn.on_lan_end(now);
        let mut end = Self {
            conn,
            said: Vec::new(),
            payload: Vec::new(),
            steps: Vec::new(),
        };
        end.follow(now);
        end
    }

    fn client(now: Instant) -> Self {
        let keys = Offers::new(ID, epoch(0)).open();
        let conn = Conn::client(now, keys, b"destination", |body| body == CONNECTED);
        Self::saying(conn, now, ASK)
    }

    /// Server that has got `bytes`, and has answered before it looked at more than OPEN; `None` if that is not whole.
    fn server(now: Instant, bytes: &[u8]) -> Option<Self> {
        let mut table = Associations::from([(ID, Admissions::new(epoch(0)))]);
        let mut rest = bytes;
        let accepted = Acceptor::new(now).push(now, &mut rest, &mut table);
        let mut conn = accepted.expect("a client's").map(|it| it.conn)?;
        conn.on_dialled(CONNECTED);
        let mut end = Self::saying(conn, now, ANSWER);
        end.hear(now, rest);
        Some(end)
    }

    fn hear(&mut self, now: Instant, bytes: &[u8]) {
        assert_eq!(self.conn.on_outer(now, bytes), bytes.len());
        let payload = self.conn.lan_output().to_vec();
        self.conn.lan_written(now, payload.len());
        self.payload.extend(payload);
        self.follow(now);
    }

    /// Takes the steps that it asks for, and sends what it says.
    fn follow(&mut self, now: Instant) {
        loop {
            let said = self.conn.outer_output().to_vec();
            self.conn.outer_written(now, said.len());
            self.said.extend(said);
            let Some(step) = self.conn.poll_action() else {
                return;
            };
            if step == Action::ShutLan {
                self.conn.on_lan_shut(now);
            }
            self.steps.push(step);
        }
    }

    /// Has the outer connection end here, and judges what the host got of `words`, whose end had come if `whole`.
    fn judge(mut self, (fault, end): (Fault, fn(&mut Conn)), words: &[u8], whole: bool) {
        end(&mut self.conn);
        self.follow(origin());
        assert_eq!(self.conn.outcome(), Some(Outcome::Broken(fault)));
        assert!(words.starts_with(&self.payload));
        let shut = self.steps.contains(&Action::ShutLan);
        assert_eq!(shut, whole, "the host was told of an end");
        assert!(!shut || self.payload == words);
        let last = [Action::ResetLan, Action::ResetOuter];
        assert!(self.steps.ends_with(&last), "{:?}", self.steps);
    }
}

#[test]
fn either_half_may_end_at_every_offset() {
    let now = origin();
    // A flow that nobody disturbs.
    let mut client = End::client(now);
    let asked = client.said.len();
    let mut server = End::server(now, &client.said).expect("OPEN is whole");
    let (up, down) = (&client.said.clone(), &server.said.clone());
    client.hear(now, down);
    server.hear(now, &client.said[up.len()..]);
    for end in [&client, &server] {
        assert_eq!(end.conn.outcome(), Some(Outcome::Closed));
        assert!(!end.steps.contains(&Action::ResetLan), "{:?}", end.steps);
    }
    let up = &client.said;
    let mut opened = 0;
    for way in ENDS {
        for cut in 0..down.len() {
            let mut client = End::client(now);
            client.hear(now, &down[..cut]);
            // FIN, and then DONE.
            client.judge(way, ANSWER, cut >= down.len() - EMPTY);
        }
        for cut in 0..up.len() {
            if let Some(server) = End::server(now, &up[..cut]) {
                server.judge(way, ASK, cut >= asked);
                opened += 1;
            }
        }
    }
    assert!(opened > 2 * 60, "{opened} connections were admitted");
}
