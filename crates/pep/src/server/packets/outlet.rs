//! The socket of one mapping, as far as it sends; who reads it is a task of its own.

use std::io;
use std::rc::Rc;

use bentpipe_proto::nat::Datagram;
use bentpipe_sys::datagram::{self, Head};
use bentpipe_sys::socket::dropped_datagrams;
use tokio::net::UdpSocket;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

use crate::server::shares::HeldPlaces;

/// Place among the sockets of all clients, and among the descriptors of this one.
type Room = (OwnedSemaphorePermit, HeldPlaces);

/// The socket of one mapping.
pub(super) struct Outlet {
    socket: Rc<UdpSocket>,
    ipv6: bool,
    /// Head that its datagrams bear now.
    head: Option<Head>,
    /// Datagrams that came and found no room, as far as they are counted.
    lost: u32,
    task: AbortHandle,
    _room: Room,
}

impl Outlet {
    /// `task` reads `socket` and ends with this.
    pub(super) const fn new(
        socket: Rc<UdpSocket>,
        ipv6: bool,
        task: AbortHandle,
        room: Room,
    ) -> Self {
        Self {
            socket,
            ipv6,
            head: None,
            lost: 0,
            task,
            _room: room,
        }
    }

    /// Sends, with the head that the datagram is to have.
    pub(super) fn send(&mut self, datagram: &Datagram) -> io::Result<()> {
        let head = Head {
            hops: datagram.hops,
            traffic_class: datagram.traffic_class,
            whole: datagram.whole,
        };
        if self.head != Some(head) {
            datagram::set_head(&self.socket, self.ipv6, head)?;
            self.head = Some(head);
        }
        datagram::send(&self.socket, &datagram.content, datagram.to)
    }

    /// Datagrams that have found no room since this was asked last.
    pub(super) fn newly_lost(&mut self) -> u64 {
        let lost = dropped_datagrams(&self.socket).unwrap_or(self.lost);
        let newly = lost.wrapping_sub(self.lost);
        self.lost = lost;
        newly.into()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.task.abort();
    }
}
