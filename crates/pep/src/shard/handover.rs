//! From shard to shard: connections live where their ID says, new ones where there is most room.
//!
//! The kernel gives a datagram to the shard that its connection ID names (`sys::socket::steer`), where it can; first packets
//! name none, and are spread by address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use bentpipe_tunnel::engine::{Addressee, Arrival, Placement, Routed, addressee};

/// Datagrams that may wait for another shard before they are dropped.
const HANDOVER_QUEUE: usize = 1024;

/// The shards of a process, as seen by one of them.
pub(crate) struct Neighbours {
    own: u8,
    pub(super) inbox: mpsc::Receiver<Routed>,
    outboxes: Vec<mpsc::Sender<Routed>>,
    /// The shards on this one's address, itself among them: only they can answer what was sent there.
    peers: Vec<u8>,
    placement: Arc<Placement>,
    load: Load,
}

/// Bytes that this shard has moved, second by second.
#[derive(Debug, Default)]
struct Load {
    second: u64,
    /// Bytes before this second and before the one before.
    marks: [u64; 2],
}

impl Neighbours {
    /// Channels between shards on such `addresses`, at most 256: a connection ID names a shard with one byte.
    pub(crate) fn connect(addresses: &[SocketAddr], now: Instant) -> Vec<Self> {
        let (outboxes, inboxes): (Vec<_>, Vec<_>) = addresses
            .iter()
            .map(|_| mpsc::channel(HANDOVER_QUEUE))
            .unzip();
        let placement = Arc::new(Placement::new(addresses.len(), now));
        let numbered = (0..=u8::MAX).zip(addresses).zip(inboxes);
        numbered
            .map(|((own, address), inbox)| Self {
                own,
                inbox,
                outboxes: outboxes.clone(),
                peers: (0..=u8::MAX)
                    .zip(addresses)
                    .filter_map(|(shard, other)| (other == address).then_some(shard))
                    .collect(),
                placement: placement.clone(),
                load: Load::default(),
            })
            .collect()
    }

    /// Number of shards.
    pub(crate) fn len(&self) -> usize {
        self.outboxes.len()
    }

    /// Decides where new connections live, and hears of them.
    pub(super) fn placement(&self) -> (u8, Arc<Placement>) {
        (self.own, self.placement.clone())
    }

    /// Hands a datagram over if it belongs elsewhere; gives it back otherwise. One that would begin a connection is dropped
    /// if `judge` says so.
    pub(super) fn route(
        &self,
        now: Instant,
        arrival: Arrival,
        judge: impl FnOnce(&Arrival) -> bool,
    ) -> Option<Routed> {
        let shards = self.outboxes.len();
        let (owner, judged) = match addressee(&arrival.data) {
            // A restarted server may have fewer shards: the CID then names one that answers with a stateless reset.
            Addressee::Shard(shard) => (usize::from(shard) % shards, false),
            Addressee::Named(shard, _) if self.peers.contains(&shard) => (shard.into(), false),
            Addressee::Named(_, id) | Addressee::New(id) if self.peers.len() > 1 => {
                if !judge(&arrival) {
                    return None;
                }
                let shard = self.placement.place(now, id, &self.peers);
                (shard.unwrap_or(self.own).into(), true)
            }
            Addressee::Named(..) | Addressee::New(_) | Addressee::Nobody => {
                (self.own.into(), false)
            }
        };
        let routed = Routed { arrival, judged };
        if owner == usize::from(self.own) {
            return Some(routed);
        }
        // Full: dropped, as the network would.
        let _ = self.outboxes[owner].try_send(routed);
        None
    }

    /// Tells the others how busy this shard is, which has moved so many `bytes` so far.
    pub(super) fn publish(&mut self, now: Instant, bytes: u64) {
        let second = self.placement.second(now);
        let Load {
            second: last,
            marks,
        } = &mut self.load;
        if second != *last {
            // After a pause the second before was idle.
            let before = if second == *last + 1 { marks[0] } else { bytes };
            (*last, *marks) = (second, [bytes, before]);
        }
        let most = (bytes - marks[0]).max(marks[0] - marks[1]) >> 10;
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.placement.publish(now, self.own, most);
    }
}

/// Number of the shard, of so many `shards`, whose connection a datagram names; `None` if it names none: then a connection may
/// begin on any of them.
pub(crate) fn owner(shards: usize, datagram: &[u8]) -> Option<usize> {
    match addressee(datagram) {
        // A restarted server may have fewer shards: the CID then names one that answers with a stateless reset.
        Addressee::Shard(shard) => Some(usize::from(shard) % shards),
        Addressee::Named(shard, _) => Some(shard.into()).filter(|shard| *shard < shards),
        Addressee::New(_) | Addressee::Nobody => None,
    }
}

