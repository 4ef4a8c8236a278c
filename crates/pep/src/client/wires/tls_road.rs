//! TLS connections to the servers: opened, carried, and ended.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::super::retry::{Failure, LIKELY_LOST};
use super::super::tls_connection;
use super::super::wire_choice::{Need, TlsFate};
use super::{OpenWire, Wires};
use crate::shard::{TlsWire, WireEnd};
use crate::tls::TlsSocket;
use crate::{events, process};

/// Time for which a wire that is left still takes what is under way to this side.
const LINGER: Duration = Duration::from_secs(3);

impl Wires {
    pub(super) fn open(self: &Rc<Self>, server: usize) {
        let wires = self.clone();
        spawn_local(async move {
            let (config, passed) = (&wires.config.servers[server], wires.of[server].passed.get());
            let opened = tls_connection::open(config, &wires.servers, wires.mark, passed).await;
            // An attempt may have opened one of its own meanwhile.
            let awaited = wires.of[server].choice.borrow().is_opening();
            match opened {
                _ if !awaited => {}
                Ok(socket) => wires.on_opened(server, socket),
                Err(error) => wires.on_not_opened(server, &error),
            }
            wires.kick.notify_one();
        });
    }

    fn on_not_opened(&self, server: usize, error: &io::Error) {
        self.of[server]
            .choice
            .borrow_mut()
            .on_not_opened(process::now());
        if !self.of[server].told.replace(true)
            && let Some(address) = &self.config.servers[server].tls
        {
            if self.permits_udp(server) {
                match self.need(server) {
                    Need::Attempt { heard: true, .. } => tracing::warn!(
                        "a handshake by UDP that does not end, and no TLS connection to {address}: {error}; trying on"
                    ),
                    _ => tracing::warn!(
                        "no answer by UDP, and no TLS connection to {address}: {error}; trying on"
                    ),
                }
            } else {
                tracing::warn!("no TLS connection to {address}: {error}; trying on");
            }
        }
    }

    pub(super) fn on_opened(self: &Rc<Self>, server: usize, socket: TlsSocket) {
        let (now, need) = (process::now(), self.need(server));
        let wires = &self.of[server];
        wires.told.set(false);
        let Some(attempt) = self.current(server) else {
            return wires.choice.borrow_mut().on_not_opened(now);
        };
        let opened = wires.choice.borrow_mut().on_opened(now, need);
        if opened == TlsFate::Unwanted {
            return;
        }
        self.carry(server, self.servers.remote(attempt.address), socket);
        match need {
            Need::Tunnel { .. } => {
                let address = attempt.address;
                if opened == TlsFate::Again || !self.permits_udp(server) {
                    tracing::info!(
                        target: events::STATE,
                        "the tunnel to {address} goes over another TLS connection"
                    );
                } else {
                    tracing::info!(
                        target: events::STATE,
                        "the tunnel goes over TLS from now on: by UDP {address} does not answer"
                    );
                }
                self.tunnels
                    .change(attempt.id, |connection| connection.change_wire(now));
            }
            Need::Attempt { heard, .. } => {
                if self.permits_udp(server) {
                    match heard {
                        true => tracing::info!(
                            "{} answers by UDP, and its handshake does not end ({LIKELY_LOST}): trying over TLS",
                            attempt.address
                        ),
                        false => tracing::info!(
                            "no answer from {} by UDP: trying over TLS",
                            attempt.address
                        ),
                    }
                }
                self.restart();
            }
            Need::Nothing => self.restart(),
        }
    }

    /// Gives up the attempt under way, in favour of one by another wire.
    fn restart(&self) {
        let attempt = self.tunnels.state_mut().end_attempt();
        let now = process::now();
        if let Some(attempt) = attempt {
            self.tunnels
                .change(attempt.id, |connection| connection.abandon(now));
        }
        self.schedule
            .tell(|retry, now| retry.on_failed(now, Failure::OtherWire));
        self.schedule.wake();
    }

    /// Leads what is for `remote` through a TLS connection until that ends.
    pub(super) fn carry(self: &Rc<Self>, server: usize, remote: SocketAddr, socket: TlsSocket) {
        let leave = Rc::new(Notify::new());
        let open = OpenWire {
            remote,
            between: ends(&socket),
            leave: leave.clone(),
        };
        // One that nothing uses any more would take the next with it when it ends.
        if let Some(before) = self.of[server].open.replace(Some(open)) {
            before.leave.notify_one();
        }
        let mut wire = TlsWire::new(self.tunnels.shard(), remote, socket);
        let wires = self.clone();
        spawn_local(async move {
            let end = tokio::select! {
                end = wire.carry(|_| true) => end,
                () = leave.notified() => {
                    let _ = timeout(LINGER, wire.carry(|_| true)).await;
                    return;
                }
            };
            drop(wire);
            let open = wires.of[server].open.borrow();
            let in_use = open
                .as_ref()
                .is_some_and(|it| Rc::ptr_eq(&it.leave, &leave));
            drop(open);
            if in_use {
                wires.on_ended(server, &end);
            }
        });
    }

    pub(super) fn on_ended(&self, server: usize, end: &WireEnd) {
        let wires = &self.of[server];
        let open = wires.open.take();
        match self.need(server) {
            // The server closes what no tunnel uses.
            Need::Nothing => tracing::debug!("{end}"),
            _ => tracing::warn!("{end}; opening another one"),
        }
        wires.choice.borrow_mut().on_ended(process::now());
        if let Some(open) = open {
            self.lose(server, open.remote);
        }
        self.kick.notify_one();
    }
}

/// Addresses that a connection leads between: ours, and the peer's.
fn ends(socket: &TlsSocket) -> Option<[IpAddr; 2]> {
    let tcp = socket.tcp();
    Some([tcp.local_addr().ok()?.ip(), tcp.peer_addr().ok()?.ip()])
}
