//! Outer connections that end before DONE has crossed both ways.

use super::*;

#[test]
fn an_early_end_of_the_outer_connection_is_a_reset() {
    type Ends = fn(&mut Conn);
    let ends: [(Ends, Fault); 2] = [
        (Conn::on_outer_end, Fault::Ended),
        (Conn::on_outer_reset, Fault::Reset),
    ];
    // Whatever has been exchanged, short of all that either host is owed.
    for (end, fault) in ends {
        for done in 0..3 {
            let mut pair = open_client();
            if done > 0 {
                pair.conn.on_lan_end(pair.now);
                pair.sent();
            }
            if done > 1 {
                pair.brings(Kind::Fin, b"");
            }
            end(&mut pair.conn);
            pair.assert_broken(fault);
        }
        let mut opening = client();
        end(&mut opening.conn);
        opening.assert_broken(fault);
    }
}

#[test]
fn a_slow_host_gets_all_though_the_outer_connection_is_gone() {
    for end in [Conn::on_outer_end, Conn::on_outer_reset] {
        for begin in [open_client, open_server] {
            let mut pair = begin();
            pair.conn.on_lan_end(pair.now);
            assert_eq!(pair.sent(), ["FIN"]);
            pair.brings(Kind::Data, b"slowly");
            pair.brings(Kind::Done, b"");
            pair.brings(Kind::Fin, b"");
            end(&mut pair.conn);
            assert_eq!(pair.conn.outcome(), None);
            assert_eq!(pair.takes(), b"slowly");
            assert_eq!(pair.steps(), [Action::ShutLan]);
            pair.conn.on_lan_shut(pair.now);
            assert_eq!(pair.conn.outcome(), Some(Outcome::Closed));
            assert_eq!(pair.steps(), [Action::ResetOuter], "and no reset");
        }
    }
}

#[test]
fn a_host_that_is_lost_ends_what_the_outer_connection_has_left() {
    let mut pair = open_client();
    pair.conn.on_lan_end(pair.now);
    pair.sent();
    pair.brings(Kind::Data, b"nobody's");
    pair.brings(Kind::Done, b"");
    pair.brings(Kind::Fin, b"");
    pair.conn.on_outer_reset();
    assert_eq!(pair.conn.deadline(), Some(pair.now + CLOSING));
    pair.conn.abort(pair.now, 3);
    assert_eq!(pair.conn.outcome(), Some(Outcome::Aborted(3)));
    assert_eq!(pair.steps(), [Action::ResetLan, Action::ResetOuter]);
}
