//! Lines to a client's PEPs: when each is tried, and what is told of it when it is up or down.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use bentpipe_sealed::les::sa::PepKey;
use tokio::task::spawn_local;

use super::super::standing::NO_ANSWER;
use super::{Listed, Peps};
use crate::config::ServerAddress;
use crate::process;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::lines::{LineCode, LineEnd, LineNotice};

impl Listed {
    fn tell_down(&mut self, reason: &str) {
        self.lose();
        if self.standing.on_down(process::now(), reason) {
            tracing::warn!(
                "PEP {}: {reason}; packets go past it untouched, and it is tried again",
                self.pep.name
            );
        }
    }
}

impl Peps {
    /// Begins attempts that are due, and ends those that take too long; to be called every second.
    pub(in crate::client::les) fn tick(&self) {
        if !self.open.get() {
            return;
        }
        let now = process::now();
        for listed in self.list.borrow_mut().iter_mut() {
            if listed.standing.is_overdue(now) {
                if let Some(line) = listed.line {
                    self.lines
                        .with(|lines, now| lines.close(now, line, LineCode::Stopped, ""));
                }
                listed.tell_down(NO_ANSWER);
            }
            if listed.standing.is_due(now)
                && let ServerAddress::Ip(address) = listed.pep.address
            {
                self.connect(listed, address);
            }
        }
    }

    /// Looks names up whose PEPs are due; the outcome comes later.
    pub(in crate::client::les) fn look_up(self: &Rc<Self>) {
        if !self.open.get() {
            return;
        }
        let now = process::now();
        for listed in self.list.borrow_mut().iter_mut() {
            let ServerAddress::Name { host, port } = &listed.pep.address else {
                continue;
            };
            if listed.standing.is_due(now) {
                listed.standing.on_attempt(now);
                let (own, key) = (self.clone(), listed.key());
                let (host, port) = (host.clone(), *port);
                spawn_local(async move {
                    let found = own.lookups.find(&host, port).await;
                    own.on_found(key, &host, found);
                });
            }
        }
    }

    fn on_found(&self, key: PepKey, host: &str, found: io::Result<Vec<SocketAddr>>) {
        if !self.open.get() {
            return;
        }
        let mut list = self.list.borrow_mut();
        let listed = list.iter_mut().find(|listed| listed.key() == key);
        let Some(listed) = listed.filter(|listed| listed.line.is_none()) else {
            return;
        };
        match found.map(|all| all.first().copied()) {
            Ok(Some(address)) => self.connect(listed, address),
            Ok(None) => listed.tell_down(&format!("the name {host} has no address")),
            Err(error) => listed.tell_down(&format!("the name {host} is not found: {error}")),
        }
    }

    fn connect(&self, listed: &mut Listed, address: SocketAddr) {
        listed.standing.on_attempt(process::now());
        let remote = match address.ip() {
            IpAddr::V4(ip) if self.dual_stack => (ip.to_ipv6_mapped(), address.port()).into(),
            _ => address,
        };
        let crypto = listed.crypto.clone();
        let begun = self
            .lines
            .with(|lines, now| lines.connect(now, crypto, remote));
        match begun {
            Ok(line) => listed.line = Some(line),
            Err(error) => listed.tell_down(&format!("no connection can begin: {error}")),
        }
    }

    /// Keeps the lines; `up` hears of a PEP that has taken this client in. Never ends but with an error.
    pub(in crate::client::les) async fn keep(
        self: &Rc<Self>,
        up: impl Fn(PepKey),
    ) -> io::Result<()> {
        let kept = self.lines.drive(|id, notice| {
            if let Some(key) = self.on_notice(id, &notice) {
                up(key);
            }
        });
        kept.await
    }

    fn on_notice(&self, id: ConnectionId, notice: &LineNotice) -> Option<PepKey> {
        let mut list = self.list.borrow_mut();
        let listed = list.iter_mut().find(|listed| listed.line == Some(id))?;
        match notice {
            LineNotice::Up(_) => {
                listed.standing.on_up(process::now());
                tracing::info!("PEP {} has taken this client in", listed.pep.name);
                return Some(listed.key());
            }
            LineNotice::Down(end) => {
                let own = self.key.public();
                let reason = match end {
                    LineEnd::WrongPeer => "another key was shown than its `public_key`".to_owned(),
                    LineEnd::NotListed => {
                        format!("it does not know this client; add public key {own} to its list")
                    }
                    LineEnd::Closed(LineCode::Stopped) => "it has stopped".to_owned(),
                    LineEnd::Closed(LineCode::Delisted) => {
                        format!("it does not list this client any more; its public key is {own}")
                    }
                    LineEnd::Closed(LineCode::Replaced) => {
                        "another client with this client's key has connected to it".to_owned()
                    }
                    LineEnd::Closed(LineCode::Revoked | LineCode::Violation) => {
                        "it calls this client's words a violation of the protocol".to_owned()
                    }
                    LineEnd::Fault(fault) | LineEnd::Lost(fault) => {
                        format!("the connection is lost: {fault}")
                    }
                };
                listed.tell_down(&reason);
            }
            // A PEP has no words for a client.
            LineNotice::Word(_) => {}
        }
        None
    }
}
