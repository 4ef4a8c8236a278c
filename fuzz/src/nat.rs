//! The translator of a server without a device (PROTOCOL.md §14): a client's packets, and what the world sends to its sockets.

use std::time::Duration;

use bentpipe_proto::nat::{Failure, Nat, Outcome};
use bentpipe_proto::packets::{Header, MTU, Prohibited};
use bytes::Bytes;

use crate::packets::packet_seeds;

/// A packet, and after it what its destination says, cut at the byte that says how long the packet is.
pub fn exchange(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else {
        return;
    };
    let (packet, said) = rest.split_at(rest.len().min(length.into()));
    let own = Prohibited {
        ipv4: Some([192, 0, 2, 1].into()),
        ipv6: Some([1; 16].into()),
    };
    let (now, mut nat) = (crate::origin(), Nat::new(own));
    let mut packet = packet.to_vec();
    mend(&mut packet);
    let client = Header::parse(&packet).map(|header| header.source);
    let is_for_client = |packet: &Bytes| {
        let header = Header::parse(packet).expect("a packet");
        assert!(packet.len() <= MTU && Some(header.destination) == client);
    };
    match nat.on_packet(now, &packet.into(), true) {
        Outcome::Send(sent) => {
            assert!(sent.hops > 0 && sent.content.len() < length.into());
            let at = sent.mapping;
            nat.on_datagram(now, at, sent.to, said, (9, 0xb8), |packet| {
                is_for_client(&packet);
            });
            let failure = Failure {
                from: Some(sent.to.ip()),
                said: (said.first().map_or(3, |kind| kind % 16), 4),
                mtu: said.len() as u32,
                to: sent.to,
                content: said,
            };
            if let Some(error) = nat.on_failure(at, &failure) {
                is_for_client(&error);
            }
        }
        Outcome::Answer(error) => is_for_client(&error),
        Outcome::Drop(_) => {}
    }
    nat.handle_timeout(now + Duration::from_secs(3600));
    assert!(nat.is_empty());
}

/// Makes IPv4's header and UDP pass their checksums, which chance hardly ever would: IPv4 may go without the latter.
fn mend(packet: &mut [u8]) {
    let head = packet
        .first()
        .map_or(0, |first| usize::from(first & 15) * 4);
    if packet.first().is_none_or(|first| first >> 4 != 4) || head < 20 || packet.len() < head + 8 {
        return;
    }
    packet[10..12].fill(0);
    let words = packet[..head].chunks(2);
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    if packet[9] == 17 {
        packet[head + 6..head + 8].fill(0);
    }
}

/// Packets of both families and answers to them.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut udp = vec![0_u8; 40];
    udp[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17]);
    udp[12..20].copy_from_slice(&[100, 96, 0, 2, 198, 51, 100, 7]);
    udp[20..26].copy_from_slice(&[19, 136, 0, 53, 0, 20]);
    let mut packets = packet_seeds();
    packets.push(udp);
    let answered = |packet: Vec<u8>| {
        let mut seed = vec![packet.len() as u8];
        seed.extend(packet);
        seed.extend([3; 1600]);
        seed
    };
    packets.into_iter().map(answered).collect()
}
