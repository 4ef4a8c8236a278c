//! UDP sockets that are read in batches, and whose answers leave from the address that was asked: a machine may have several.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Bytes of each batch that the kernel joins of one peer's datagrams of one size.
const BATCH_BYTES: usize = 64 << 10;

/// UDP socket that is read in batches.
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// Datagram that has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    /// Peer that has sent it.
    pub(crate) peer: SocketAddr,
    /// Address that it was sent to; an answer has to come from there.
    pub(crate) local: Option<IpAddr>,
    pub(crate) bytes: &'a [u8],
}

/// Room for one read.
pub(crate) struct ReadRoom(Box<[u8]>);

impl Default for ReadRoom {
    fn default() -> Self {
        Self(vec![0; BATCH_BYTES * BATCH_SIZE].into_boxed_slice())
    }
}

impl DatagramSocket {
    /// Takes a bound socket that does not block; to be called inside a runtime.
    ///
    /// # Errors
    /// The socket cannot be waited for.
    pub(crate) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        Ok(Self {
            state: UdpSocketState::new(UdpSockRef::from(&socket))?,
            socket: UdpSocket::from_std(socket)?,
        })
    }

    /// Address that the socket is bound to.
    ///
    /// # Errors
    /// The kernel does not say.
    #[cfg(test)]
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends `bytes` to `peer`, from this machine's address `local` if one is given.
    ///
    /// # Errors
    /// The kernel has no room, or no way.
    pub(crate) fn send(
        &self,
        peer: SocketAddr,
        local: Option<IpAddr>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: peer,
            ecn: None,
            contents: bytes,
            segment_size: None,
            src_ip: local,
        };
        self.state
            .try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// Waits for datagrams, and gives one batch to `take`. None if what came is an error about a datagram that was sent.
    ///
    /// # Errors
    /// The socket cannot be waited for.
    pub(crate) async fn receive(
        &self,
        room: &mut ReadRoom,
        mut take: impl FnMut(Arrival<'_>),
    ) -> io::Result<()> {
        self.socket.readable().await?;
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut parts = room.0.chunks_mut(BATCH_BYTES).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| parts.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let received = self.socket.try_io(Interest::READABLE, || {
            let socket = UdpSockRef::from(&self.socket);
            self.state.recv(socket, &mut slices, &mut metas)
        });
        drop(parts);
        // An error is of a datagram that a peer did not take, or the readiness was stale.
        let count = received.unwrap_or(0);
        for (index, meta) in metas[..count].iter().enumerate() {
            let bytes = &room.0[index * BATCH_BYTES..][..meta.len];
            for bytes in bytes.chunks(meta.stride.max(1)) {
                let (peer, local) = (meta.addr, meta.dst_ip);
                take(Arrival { peer, local, bytes });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn an_answer_leaves_from_the_address_that_was_asked() {
        let bound = |address: &str| {
            let socket = std::net::UdpSocket::bind(address).unwrap();
            socket.set_nonblocking(true).unwrap();
            DatagramSocket::new(socket).unwrap()
        };
        let (asked, asker) = (bound("0.0.0.0:0"), bound("127.0.0.1:0"));
        let port = asked.local_addr().unwrap().port();
        // All of 127.0.0.0/8 is this machine's; the kernel alone would answer from 127.0.0.1.
        let peer = SocketAddr::from(([127, 0, 0, 9], port));
        asker.send(peer, None, b"question").unwrap();
        let mut room = ReadRoom::default();
        let answer = |got: Arrival<'_>| asked.send(got.peer, got.local, got.bytes).unwrap();
        asked.receive(&mut room, answer).await.unwrap();
        let mut answers = Vec::new();
        let keep = |got: Arrival<'_>| answers.push((got.peer, got.bytes.to_vec()));
        asker.receive(&mut room, keep).await.unwrap();
        assert_eq!(answers, [(peer, b"question".to_vec())]);
    }
}
