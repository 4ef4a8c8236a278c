//! Copies: which of them pass, and which are an attack.

use std::net::IpAddr;

use super::replay::Place;
use super::*;
use crate::Stale;

/// A PEP that sends `sealed` again under a number of its own.
fn again(roots: &Roots, writer: &mut HeaderWriter, sealed: &[u8]) -> BytesMut {
    let (mut reader, _) = pep(roots);
    let opened = reader.open(sealed).expect("true");
    let mut out = BytesMut::new();
    let written = writer.write(opened.header(), opened.zone(), &mut out);
    written.expect("as it was");
    out
}

#[test]
fn a_packet_passes_once_at_every_hop() {
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    let (mut reader, _) = pep(&roots);
    let mut flows = Flows::default();
    let packets: Vec<_> = [b"one", b"two"]
        .map(|payload| seal(&mut sender, &Segment::new(false, ACK, payload).bytes()))
        .into();
    for sealed in packets.iter().rev() {
        assert!(open(&mut receiver, &mut flows, sealed).is_ok());
        assert!(reader.open(sealed).is_ok());
    }
    for (number, sealed) in (1..).zip(&packets) {
        let expected = Discarded::Packet(Stale::Repeated(number));
        assert_eq!(open(&mut receiver, &mut flows, sealed), Err(expected));
        assert_eq!(reader.open(sealed).unwrap_err(), expected);
    }
}

#[test]
fn packets_that_are_4096_late_are_too_old() {
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    let mut flows = Flows::default();
    let ack = Segment::new(false, ACK, b"").bytes();
    let packets: Vec<_> = (0..=WRITER_WINDOW)
        .map(|_| seal(&mut sender, &ack))
        .collect();
    let newest = packets.last().expect("many");
    assert!(open(&mut receiver, &mut flows, newest).is_ok());
    assert!(open(&mut receiver, &mut flows, &packets[1]).is_ok());
    let fault = open(&mut receiver, &mut flows, &packets[0]).unwrap_err();
    let expected = Stale::Old {
        number: 1,
        highest: WRITER_WINDOW + 1,
        reach: WRITER_WINDOW,
    };
    assert_eq!(fault, Discarded::Packet(expected));
}

#[test]
fn writers_count_apart_and_who_forges_has_no_window() {
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    let mut flows = Flows::default();
    let sealed = seal(&mut sender, &Segment::new(false, ACK, b"x").bytes());
    for writer in 0..=u8::MAX {
        let mut forged = sealed.clone();
        forged[5] = writer;
        let fault = (writer != 0).then(|| open(&mut receiver, &mut flows, &forged));
        assert!(fault.is_none_or(|fault| fault.is_err()));
    }
    assert!(
        format!("{receiver:?}").contains("0 writers"),
        "{receiver:?}"
    );
    assert!(open(&mut receiver, &mut flows, &sealed).is_ok());
    let (_, mut writer) = pep(&roots);
    let copy = again(&roots, &mut writer, &sealed);
    assert!(open(&mut receiver, &mut flows, &copy).is_ok());
    assert!(
        format!("{receiver:?}").contains("2 writers"),
        "{receiver:?}"
    );
}

#[test]
fn a_pep_may_resend_data_and_fin_but_no_syn_and_no_datagram() {
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    let (_, mut writer) = pep(&roots);
    let mut flows = Flows::default();
    let segment = |flags, payload: &[u8]| Segment::new(false, flags, payload).bytes();
    let kinds = [
        (segment(SYN, b""), false),
        (segment(ACK, b"data"), true),
        (segment(FIN | ACK, b""), true),
        (datagram(false, b"query"), false),
    ];
    for (psn, (inner, passes)) in (1..).zip(kinds) {
        let sealed = seal(&mut sender, &inner);
        assert!(open(&mut receiver, &mut flows, &sealed).is_ok());
        for _ in 0..2 {
            let copy = again(&roots, &mut writer, &sealed);
            let result = open(&mut receiver, &mut flows, &copy);
            let expected = Discarded::Payload(Stale::Repeated(psn));
            assert_eq!(
                result,
                passes
                    .then(|| (Delivered::Packet, inner.clone()))
                    .ok_or(expected)
            );
        }
    }
}

