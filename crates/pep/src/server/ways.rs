//! Ways of a shard's traffic: flows of the tunnel, pages fetched ahead, flows sealed beside the tunnel, packets of LES, queries.
//!
//! Each way keeps what it knows of a client. Here they are made from the server's file, and hear together of a client's coming,
//! going and rights.

use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_proto::tunnel::{EpochRandom, Open};
use tokio::sync::mpsc;

use super::clients::Client;
use super::flows::FlowRights;
use super::les::LayeredEnds;
use super::packets::Rule;
use super::queries::Queries;
use super::sle::{FreshFlow, SealedFlows};
use super::web::ServedPages;
use super::worker::Worker;
use crate::config::Nat64;
use crate::net::dial::Dialler;
use crate::net::judge::Judge;
use crate::net::resolver::Resolver;
use crate::shard::Shard;
use crate::status;
use bentpipe_tunnel::engine::identity::PublicKey;
use bentpipe_tunnel::engine::{Connection, ConnectionId};
use bentpipe_tunnel::transport::FlowKey;

/// Ways that the traffic of a shard's clients takes.
pub(super) struct Ways {
    flows: Rc<FlowRights>,
    /// Pages that are fetched ahead; `serves_pages` if some are.
    pages: Rc<ServedPages>,
    serves_pages: bool,
    sealed: Option<Rc<SealedFlows>>,
    layered: Option<Rc<LayeredEnds>>,
    queries: Rc<Queries>,
    rule: Rule,
}

impl Ways {
    /// Ways of the shard of `worker`, which nobody takes yet.
    pub(super) fn new(worker: &Worker, shard: &Rc<Shard>) -> Self {
        let (shared, dialling) = (&worker.shared, &worker.dialling);
        let resolver = Resolver::new(&dialling.dns.servers).heeded(shared.notices.answering());
        let resolver = Rc::new(resolver);
        let judge = Rc::new(Judge::new(shared.translations.clone()));
        let dialler = Dialler::new(judge.clone(), resolver.clone(), dialling.connect_timeout)
            .with_responder(worker.responder);
        let discovers = worker.index == 0 && dialling.nat64 == Nat64::Discovered;
        let translations = discovers.then(|| shared.translations.clone());
        let flows = FlowRights::new(
            shard.clone(),
            dialler,
            shared.notices.clone(),
            shared.places.clone(),
        );
        let place = || (shard.clone(), worker.index);
        let sealed = shared.sealed.as_ref().map(|tunnels| {
            let clients = shared.clients.clone();
            SealedFlows::new(tunnels.clone(), place(), clients, flows.clone())
        });
        let layered = shared.layered.as_ref();
        Self {
            layered: layered.map(|tunnels| LayeredEnds::new(tunnels.clone(), place())),
            sealed,
            pages: ServedPages::new(
                (flows.clone(), shared.pages),
                shared.trust.clone(),
                shared.hub.clone(),
            ),
            serves_pages: shared.pages || shared.hub.is_some(),
            flows,
            queries: Queries::new(shard.clone(), resolver, translations),
            rule: Rule {
                judge,
                notices: shared.notices.clone(),
            },
        }
    }

    /// Finds out the prefixes of the network's translator; never ends.
    pub(super) async fn discover(&self) {
        self.queries.discover().await;
    }

    /// Takes in sealed flows; never ends.
    pub(super) async fn take_in_sealed(
        &self,
        inbox: Option<mpsc::Receiver<FreshFlow>>,
    ) -> Infallible {
        match &self.sealed {
            Some(sealed) => sealed.take_in(inbox).await,
            None => pending().await,
        }
    }

    /// Ends of LES, if the server has that.
    pub(super) fn layered(&self) -> Option<&Rc<LayeredEnds>> {
        self.layered.as_ref()
    }

    /// Names that clients ask for.
    pub(super) fn queries(&self) -> &Rc<Queries> {
        &self.queries
    }

    /// Rule that packets are judged by.
    pub(super) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Opens a flow of the tunnel, or a page's.
    pub(super) fn open(&self, id: ConnectionId, flow: FlowKey, open: Open) {
        match open.page {
            true => self.pages.open(id, flow, open.destination),
            false => self.flows.open(id, flow, open),
        }
    }

    /// Offers the ways beside the tunnel to a client that has connected.
    pub(super) fn offer(
        &self,
        id: ConnectionId,
        (key, client): (PublicKey, &Client),
        connection: &mut Connection,
    ) {
        if let Some(sealed) = &self.sealed {
            sealed.offer(id, key, connection);
        }
        if let Some(layered) = &self.layered {
            layered.offer(id, client, connection);
        }
    }

    /// Gives a client the rights of its entry in the file, now and whenever that changes.
    pub(super) fn permit(&self, id: ConnectionId, client: Arc<Client>) {
        self.flows.permit(id, client);
    }

    /// The tunnel of a client is ready.
    pub(super) fn on_ready(&self, id: ConnectionId) {
        if let Some(sealed) = &self.sealed {
            sealed.on_ready(id);
        }
    }

    /// Begins the next epoch of a client's sealed flows; false if that breaks the protocol.
    pub(super) fn on_epoch(
        &self,
        id: ConnectionId,
        number: u16,
        random: Option<EpochRandom>,
    ) -> bool {
        let sealed = self.sealed.as_ref().zip(random);
        sealed.is_some_and(|(sealed, random)| sealed.on_epoch(id, number, random))
    }

    /// Withdraws sealed flows from clients that may have none any more.
    pub(super) fn recheck(&self) {
        if let Some(sealed) = &self.sealed {
            sealed.recheck();
        }
    }

    /// Takes in no sealed flow from now on.
    pub(super) fn drain(&self) {
        if let Some(sealed) = &self.sealed {
            sealed.drain();
        }
    }

    /// Forgets a client whose tunnel is over.
    pub(super) fn forget(&self, id: ConnectionId) {
        self.flows.forget(id);
        self.pages.forget(id);
        if let Some(sealed) = &self.sealed {
            sealed.forget(id);
        }
        if let Some(layered) = &self.layered {
            layered.forget(id);
        }
    }

    /// Does what is due each second.
    pub(super) fn tick(&self) {
        if let Some(sealed) = &self.sealed {
            sealed.tick();
        }
        if let Some(layered) = &self.layered {
            layered.tick();
        }
        self.pages.tick();
    }

    /// Number of flows that are open beside the tunnels.
    pub(super) fn beside(&self) -> u64 {
        self.sealed.as_ref().map_or(0, |sealed| sealed.active())
    }

    /// Enters into a client's part of `status` what the ways know of it.
    pub(super) fn report(&self, (id, key): (ConnectionId, &PublicKey), to: &mut status::Session) {
        to.sle = self.sealed.as_ref().map(|sealed| sealed.report(key));
        to.les = self.layered.as_ref().and_then(|ends| ends.report(id));
        to.web = self.serves_pages.then(|| self.pages.report(id));
    }
}
