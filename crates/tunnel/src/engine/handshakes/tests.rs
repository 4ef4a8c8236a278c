//! The policy in virtual time: strangers flood, clients come in.
#![expect(
    clippy::disallowed_methods,
    reason = "one base instant; all else is virtual"
)]

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

/// The policy with the connections that it lets in.
struct Door {
    handshakes: Handshakes,
    start: Instant,
    now: Instant,
    next: u64,
    evicted: Vec<ConnectionId>,
}

impl Door {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            handshakes: Handshakes::new(Seed::new(1)),
            start: now,
            now,
            next: 0,
            evicted: Vec::new(),
        }
    }

    /// A handshake of an address that is proven; `None`: ignored.
    fn begin(&mut self, address: IpAddr) -> Option<ConnectionId> {
        let verdict = self.handshakes.admit(self.now, address, true);
        let Verdict::Take { instead_of } = verdict else {
            return None;
        };
        if let Some(id) = instead_of {
            self.handshakes.forget(id);
            self.evicted.push(id);
        }
        let id = ConnectionId(self.next);
        self.next += 1;
        self.handshakes.enter(self.now, id, address);
        Some(id)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        while let Some(id) = self.handshakes.give_up(self.now) {
            self.evicted.push(id);
        }
    }

    fn open(&self) -> usize {
        self.handshakes.open.len()
    }
}

fn v4(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, network, host).into()
}

fn v6(network: u16, subnet: u16, host: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, network, subnet, 0, 0, 0, host).into()
}

#[test]
fn addresses_have_to_be_proven_once_many_handshakes_are_under_way() {
    let mut door = Door::new();
    for host in 0..64 {
        let verdict = door.handshakes.admit(door.now, v4(host, 1), false);
        assert_eq!(verdict, Verdict::Take { instead_of: None });
        door.begin(v4(host, 1));
    }
    let verdict = door.handshakes.admit(door.now, v4(99, 1), false);
    assert_eq!(verdict, Verdict::Prove);
}

#[test]
fn a_flood_of_one_host_keeps_nobody_else_out() {
    let mut door = Door::new();
    let (mut begun, attacker) = (0, v4(1, 1));
    // 1,000 a second for a minute.
    while door.now < door.start + Duration::from_secs(60) {
        begun += usize::from(door.begin(attacker).is_some());
        door.pass(Duration::from_millis(1));
        assert!(door.open() <= OF_HOST);
        // A neighbour in the same /24, and its round trip of 600 ms.
        if door.next.is_multiple_of(100) {
            let id = door.begin(v4(1, 2)).expect("it is let in");
            let still = |door: &Door| door.handshakes.open.contains_key(&id);
            assert!(still(&door));
            door.handshakes.succeed(id);
        }
    }
    assert!(begun <= 256 + 60 * 50, "{begun} begun");
    door.pass(Duration::from_secs(31));
    assert_eq!(door.open(), 0);
    assert!(door.handshakes.of_host.is_empty() && door.handshakes.of_network.is_empty());
}

#[test]
fn an_honest_handshake_has_seconds_in_a_flood_of_many_networks() {
    let mut door = Door::new();
    let mut next = 0;
    let mut flood = |door: &mut Door, count: usize| {
        for _ in 0..count {
            next = (next + 1) % 20;
            door.begin(v4(next, 1));
        }
    };
    flood(&mut door, 10_000);
    assert_eq!(door.open(), MOST);
    let honest = door.begin(v4(200, 7)).expect("it is let in");
    // 20 networks begin 1,000 a second together, of which some are taken.
    for _ in 0..30 {
        flood(&mut door, 100);
        door.pass(Duration::from_millis(100));
    }
    assert!(door.open() <= MOST);
    assert!(!door.evicted.contains(&honest), "3 s are enough");
}

#[test]
fn who_has_most_gives_way_and_the_oldest_first() {
    let mut door = Door::new();
    let first: Vec<_> = (0..OF_HOST).map(|_| door.begin(v4(1, 1))).collect();
    for host in 0..3 {
        let ids = (0..OF_HOST).map(|_| door.begin(v4(10 + host, 1)));
        assert!(ids.collect::<Option<Vec<_>>>().is_some());
    }
    assert_eq!((door.open(), door.evicted.len()), (MOST, 0));
    // One of the four, whose counts are equal; from then on each in turn.
    for host in 0..4 {
        door.begin(v4(100 + host, 1)).expect("it is let in");
    }
    assert_eq!(door.open(), MOST);
    assert!(door.evicted.contains(&first[0].expect("it was let in")));
}

#[test]
fn patience_is_short_while_many_are_under_way() {
    let mut door = Door::new();
    let slow = door.begin(v4(1, 1)).expect("it is let in");
    door.pass(Duration::from_secs(20));
    assert!(door.evicted.is_empty());
    (0..64).for_each(|host| {
        door.begin(v4(host, 9));
    });
    assert!(!door.handshakes.subsides());
    door.pass(Duration::from_millis(1));
    assert_eq!(door.evicted, [slow]);
    assert!(door.handshakes.subsides() && !door.handshakes.subsides());
    door.pass(Duration::from_secs(6));
    assert_eq!(door.open(), 64, "these are few again");
}

#[test]
fn a_thousand_clients_behind_one_address_come_in_as_they_succeed() {
    let mut door = Door::new();
    let (mut waiting, mut under_way) = (1000, Vec::new());
    while waiting > 0 {
        while waiting > 0
            && let Some(id) = door.begin(v4(1, 1))
        {
            under_way.push(id);
            waiting -= 1;
        }
        door.pass(Duration::from_millis(600));
        for id in under_way.drain(..) {
            assert!(!door.evicted.contains(&id));
            door.handshakes.succeed(id);
        }
    }
    let took = door.now - door.start;
    assert!(took <= Duration::from_secs(3), "{took:?}");
}

#[test]
fn an_ipv6_subnet_is_one_host() {
    let mut door = Door::new();
    let hosts = (0..1000).filter(|host| door.begin(v6(1, 1, *host)).is_some());
    assert_eq!(hosts.count(), 256);
    let subnets = (0..1000).filter(|subnet| door.begin(v6(1, *subnet, 1)).is_some());
    assert!(subnets.count() <= 1024, "a /48 has a share, too");
    assert!(door.begin(v6(2, 1, 1)).is_some());
}

#[test]
fn first_packets_have_a_share_as_well() {
    let mut door = Door::new();
    let mut looked_at = |count: u32, pause: Duration| {
        let knock = |_: &u32| {
            door.now += pause;
            door.handshakes.knock(door.now, v4(1, 1))
        };
        (0..count).filter(knock).count()
    };
    assert_eq!(looked_at(10_000, Duration::ZERO), 2000);
    let kept = looked_at(10_000, Duration::from_micros(100));
    assert!((490..=510).contains(&kept), "{kept} in a second");
    assert!(door.handshakes.knock(door.now, v4(1, 2)));
}
