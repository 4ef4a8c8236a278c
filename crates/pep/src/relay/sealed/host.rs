//! The host's connection of a sealed flow: payload between a socket and the state machine, and how the host is lost.

use std::io::IoSlice;
use std::task::{Context, Poll};

use bentpipe_proto::tunnel::AbortCode;
use bentpipe_sealed::sle::Conn;
use bentpipe_tunnel::relay::{LanSocket as _, abort_code};

use crate::process;
use crate::relay::{LanSide, delivered};
use crate::sle_traffic::OpenFlow;

/// Host's connection at this end.
pub(super) struct HostSide {
    side: LanSide,
    /// The host has not sent FIN.
    reading: bool,
    /// The host was lost while it was written to; what it said before may still have to be read.
    lost: Option<AbortCode>,
}

impl HostSide {
    /// Connection at `side`; the host has sent FIN unless it is still `reading`.
    pub(super) fn new(side: LanSide, reading: bool) -> Self {
        Self {
            side,
            reading,
            lost: None,
        }
    }

    /// Has the connection end by FIN.
    pub(super) fn close_in_order(&self) {
        self.side.close_in_order();
    }

    /// Waits until the host's kernel has what was written, or for a bounded time.
    pub(super) async fn delivered(&self) {
        delivered(&self.side.socket).await;
    }

    /// Conn → host; true if something has changed.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, conn: &mut Conn) -> bool {
        let held = conn.lan_output().len();
        if held == 0 {
            return false;
        }
        let now = process::now();
        if self.lost.is_some() {
            // Nobody takes it, and the peer's last words, which come behind, must not wait for that.
            conn.lan_written(now, held);
            return true;
        }
        match self.side.poll_write(cx, &[IoSlice::new(conn.lan_output())]) {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) => {
                conn.lan_written(now, count);
                true
            }
            Poll::Ready(Err(error)) => {
                self.lose(conn, abort_code(&error));
                true
            }
        }
    }

    /// Host → Conn; true if something has changed.
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Conn,
        counted: &OpenFlow,
    ) -> bool {
        if !self.reading {
            if self.lost.is_none()
                && let Poll::Ready(error) = self.side.poll_hangup(cx)
            {
                self.lose(conn, abort_code(&error));
                return true;
            }
            return false;
        }
        let room = counted.room(conn.lan_room());
        if room == 0 {
            return false;
        }
        let now = process::now();
        match self.side.poll_read(cx, room) {
            Poll::Pending => false,
            Poll::Ready(Ok(bytes)) if bytes.is_empty() => {
                self.reading = false;
                match self.lost {
                    // A write has taken the error: this is no FIN.
                    Some(code) => conn.abort(now, byte(code)),
                    None => conn.on_lan_end(now),
                }
                true
            }
            Poll::Ready(Ok(bytes)) => {
                conn.on_lan(now, &bytes);
                true
            }
            Poll::Ready(Err(error)) => {
                self.reading = false;
                self.lose(conn, abort_code(&error));
                true
            }
        }
    }

    /// Tells the host that the peer has ended its direction.
    pub(super) fn shut(&mut self, conn: &mut Conn) {
        if self.lost.is_some() {
            return;
        }
        match self.side.finish() {
            Ok(()) => conn.on_lan_shut(process::now()),
            Err(error) => self.lose(conn, abort_code(&error)),
        }
    }

    /// The host is lost: the peer hears of it once all that the host said before has been read.
    fn lose(&mut self, conn: &mut Conn, code: AbortCode) {
        let code = *self.lost.get_or_insert(code);
        if !self.reading {
            conn.abort(process::now(), byte(code));
        }
    }
}

/// Number of a code on the wire.
fn byte(code: AbortCode) -> u8 {
    u8::try_from(code.code()).unwrap_or(u8::MAX)
}
