//! The congestion controller of the present path, and what it was started from: other settings and another path begin it anew.

use std::time::Instant;

use bentpipe_congestion::{Config, Controller, Kind, Saved};
use bentpipe_units::BitRate;

/// Congestion controller of a path, with everything that its successor on the same path has to be told.
pub(super) struct PathController {
    kind: Kind,
    config: Config,
    /// Packet size as last found by MTU discovery, in bytes of UDP payload.
    mtu: Option<u16>,
    controller: Controller,
    /// Knowledge of the path from an earlier connection, or controller.
    known: Option<Saved>,
    /// The controller goes by that.
    resumed: bool,
    /// Rate at which the peer saw a train arrive, in UDP payload.
    hint: Option<BitRate>,
    /// The next change is one of the packet size alone.
    kept: bool,
}

/// Reason for which quinn began a path anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The path is another one.
    Path,
    /// The packet size of the present path is to be found anew.
    Mtu,
}

impl PathController {
    /// A controller of this `kind` on a path of which nothing is known.
    pub(super) fn new(kind: Kind, config: Config, now: Instant) -> Self {
        Self {
            kind,
            config,
            mtu: None,
            controller: Controller::new(kind, &config, now),
            known: None,
            resumed: false,
            hint: None,
            kept: false,
        }
    }

    pub(super) fn get(&self) -> &Controller {
        &self.controller
    }

    pub(super) fn get_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// Packet size of the path, in bytes of UDP payload; `None` until it is known.
    pub(super) fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    /// Starts a controller with other settings, which is told what the old one has learned.
    pub(super) fn reconfigure(&mut self, now: Instant, kind: Kind, config: Config) {
        if (self.kind, self.config) == (kind, config) {
            return;
        }
        self.known = self.controller.saved(now).or(self.known);
        (self.kind, self.config) = (kind, config);
        self.start(now);
        if let Some(known) = self.known {
            self.resume(now, known);
        }
        if let Some(hint) = self.hint {
            self.controller.hint(now, hint);
        }
    }

    /// Announces that the next [`Self::change_path`] changes the packet size alone.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }

    /// Starts a controller for another path, with packets of `mtu` bytes, of which nothing is known; after [`Self::keep`] the
    /// controller goes on with that size.
    pub(super) fn change_path(&mut self, now: Instant, mtu: u16) -> Change {
        self.mtu = Some(mtu);
        if std::mem::take(&mut self.kept) {
            self.controller.on_mtu(mtu);
            return Change::Mtu;
        }
        self.start(now);
        (self.known, self.resumed, self.hint) = (None, false, None);
        Change::Path
    }

    fn start(&mut self, now: Instant) {
        self.controller = Controller::new(self.kind, &self.config, now);
        if let Some(mtu) = self.mtu {
            self.controller.on_mtu(mtu);
        }
    }

    pub(super) fn on_mtu(&mut self, mtu: u16) {
        self.mtu = Some(mtu);
        self.controller.on_mtu(mtu);
    }

    /// Goes on from what is known of the path; false if the controller makes no use of that.
    pub(super) fn resume(&mut self, now: Instant, saved: Saved) -> bool {
        self.known = Some(saved);
        self.resumed = self.controller.resume(now, saved);
        self.resumed
    }

    /// Takes the `rate` at which the peer saw a train arrive, in UDP payload.
    pub(super) fn hint(&mut self, now: Instant, rate: BitRate) {
        self.hint = Some(rate);
        self.controller.hint(now, rate);
    }

    /// Knowledge from before that the controller goes by.
    pub(super) fn resumed(&self) -> Option<Saved> {
        self.known.filter(|_| self.resumed)
    }
}
