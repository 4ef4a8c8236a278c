//! A daemon that stops in order: it refuses flows, lets those end that are open, and closes its tunnels. No flow that it has
//! taken is lost, unless one takes longer than the daemon waits.

use std::time::Duration;

use super::Run;
use super::end::Side;

/// Time that open flows are given.
const PATIENCE: Duration = Duration::from_secs(20);

/// A stop under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    side: Side,
    /// Virtual time at which flows are not waited for any more.
    until: Duration,
}

impl Run {
    /// The daemon at one end begins to stop, unless one does already or there is no tunnel.
    pub(super) fn stop(&mut self) {
        if self.stopping.is_some() || self.world.terminals[0].ready.is_none() {
            return;
        }
        let side = match self.dice.one_in(2) {
            true => Side::Client,
            false => Side::Server,
        };
        let engine = side.engine(&mut self.world);
        let all: Vec<_> = engine.connections().map(|(id, _)| id).collect();
        for id in all {
            let connection = engine.connection(id).expect("it was there");
            connection.tunnel.send_goaway();
        }
        let until = self.world.at() + PATIENCE;
        self.stopping = Some(Stop { side, until });
    }

    /// Closes the tunnels of a daemon that stops, once nothing is owed to their peers.
    pub(super) fn go_on_stopping(&mut self) {
        let Some(Stop { side, until }) = self.stopping else {
            return;
        };
        let late = self.world.at() >= until;
        let now = self.world.now;
        let engine = side.engine(&mut self.world);
        let is_idle = engine.connections().all(|(_, it)| it.tunnel.is_idle());
        if !late && !is_idle {
            return;
        }
        let all: Vec<_> = engine.connections().map(|(id, _)| id).collect();
        for id in all {
            let connection = engine.connection(id).expect("it was there");
            connection.close(now, 0, "stopped".into());
        }
        self.stopping = None;
        match side {
            Side::Client => self.world.terminals[0].ready = None,
            // Until the client hears of it, what it opens is lost.
            Side::Server => self.forgotten = self.world.terminals[0].tunnels.len(),
        }
        for flow in &mut self.flows {
            flow.on_stopped(late);
        }
    }
}
