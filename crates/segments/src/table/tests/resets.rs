//! Resets of an end: what it had sent before arrives before them.

use super::*;

/// Bytes of these messages on the stream.
fn stream(messages: &[Message]) -> Vec<u8> {
    let mut out = BytesMut::new();
    messages.iter().for_each(|message| message.encode(&mut out));
    out.to_vec()
}

/// Flow whose far end has sent five bytes and reset the connection, and whose PEP has sent the bytes to the end here.
fn far_reset(pep: &mut Pep) -> FlowId {
    let id = pep.relayed(1000);
    pep.segments(id);
    let blob = data(100).blob().expect("bytes");
    let said = stream(&[Message::Blob(100, blob), Message::Reset(Cause::End)]);
    let taken = pep.table.on_stream(pep.now, id, &mut &said[..]);
    taken.expect("an honest PEP");
    let sent = pep.segments(id);
    let [(Side::Lan, bytes)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((bytes.number, bytes.length), (100, 5));
    id
}

#[test]
fn an_end_is_reset_when_it_has_what_was_sent_before() {
    let mut pep = Pep::new(false);
    let id = far_reset(&mut pep);
    // Nothing is left to say: the other PEP ends the stream as well.
    assert!(pep.table.is_stream_done(id) && pep.table.delivers(id));
    pep.table.on_stream_lost(pep.now, id);
    assert_eq!(pep.segments(id), []);
    assert!(pep.table.owes(id) && pep.table.delivers(id));
    // A copy goes, for the first was lost.
    pep.now += Duration::from_secs(1);
    pep.table.handle_timeout(pep.now);
    assert_eq!(pep.segments(id)[0].1.length, 5);
    // What the end still says is taken, and goes nowhere.
    assert_eq!(pep.give(1000, false, &data(500)), Verdict::Taken);
    assert_eq!(pep.segments(id)[0].1.acknowledgement, 505);
    assert_eq!(pep.table.memory(), 165);
    pep.give(1000, false, &segment(505, 105, Flags::ACK));
    pep.table.handle_timeout(pep.now);
    let (side, rst) = pep.segments(id).remove(0);
    assert_eq!((side, rst.number, rst.flags), (Side::Lan, 105, Flags::RST));
    assert!(!pep.table.delivers(id) && pep.table.memory() == 0);
    assert_eq!(pep.messages(id), []);
    assert_eq!(pep.table.counts().reset, [(Cause::End, 1)].into());
}

#[test]
fn a_flow_that_is_given_up_resets_an_end_that_has_not_taken_all() {
    let mut pep = Pep::new(false);
    let id = far_reset(&mut pep);
    pep.table.give_up(pep.now, id);
    pep.table.handle_timeout(pep.now);
    let (side, rst) = pep.segments(id).remove(0);
    assert_eq!((side, rst.flags), (Side::Lan, Flags::RST));
    assert!(!pep.table.delivers(id) && pep.table.memory() == 0);
}

#[test]
fn an_end_that_takes_nothing_is_not_waited_for_for_ever() {
    let mut pep = Pep::new(false);
    let id = far_reset(&mut pep);
    for second in 0..7440 {
        assert!(pep.table.delivers(id), "given up after {second} s");
        // It answers, and its window is closed.
        let closed = Segment {
            window: 0,
            ..segment(500, 100, Flags::ACK)
        };
        pep.give(1000, false, &closed);
        pep.now += Duration::from_secs(1);
        pep.table.handle_timeout(pep.now);
        pep.segments(id);
    }
    assert!(!pep.table.delivers(id));
}

#[test]
fn a_reset_leaves_behind_what_was_acknowledged_and_its_flow_waits_for_that() {
    let mut pep = Pep::new(false);
    let id = pep.relayed(1000);
    pep.give(1000, false, &data(500));
    // Behind a gap, and never acknowledged.
    pep.give(1000, false, &data(510));
    pep.give(1000, false, &segment(505, 100, Flags::RST));
    let hours = Duration::from_secs(7000);
    pep.table.handle_timeout(pep.now + hours);
    assert!(!pep.table.is_stream_done(id) && pep.table.owes(id));
    let mut out = BytesMut::new();
    pep.table.poll_stream(pep.now, id, &mut out, 1000);
    let blob = data(500).blob().expect("bytes");
    let said = stream(&[Message::Blob(500, blob), Message::Reset(Cause::End)]);
    assert_eq!(out[..], said[..]);
    assert!(pep.table.is_stream_done(id) && !pep.table.owes(id));
    // Two minutes after the other PEP has read it all, the flow is forgotten.
    pep.now += hours;
    pep.table.on_stream_lost(pep.now, id);
    pep.now += Duration::from_secs(119);
    pep.table.handle_timeout(pep.now);
    assert_eq!(pep.table.flows().0, 1);
    pep.now += Duration::from_secs(1);
    pep.table.handle_timeout(pep.now);
    assert_eq!(pep.table.flows().0, 0);
}
