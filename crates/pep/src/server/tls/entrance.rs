//! Ends of the talks with those who come to the TCP door, counted by cause.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use crate::status::{TlsEntrance, TlsRefused};

/// Counts of the door.
#[derive(Debug, Default)]
pub(super) struct Entrance(Cell<TlsEntrance>);

impl Entrance {
    /// Counts so far.
    pub(super) fn report(&self) -> TlsEntrance {
        self.0.get()
    }

    fn count(&self, change: impl FnOnce(&mut TlsEntrance)) {
        let mut counts = self.0.get();
        change(&mut counts);
        self.0.set(counts);
    }

    /// Counts a connection that was refused.
    pub(super) fn refuse(&self, cause: fn(&mut TlsRefused) -> &mut u64) {
        self.count(|counts| *cause(&mut counts.refused_total) += 1);
    }
}

/// One talk. Dropped without an end, it has given way to a newer stranger's.
pub(super) struct Talk {
    entrance: Rc<Entrance>,
    ended: bool,
}

impl Talk {
    /// A talk that begins.
    pub(super) fn begin(entrance: &Rc<Entrance>) -> Self {
        Self {
            entrance: entrance.clone(),
            ended: false,
        }
    }

    /// A client has shown its key.
    pub(super) fn proven(mut self) {
        self.ended = true;
        self.entrance.count(|counts| counts.clients_total += 1);
    }

    /// The connection goes on to the web server.
    pub(super) fn led_on(mut self) {
        self.ended = true;
        self.entrance.count(|counts| counts.guests_total += 1);
    }

    /// The connection is refused.
    pub(super) fn refused(mut self, cause: fn(&mut TlsRefused) -> &mut u64) {
        self.ended = true;
        self.entrance.refuse(cause);
    }

    /// The connection is refused, for `error` has ended it.
    pub(super) fn failed(self, error: &io::Error) {
        self.refused(match error.kind() {
            io::ErrorKind::InvalidData => |refused| &mut refused.handshake,
            io::ErrorKind::Other => |refused| &mut refused.content,
            _ => |refused| &mut refused.incomplete,
        });
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        if !self.ended {
            self.entrance.refuse(|refused| &mut refused.displaced);
        }
    }
}
