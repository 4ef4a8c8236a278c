//! The PEP that connects does so whenever there is no tunnel.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn_proto::crypto::ClientConfig;
use tokio::time::sleep_until;

use super::PeerLink;
use crate::config::ServerAddress;
use crate::process;
use crate::segments::redial::{DialStep, PATIENCE};
use bentpipe_tunnel::engine::{Engine, FirstWords, Link as LinkOfPath};

/// Datagrams that an attempt sends before it was answered: a ClientHello of two, and once more.
const FIRST_WORDS: FirstWords = FirstWords {
    datagrams: 8,
    copies: true,
};

impl PeerLink {
    /// Connects whenever there is no tunnel; never ends.
    pub(in crate::segments) async fn keep_up(&self) {
        let Some((crypto, address)) = &self.dials else {
            return std::future::pending().await;
        };
        loop {
            let step = self.state.borrow_mut().redial.poll(process::now());
            match step {
                DialStep::Dial => {
                    if let Err(error) = self.dial(crypto, address).await {
                        self.fail(&error);
                    }
                }
                DialStep::GiveUp => self.give_up(address),
                DialStep::Wait(until) => {
                    let due = async {
                        match until {
                            Some(until) => sleep_until(until.into()).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = due => {}
                        () = self.changed.notified() => {}
                    }
                }
            }
        }
    }

    /// The attempt has had its time. Where the network or this machine has said why, people know that already.
    fn give_up(&self, address: &ServerAddress) {
        let attempt = self.state.borrow_mut().attempt.take();
        let now = process::now();
        if let Some(id) = attempt {
            self.shard.change(id, |connection| connection.abandon(now));
        }
        let explained = self.state.borrow_mut().explained.take();
        let explained = explained.map(|(id, _)| id);
        if explained.is_none() || explained != attempt {
            self.tell(&format!(
                "no answer from {address} in {} s (a firewall at either end or on the way drops UDP, wrong port or key, or the other PEP does not run)",
                PATIENCE.as_secs()
            ));
        }
    }

    async fn dial(
        &self,
        crypto: &Arc<dyn ClientConfig>,
        address: &ServerAddress,
    ) -> Result<(), String> {
        let found = match address {
            ServerAddress::Ip(address) => Ok(vec![*address]),
            ServerAddress::Name { host, port } => self.lookups.find(host, *port).await,
        };
        let found = found.map_err(|error| format!("cannot resolve {address}: {error}"))?;
        let remote = found.first().ok_or("the other PEP's name has no address")?;
        let link = LinkOfPath::from(self.config.link.profile);
        let now = process::now();
        let connect = |engine: &mut Engine| {
            engine.connect(now, crypto.clone(), self.reachable(*remote), link)
        };
        let id = self.shard.with(connect);
        let id = id.map_err(|error| format!("cannot connect to {remote}: {error}"))?;
        self.shard.change(id, |connection| {
            connection.set_first_words(FIRST_WORDS);
            self.paths.resume(&self.path(connection), now, connection);
        });
        self.state.borrow_mut().attempt = Some(id);
        Ok(())
    }

    /// Address as the socket takes it, which may be one for both families.
    fn reachable(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.dual_stack => {
                SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()))
            }
            other => other,
        }
    }
}
