//! The outer connection of a sealed flow: records between a socket and the state machine.

use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll};

use bentpipe_sealed::sle::Conn;
use bentpipe_tunnel::relay::LanSocket as _;
use bytes::{Buf as _, Bytes};

use crate::process;
use crate::relay::LanSide;
use crate::shard::Shard;
use crate::sle_traffic::OpenFlow;

/// Outer connection of one flow.
pub(super) struct Outer {
    side: LanSide,
    /// Bytes read for which the flow had no room.
    unread: Bytes,
    /// The outer connection takes no more; what it brought may still have to be read.
    deaf: bool,
    /// The outer connection has ended.
    gone: bool,
}

impl Outer {
    /// Connection at `side`, of which `unread` was read already.
    pub(super) fn new(side: LanSide, unread: Bytes) -> Self {
        Self {
            side,
            unread,
            deaf: false,
            gone: false,
        }
    }

    /// Shard that the connection is served by.
    pub(super) fn shard(&self) -> &Rc<Shard> {
        &self.side.shard
    }

    /// Has the connection end by FIN.
    pub(super) fn close_in_order(&self) {
        self.side.close_in_order();
    }

    /// Conn → outer connection; true if something has changed.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Conn,
        counted: &OpenFlow,
    ) -> bool {
        if self.deaf || self.gone || conn.outer_output().is_empty() {
            return false;
        }
        match self
            .side
            .poll_write(cx, &[IoSlice::new(conn.outer_output())])
        {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) => {
                counted.sent(count);
                conn.outer_written(process::now(), count);
                true
            }
            Poll::Ready(Err(_)) => {
                self.deaf = true;
                true
            }
        }
    }

    /// Outer connection → Conn; true if something has changed.
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Conn,
        counted: &OpenFlow,
    ) -> bool {
        let room = counted.room(conn.outer_room());
        if self.gone || room == 0 && self.unread.is_empty() {
            return false;
        }
        if self.unread.is_empty() {
            match self.side.poll_read(cx, room) {
                Poll::Pending => return false,
                Poll::Ready(Ok(bytes)) if bytes.is_empty() => {
                    self.gone = true;
                    // A write has taken the error: this is no end in order.
                    match self.deaf {
                        true => conn.on_outer_reset(),
                        false => conn.on_outer_end(),
                    }
                    return true;
                }
                Poll::Ready(Ok(bytes)) => {
                    counted.received(bytes.len());
                    self.unread = bytes;
                }
                Poll::Ready(Err(_)) => {
                    self.gone = true;
                    conn.on_outer_reset();
                    return true;
                }
            }
        }
        let taken = conn.on_outer(process::now(), &self.unread);
        self.unread.advance(taken);
        taken > 0
    }
}
