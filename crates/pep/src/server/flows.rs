//! Flows of a shard's clients: dialled and relayed as far as each client's rights permit, and ended when they do not any more.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_proto::tunnel::{AbortCode, Destination, Open, ReplyCode};
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::clients::Client;
use super::notices::Notices;
use super::shares::{ClientPlaces, HeldPlaces};
use crate::net::dial::{Dialler, NotDialled};
use crate::process;
use crate::relay::{FlowHandle, Relay};
use crate::shard::Shard;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::transport::FlowKey;

/// Rights of one connection's flows, and what the flows are connected to.
struct FlowHolder {
    client: Arc<Client>,
    connected: HashMap<FlowKey, SocketAddr>,
}

/// A client that may have a flow, with a place for it.
pub(super) type Admitted = (Arc<Client>, HeldPlaces);

/// Flows of the clients of one shard.
pub(super) struct FlowRights {
    shard: Rc<Shard>,
    dialler: Dialler,
    notices: Arc<Notices>,
    places: Arc<ClientPlaces>,
    holders: RefCell<HashMap<ConnectionId, FlowHolder>>,
}

impl FlowRights {
    /// Flows of a shard to which nobody is connected yet.
    pub(super) fn new(
        shard: Rc<Shard>,
        dialler: Dialler,
        notices: Arc<Notices>,
        places: Arc<ClientPlaces>,
    ) -> Rc<Self> {
        Rc::new(Self {
            shard,
            dialler,
            notices,
            places,
            holders: RefCell::default(),
        })
    }

    /// Lets a connection open flows with the rights of `client` from now on, and ends those flows that they do not permit.
    pub(super) fn permit(&self, id: ConnectionId, client: Arc<Client>) {
        let mut holders = self.holders.borrow_mut();
        if let Some(holder) = holders.get_mut(&id) {
            holder.client = client;
            return self.revoke(id, holder);
        }
        let connected = HashMap::new();
        holders.insert(id, FlowHolder { client, connected });
    }

    /// Forgets a connection that is over.
    pub(super) fn forget(&self, id: ConnectionId) {
        self.holders.borrow_mut().remove(&id);
    }

    pub(super) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Client that may have the flow that it has opened; `None`: it may not, and has its answer.
    pub(super) fn admit(&self, id: ConnectionId, flow: FlowKey) -> Option<Admitted> {
        let client = self.holders.borrow().get(&id).map(|it| it.client.clone())?;
        let refusal = self.refusal(id, &client);
        let place = refusal.map_or_else(|| self.place(&client, 1), Err);
        match place {
            Ok(place) => Some((client, place)),
            Err(code) => {
                self.reply(id, flow, code, None);
                None
            }
        }
    }

    /// Takes places for a flow of `client` that needs so many descriptors.
    pub(super) fn place(&self, client: &Client, number: usize) -> Result<HeldPlaces, ReplyCode> {
        let places = self.places.take(&client.name, number);
        places.ok_or(ReplyCode::LimitReached)
    }

    /// Opens what a client has asked for, or refuses it.
    pub(super) fn open(self: &Rc<Self>, id: ConnectionId, flow: FlowKey, open: Open) {
        let Some((client, place)) = self.admit(id, flow) else {
            return;
        };
        let this = self.clone();
        spawn_local(async move {
            let destination = open.destination;
            let handle = FlowHandle::new(this.shard.clone(), id, flow);
            // Apart, so that what dialling needs does not stay with the flow for its life.
            let dialling = Box::pin(this.dial(&client, &destination));
            let dialled = tokio::select! {
                dialled = dialling => dialled,
                // Nobody is left to connect for; an abort alone is no reason, for bytes may precede it.
                () = handle.gone() => return,
            };
            let connected = dialled.and_then(|(stream, to)| {
                this.enter(id, flow, to).map_err(|refused| refused.code)?;
                Ok(stream)
            });
            match connected {
                Ok(stream) => {
                    this.reply(id, flow, ReplyCode::Ok, stream.local_addr().ok());
                    let outcome = Relay::new(handle, stream).run().await;
                    this.leave(id, flow);
                    drop(place);
                    tracing::debug!(client = client.name, %destination, ?outcome, "flow ended");
                }
                Err(code) => this.reply(id, flow, code, None),
            }
        });
    }

