//! The server's UDP ports for packets of LES: read on the main thread, which knows whose they are and opens none.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{spawn_local, yield_now};
use tokio::time::sleep;

use super::{LayeredPacket, LayeredTunnels, ReturnPath};
use crate::config::LesListening;
use crate::net::datagrams::{Arrival, DatagramSocket, ReadRoom};
use crate::net::listen::bind_each;
use crate::process::{self, RunError};

/// Packets that may wait for a shard before others are dropped: 3 MB.
const QUEUE: usize = 2048;

/// Time after which a socket that cannot be read is read again.
const PAUSE: Duration = Duration::from_millis(100);

/// Packets for one shard.
pub(in crate::server) type LesInbox = mpsc::Receiver<LayeredPacket>;

/// Sockets for packets of LES, and the shards that they lead to.
pub(in crate::server) struct LesDoor {
    sockets: Vec<Arc<DatagramSocket>>,
    tunnels: Arc<LayeredTunnels>,
    shards: Vec<mpsc::Sender<LayeredPacket>>,
}

impl LesDoor {
    /// Binds the addresses of `les` for so many `shards`, which get what comes by the receivers; to be called inside a runtime.
    ///
    /// # Errors
    /// An address cannot be had.
    pub(in crate::server) fn open(
        les: &LesListening,
        tunnels: &Arc<LayeredTunnels>,
        shards: usize,
    ) -> Result<(Rc<Self>, Vec<LesInbox>), RunError> {
        let open = |address| {
            let socket = super::super::bind(address, false)?;
            DatagramSocket::new(socket.into()).map(Arc::new)
        };
        let sockets = bind_each(&les.addresses, "UDP", open)?;
        let (shards, inboxes) = (0..shards).map(|_| mpsc::channel(QUEUE)).unzip();
        let door = Self {
            sockets,
            tunnels: tunnels.clone(),
            shards,
        };
        Ok((Rc::new(door), inboxes))
    }

    /// Takes in packets; to be called inside a set of local tasks.
    pub(in crate::server) fn serve(self: &Rc<Self>) {
        for index in 0..self.sockets.len() {
            let door = self.clone();
            spawn_local(async move { door.read(index).await });
        }
    }

    /// Reads one socket for ever.
    async fn read(&self, index: usize) {
        let socket = &self.sockets[index];
        let hand_on = |packet: Arrival<'_>| {
            let from = || ReturnPath {
                socket: socket.clone(),
                peer: packet.peer,
                local: packet.local,
            };
            self.hand_on(packet.bytes, from);
        };
        let mut room = ReadRoom::default();
        loop {
            if let Err(error) = socket.receive(&mut room, hand_on).await {
                tracing::error!("packets of LES cannot be read: {error}");
                sleep(PAUSE).await;
            }
            // Strangers can keep the socket full, and this thread has signals and other doors to serve.
            yield_now().await;
        }
    }

    /// Hands `datagram` to the shard of its association, if one is known.
    fn hand_on(&self, datagram: &[u8], from: impl Fn() -> ReturnPath) {
        let place = self.tunnels.place_of(process::now(), datagram, &from);
        let Some((shard, tunnel)) = place else { return };
        let packet = LayeredPacket {
            tunnel,
            from: from(),
            bytes: datagram.to_vec(),
        };
        let shard = self.shards.get(usize::from(shard));
        // Full: dropped, as a link would.
        if shard.is_some_and(|shard| shard.try_send(packet).is_err()) {
            self.tunnels.count_crowded();
        }
    }
}