#[test]
fn payload_of_an_earlier_connection_does_not_reach_the_next() {
    let roots = roots(0);
    let (mut sender, mut receiver) = ends(&roots);
    let (_, mut writer) = pep(&roots);
    let mut flows = Flows::default();
    let segment = |flags, payload: &[u8]| Segment::new(false, flags, payload);
    let mut pass = |sealed: &[u8]| open(&mut receiver, &mut flows, sealed);
    let mut send = |segment: Segment| seal(&mut sender, &segment.bytes());
    let (syn, data) = (send(segment(SYN, b"")), send(segment(ACK, b"pay 100")));
    let other = send(segment(ACK, b"other").port(9));
    pass(&syn).unwrap();
    pass(&data).unwrap();
    let next = send(segment(SYN, b""));
    pass(&again(&roots, &mut writer, &data)).unwrap();
    pass(&next).unwrap();
    let refused = pass(&again(&roots, &mut writer, &data));
    assert_eq!(refused, Err(Discarded::OldPayload(2, FLOW_REACH)));
    pass(&other).unwrap();
    pass(&send(segment(ACK, b"new"))).unwrap();
}

/// The flow's memory is over all associations: the old one is good for two minutes yet.
#[test]
fn payload_of_the_old_association_reaches_no_connection_of_the_new() {
    let (old, new) = (roots(0), roots(1));
    let (mut old_sender, mut old_receiver) = ends(&old);
    let (mut new_sender, mut new_receiver) = ends(&new);
    let mut flows = Flows::default();
    let segment = |flags, payload: &[u8]| Segment::new(false, flags, payload).bytes();
    let before = seal(&mut old_sender, &segment(ACK, b"before"));
    let late = seal(&mut old_sender, &segment(ACK, b"late"));
    assert!(open(&mut old_receiver, &mut flows, &before).is_ok());
    let after = seal(&mut new_sender, &segment(ACK, b"after"));
    assert!(open(&mut new_receiver, &mut flows, &after).is_ok());
    assert!(
        open(&mut old_receiver, &mut flows, &late).is_ok(),
        "of one connection"
    );
    let next = seal(&mut new_sender, &segment(SYN, b""));
    assert!(open(&mut new_receiver, &mut flows, &next).is_ok());
    let (_, mut writer) = pep(&old);
    let copy = again(&old, &mut writer, &late);
    let refused = open(&mut old_receiver, &mut flows, &copy);
    assert_eq!(refused, Err(Discarded::OldPayload(2, FLOW_REACH)));
    assert_eq!(fresh(&new, &copy), Err(Discarded::Spi(new.spis().to_b)));
}

fn flow(number: u32) -> FlowId {
    let address = IpAddr::from([10, 0, 0, 1]);
    let other = IpAddr::from(number.to_be_bytes());
    FlowId {
        source: (address, 1),
        destination: (other, 2),
    }
}

fn at(association: u32, psn: u32) -> Place {
    Place { association, psn }
}

#[test]
fn payload_far_below_the_newest_of_its_flow_is_too_old() {
    let mut flows = Flows::default();
    assert!(flows.on_payload(flow(1), at(0, FLOW_REACH + 1)));
    assert!(!flows.on_payload(flow(1), at(0, 1)));
    assert!(flows.on_payload(flow(1), at(0, 2)));
    assert!(flows.on_payload(flow(2), at(0, 1)));
    assert!(flows.on_payload(flow(1), at(1, 1)), "another association");
    assert!(flows.on_payload(flow(1), at(0, 1)), "and what is behind it");
}

#[test]
fn a_syn_that_comes_late_opens_nothing_older() {
    let mut flows = Flows::default();
    flows.on_syn(flow(1), at(0, 9));
    flows.on_syn(flow(1), at(0, 3));
    assert!(!flows.on_payload(flow(1), at(0, 9)));
    assert!(flows.on_payload(flow(1), at(0, 10)));
}

#[test]
fn flows_that_are_forgotten_take_no_copies_and_all_that_is_new() {
    let mut flows = Flows::default();
    let most = MAX_FLOWS as u32;
    for number in 0..3 * most {
        assert!(flows.on_payload(flow(number), at(0, number + 1)));
        assert!(
            flows.on_payload(flow(0), at(0, number + 1)),
            "it is not silent"
        );
        assert!(flows.len() <= MAX_FLOWS);
    }
    assert!(flows.len() >= MAX_FLOWS / 2);
    assert!(!flows.on_payload(flow(1), at(0, 2)), "a copy of what came");
    flows.on_syn(flow(1), at(0, 2));
    assert!(
        !flows.on_payload(flow(1), at(0, 3)),
        "nor behind a copy of its SYN"
    );
    assert!(flows.on_payload(flow(1), at(0, 3 * most + 1)));
}