    /// Connects to `destination` with the rights of `client`; says what it has connected to, and logs a refusal.
    pub(super) async fn dial(
        &self,
        client: &Client,
        destination: &Destination,
    ) -> Result<(TcpStream, SocketAddr), ReplyCode> {
        let dialled = self.dialler.dial(destination, &client.rights).await;
        dialled.map_err(|NotDialled { code, denied }| {
            tracing::debug!(client = client.name, %destination, ?code, "flow refused");
            if let Some((address, denied)) = denied {
                let what = format!("{address} {denied:?}");
                self.notices.tell_of_client(&client.name, &what, |name| {
                    format!("{address} is denied: {denied} of [[client]] {name}")
                });
            }
            code
        })
    }

    /// True if `client` may have a connection to `address`.
    pub(super) fn permits(&self, client: &Client, address: SocketAddr) -> bool {
        let policy = &client.rights.policy;
        self.dialler.permits(policy, address).is_ok()
    }

    /// Reason why a client may not open one more flow now, if it may not.
    fn refusal(&self, id: ConnectionId, client: &Client) -> Option<ReplyCode> {
        let (draining, count) = self.shard.peek(|engine| {
            let tunnel = &engine.peek(id)?.tunnel;
            Some((tunnel.is_draining(), tunnel.flow_count() as u64))
        })?;
        if draining {
            return Some(ReplyCode::Draining);
        }
        self.beyond_limits(client, count > client.max_flows)
    }

    /// The code for a client that has `too_many` flows open, or opens them too fast; `None` if it may open one more now.
    pub(super) fn beyond_limits(&self, client: &Client, too_many: bool) -> Option<ReplyCode> {
        let text = if too_many {
            "has as many flows open as it may: more are refused (max_flows)"
        } else if !client.may_open(process::now()) {
            "opens more flows a second than it may: the rest is refused (max_flows_per_s)"
        } else {
            return None;
        };
        self.notices
            .tell_of_client(&client.name, text, |name| format!("{name} {text}"));
        Some(ReplyCode::LimitReached)
    }

    /// Notes what a flow is connected to. Its client's rights may have changed while that took place.
    pub(super) fn enter(
        &self,
        id: ConnectionId,
        flow: FlowKey,
        to: SocketAddr,
    ) -> Result<(), NotDialled> {
        let mut holders = self.holders.borrow_mut();
        let Some(holder) = holders.get_mut(&id) else {
            return Err(ReplyCode::Draining.into());
        };
        self.dialler.permits(&holder.client.rights.policy, to)?;
        holder.connected.insert(flow, to);
        Ok(())
    }

    pub(super) fn leave(&self, id: ConnectionId, flow: FlowKey) {
        if let Some(holder) = self.holders.borrow_mut().get_mut(&id) {
            holder.connected.remove(&flow);
        }
    }

    /// Ends the flows of a client that its rights do not permit any more.
    fn revoke(&self, id: ConnectionId, holder: &FlowHolder) {
        let permitted = |to: &SocketAddr| self.permits(&holder.client, *to);
        let connected = holder.connected.iter();
        let denied: Vec<_> = connected.filter(|(_, to)| !permitted(to)).collect();
        if denied.is_empty() {
            return;
        }
        tracing::info!(
            client = holder.client.name,
            "{} flows ended that are not permitted any more",
            denied.len()
        );
        self.shard.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            for (flow, _) in denied {
                tunnel.revoke(quic, *flow, AbortCode::Denied);
            }
        });
    }

    /// Warns of something about a client's flows: once, until the configuration changes.
    pub(super) fn tell_of(&self, client: &str, what: &str, text: impl FnOnce(&str) -> String) {
        self.notices.tell_of_client(client, what, text);
    }

    pub(super) fn reply(
        &self,
        id: ConnectionId,
        flow: FlowKey,
        code: ReplyCode,
        bound: Option<SocketAddr>,
    ) {
        self.shard.change(id, |connection| {
            let (tunnel, quic) = connection.parts();
            tunnel.reply(quic, flow, code, bound);
        });
    }
}
