//! UDP ports that the kernel leads to a client.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;

use socket2::Socket;
use tokio::task::spawn_blocking;

use crate::server::packets::Packets;

/// UDP ports that are led to a client; dropping it ends that, off this thread: it takes milliseconds.
pub(in crate::server) struct Leading(Option<Arc<Led>>);

struct Led {
    packets: Arc<Packets>,
    ports: Vec<(u16, IpAddr)>,
    /// Only when it is over may somebody else have the port.
    _claimed: Vec<Socket>,
}

impl Leading {
    /// Leads what is for `ports` to the addresses beside them; `claimed` keeps others from these ports.
    pub(in crate::server) fn new(
        packets: Arc<Packets>,
        ports: Vec<(u16, IpAddr)>,
        claimed: Vec<Socket>,
    ) -> Self {
        Self(Some(Arc::new(Led {
            packets,
            ports,
            _claimed: claimed,
        })))
    }

    /// The packets are led from now on.
    pub(in crate::server) async fn begin(&self) -> io::Result<()> {
        let Some(led) = self.0.clone() else {
            return Ok(());
        };
        // It holds what it publishes: nothing ends before it has begun.
        let begun = spawn_blocking(move || led.packets.publish(&led.ports));
        begun.await.map_err(io::Error::other)?
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        let led = self.0.take();
        // Without a thread it happens here.
        let _ = thread::Builder::new().spawn(move || drop(led));
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        if let Err(error) = self.packets.unpublish(&self.ports) {
            tracing::error!("cannot close a published port: {error}");
        }
    }
}