/// Has the kernel give each datagram to the socket of the shard that it names, of those that share the address of `socket`;
/// the first of them is that of shard `first`.
#[cfg(target_os = "linux")]
pub(crate) fn steer(socket: &std::net::UdpSocket, first: usize) -> std::io::Result<()> {
    let steering = bentpipe_sys::socket::Steering {
        id_length: bentpipe_tunnel::engine::SERVER_CID as u8,
        first: u8::try_from(first).unwrap_or(u8::MAX),
    };
    bentpipe_sys::socket::steer(socket, steering)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use bentpipe_tunnel::engine::SERVER_CID;
    use bytes::BytesMut;

    use super::*;

    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
    const THERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2);

    #[expect(clippy::disallowed_methods, reason = "an origin for made-up instants")]
    fn arrival(data: &[u8]) -> Arrival {
        Arrival {
            at: Instant::now(),
            remote: HERE,
            local: None,
            ecn: None,
            data: BytesMut::from(data),
        }
    }

    fn initial(id: &[u8]) -> Vec<u8> {
        let length = u8::try_from(id.len()).expect("an ID");
        [&[0xc0, 0, 0, 0, 1, length], id, &[0; 20]].concat()
    }

    /// The shard that gets this from shard 0.
    fn owner(shards: &mut [Neighbours], data: &[u8]) -> Option<(u8, bool)> {
        let arrival = arrival(data);
        let now = arrival.at;
        let kept = shards[0].route(now, arrival, |_| true);
        if let Some(kept) = kept {
            return Some((0, kept.judged));
        }
        let mut others = shards.iter_mut();
        others.find_map(|shard| Some((shard.own, shard.inbox.try_recv().ok()?.judged)))
    }

    #[test]
    fn datagrams_find_their_shard() {
        let now = arrival(&[]).at;
        let mut shards = Neighbours::connect(&[HERE, HERE, THERE], now);
        let short = |shard: u8| [&[0x40, shard][..], &[0; 30]].concat();
        assert_eq!(owner(&mut shards, &short(0)), Some((0, false)));
        assert_eq!(owner(&mut shards, &short(2)), Some((2, false)));
        assert_eq!(owner(&mut shards, &short(4)), Some((1, false)));
        let mut id = [7; SERVER_CID];
        id[0] = 1;
        // The second packet of a handshake, and one that only looks like it.
        assert_eq!(owner(&mut shards, &initial(&id)), Some((1, false)));
        id[0] = 2;
        let there = owner(&mut shards, &initial(&id)).expect("a shard");
        assert!(
            there.0 < 2 && there.1,
            "this address cannot answer for that one"
        );
        assert_eq!(owner(&mut shards, &[0x40, 1]), Some((0, false)));
    }

    #[test]
    fn first_packets_are_shared_out_and_judged_once() {
        let now = arrival(&[]).at;
        let mut shards = Neighbours::connect(&[HERE, HERE, THERE], now);
        let mut tunnels = [0; 3];
        for number in 0..8 {
            let first = initial(&[number; 12]);
            let (shard, judged) = owner(&mut shards, &first).expect("a shard");
            assert!(judged);
            assert_eq!(owner(&mut shards, &first), Some((shard, true)), "again");
            tunnels[usize::from(shard)] += 1;
        }
        assert_eq!(tunnels, [4, 4, 0]);
        let stranger = arrival(&initial(&[9; 12]));
        assert!(shards[0].route(now, stranger, |_| false).is_none());
        assert!(shards[1].inbox.try_recv().is_err(), "nobody gets it");
        let mut alone = Neighbours::connect(&[HERE], now);
        assert_eq!(owner(&mut alone, &initial(&[9; 12])), Some((0, false)));
    }

    #[test]
    fn a_shard_tells_what_it_moved_in_a_second() {
        let mut now = arrival(&[]).at;
        let mut shards = Neighbours::connect(&[HERE, HERE], now);
        let second = std::time::Duration::from_secs(1);
        shards[0].publish(now, 1 << 20);
        now += second;
        shards[0].publish(now, (1 << 20) + 1);
        // The busier of this second and the last: the new one goes to the other shard.
        assert_eq!(
            owner(&mut shards, &initial(&[1; 12])).map(|it| it.0),
            Some(1)
        );
    }
}
