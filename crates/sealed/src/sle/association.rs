//! Associations: what one tunnel lets its outer connections do, at the client and at the server.

use std::collections::HashMap;
use std::time::Instant;

use super::{Keys, Preface, Refusal, WINDOW};
use crate::epoch::{Epoch, Epochs, OutOfOrder};
use crate::window::Window;

/// Client's side of one tunnel: gives every outer connection a number of its own.
#[derive(Debug)]
pub struct Offers {
    id: u32,
    /// Epochs, each with the number of its next connection.
    epochs: Epochs<u64>,
}

impl Offers {
    /// Association that the server calls `id`, with its first epoch.
    #[must_use]
    pub fn new(id: u32, epoch: Epoch) -> Self {
        Self {
            id,
            epochs: Epochs::new(epoch, 0),
        }
    }

    /// Begins the next epoch, once the server has confirmed it.
    ///
    /// # Errors
    /// [`OutOfOrder`]: `epoch` is not the successor of the current one.
    pub fn begin(&mut self, now: Instant, epoch: Epoch) -> Result<(), OutOfOrder> {
        self.epochs.begin(now, epoch, 0)
    }

    /// Keys for one more outer connection. A connection that came to nothing has used them, too.
    pub fn open(&mut self) -> Keys {
        self.keys(false)
    }

    /// Keys for one more outer connection, whose preface asks for an answer.
    pub fn ask(&mut self) -> Keys {
        self.keys(true)
    }

    fn keys(&mut self, asks: bool) -> Keys {
        let id = self.id;
        let (epoch, next) = self.epochs.current();
        let (number, epoch_number) = (*next, epoch.number());
        *next += 1;
        let preface = Preface {
            epoch: epoch_number,
            id,
            number,
            asks,
        };
        Keys::derive(epoch, preface)
    }

    /// Moment at which an epoch is to be erased, if one is.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.epochs.deadline()
    }

    /// Erases the previous epoch once its time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.epochs.handle_timeout(now);
    }
}

/// Associations of a server, by the names that it has given them. Without its entry, a client's
/// connections are refused.
pub type Associations = HashMap<u32, Admissions>;

/// Server's side of one tunnel: admits every outer connection once.
#[derive(Debug)]
pub struct Admissions {
    epochs: Epochs<Window<WINDOW>>,
}

impl Admissions {
    /// Association with its first epoch.
    #[must_use]
    pub fn new(epoch: Epoch) -> Self {
        Self {
            epochs: Epochs::new(epoch, Window::default()),
        }
    }

    /// Begins the next epoch, as the client has asked, before that is confirmed.
    ///
    /// # Errors
    /// [`OutOfOrder`]: `epoch` is not the successor of the current one.
    pub fn begin(&mut self, now: Instant, epoch: Epoch) -> Result<(), OutOfOrder> {
        self.epochs.begin(now, epoch, Window::default())
    }

    /// Keys of the connection that begins with `preface`, which has proved nothing yet.
    ///
    /// # Errors
    /// [`Refusal`]: there is no such epoch, or the number cannot count any more.
    pub(super) fn keys(&mut self, now: Instant, preface: Preface) -> Result<Keys, Refusal> {
        let (epoch, window) = self.epochs.get(now, preface.epoch)?;
        window.check(preface.number)?;
        Ok(Keys::derive(epoch, preface))
    }

    /// Uses the number of `preface`, whose record 0 has been opened: only now does the window move,
    /// for anybody can make a preface.
    ///
    /// # Errors
    /// [`Refusal`]: the epoch has ended meanwhile, or somebody was faster with the same number.
    pub(super) fn admit(&mut self, now: Instant, preface: Preface) -> Result<(), Refusal> {
        let (_, window) = self.epochs.get(now, preface.epoch)?;
        Ok(window.insert(preface.number)?)
    }

    /// Moment at which an epoch is to be erased, if one is.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.epochs.deadline()
    }

    /// Erases the previous epoch once its time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.epochs.handle_timeout(now);
    }
}
