//! Sockets by which a shard's datagrams leave: its own, and those of the server's other addresses.
//!
//! A connection lives on the shard that its ID names, and may be spoken to at any address of the server: a tunnel that began over
//! TLS lives on a shard that it met by chance, and goes on by UDP at the address that the client's file names. What answers there
//! has to come from there.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdSocket};

/// Sockets of a process, one for each address that it listens at.
#[derive(Debug, Default)]
pub(crate) struct Exits(Vec<(SocketAddr, StdSocket)>);

impl Exits {
    /// Sockets of the addresses among `sockets`, of which several may share one.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn of(sockets: &[StdSocket]) -> io::Result<Self> {
        let mut exits: Vec<(SocketAddr, StdSocket)> = Vec::new();
        for socket in sockets {
            let local = socket.local_addr()?;
            if exits.iter().all(|(known, _)| *known != local) {
                exits.push((local, socket.try_clone()?));
            }
        }
        Ok(Self(exits))
    }

    /// Sockets of other addresses than that of `own`, for the shard of which that is.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn beside(&self, own: &StdSocket) -> io::Result<Self> {
        let own = own.local_addr()?;
        let others = self.0.iter().filter(|(local, _)| *local != own);
        let copies = others.map(|(local, socket)| Ok((*local, socket.try_clone()?)));
        copies.collect::<io::Result<_>>().map(Self)
    }

    /// Place of the socket from which a datagram to `to` has to leave, whose sender is to be `from` if that is known; `None`: the
    /// socket that listens at `own`.
    pub(super) fn choose(
        &self,
        own: SocketAddr,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> Option<usize> {
        let best = (0..self.0.len())
            .rev()
            .max_by_key(|place| fit(self.0[*place].0, to, from))?;
        (fit(self.0[best].0, to, from) > fit(own, to, from)).then_some(best)
    }

    /// Socket at this place.
    pub(super) fn get(&self, place: usize) -> Option<&StdSocket> {
        self.0.get(place).map(|(_, socket)| socket)
    }
}

/// How well the socket at `local` suits a datagram to `to` that is to come `from` there.
fn fit(local: SocketAddr, to: SocketAddr, from: Option<IpAddr>) -> u8 {
    let from = from.map(|from| from.to_canonical());
    let of_family = local.is_ipv4() == to.ip().to_canonical().is_ipv4();
    match local.ip() {
        ip if Some(ip.to_canonical()) == from => 3,
        ip if ip.is_unspecified() && of_family => 2,
        // Perhaps the wrong one of several addresses; by another family nothing leaves at all.
        _ if of_family => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exits(addresses: &[&str]) -> Exits {
        let bind = |address: &&str| StdSocket::bind(address).expect("a socket");
        let sockets: Vec<_> = addresses.iter().map(bind).collect();
        Exits::of(&sockets).expect("descriptors")
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_datagram_leaves_by_a_socket_of_its_family_and_its_address() {
        let others = exits(&["0.0.0.0:0", "127.0.0.2:0", "127.0.0.3:0"]);
        let (v6, to) = (address("[::]:4433"), address("192.0.2.7:50000"));
        let choose = |own, to, from: Option<&str>| {
            others.choose(own, to, from.map(|from| from.parse().expect("an address")))
        };
        assert_eq!(choose(v6, to, None), Some(0), "the own one has no IPv4");
        assert_eq!(choose(v6, to, Some("127.0.0.3")), Some(2));
        assert_eq!(choose(v6, address("[2001:db8::7]:50000"), None), None);
        let own = address("127.0.0.4:4433");
        assert_eq!(choose(own, to, Some("127.0.0.4")), None, "its own address");
        assert_eq!(choose(own, to, Some("127.0.0.2")), Some(1));
        let specific = exits(&["127.0.0.2:0"]);
        let v6 = address("[2001:db8::1]:4433");
        assert_eq!(specific.choose(v6, to, None), Some(0), "of the family");
        assert_eq!(specific.choose(own, to, None), None, "its own is as good");
        let mapped = address("[::ffff:192.0.2.7]:50000");
        assert_eq!(choose(v6, mapped, None), Some(0));
        assert_eq!(Exits::default().choose(v6, to, None), None);
    }

    #[test]
    fn shards_at_one_address_have_one_exit() {
        let socket = StdSocket::bind("127.0.0.1:0").expect("a socket");
        let sockets = [socket.try_clone().expect("a descriptor"), socket];
        let exits = Exits::of(&sockets).expect("descriptors");
        assert_eq!(exits.0.len(), 1);
        assert!(exits.beside(&sockets[0]).expect("descriptors").0.is_empty());
    }
}
