//! DNS queries of a shard's clients, and the prefixes of the network's translator that their answers are judged by.

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_proto::dns::{Answer, Query};
use bytes::Bytes;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::clients::Client;
use crate::config::Service;
use crate::net::nat64::{self, Translations};
use crate::net::resolver::Resolver;
use crate::process;
use crate::shard::Shard;
use bentpipe_tunnel::engine::{ConnectionId, Engine};
use bentpipe_tunnel::transport::{MAX_QUERIES, QueryKey};

/// Time between two looks of a question's task whether its client still waits.
const STOPPED_LOOK: Duration = Duration::from_millis(200);

/// Time after which the prefixes of the network's translator are asked for again, once some are known, and before.
const PROBE_AGAIN: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(600)];

/// Account of the queries that are being asked for one client, which may go on when nobody waits any more.
#[derive(Default)]
pub(super) struct Asking(Rc<()>);

impl Asking {
    /// A place for one more query. The peer may stop a query and begin another, but what asks for it has sockets for some
    /// seconds.
    fn take(&self) -> Option<Rc<()>> {
        (Rc::strong_count(&self.0) < MAX_QUERIES + 1).then(|| self.0.clone())
    }
}

/// Queries of the clients of one shard.
pub(super) struct Queries {
    shard: Rc<Shard>,
    resolver: Rc<Resolver>,
    /// The prefixes of the network's translator, if they are to be found out.
    translations: Option<Translations>,
}

impl Queries {
    /// Queries that `resolver` answers; `translations` are to be found out, if there are any.
    pub(super) fn new(
        shard: Rc<Shard>,
        resolver: Rc<Resolver>,
        translations: Option<Translations>,
    ) -> Rc<Self> {
        Rc::new(Self {
            shard,
            resolver,
            translations,
        })
    }

    /// Answers a query that nothing is asked for.
    pub(super) fn refuse(&self, id: ConnectionId, query: QueryKey) {
        self.shard
            .change(id, |connection| connection.answer(query, None));
    }

    /// Answers a query of `client` as soon as the resolver has.
    pub(super) fn ask(
        self: &Rc<Self>,
        (id, query): (ConnectionId, QueryKey),
        asking: &Asking,
        client: Arc<Client>,
        message: Bytes,
    ) {
        let Some(place) = asking.take() else {
            return self.refuse(id, query);
        };
        let this = self.clone();
        spawn_local(async move {
            let _place = place;
            let answer = tokio::select! {
                answer = this.resolver.resolve(&message) => answer,
                // A question that was given up makes room for another.
                () = this.stopped(id, query) => return,
            };
            // What the client makes of private addresses depends on whether it may reach them.
            let reaches = |address| {
                let policy = &client.rights.policy;
                policy.check(address, Service::Related, &[]).is_ok()
            };
            let answer = answer.map(|answer| match Query::decode(&message) {
                Ok(query) => Bytes::from(Answer::judged(answer, &query, reaches)),
                Err(_) => Bytes::from(answer),
            });
            this.shard
                .change(id, |connection| connection.answer(query, answer));
        });
    }

    /// Until the client wants no answer any more.
    async fn stopped(&self, id: ConnectionId, query: QueryKey) {
        let wanted = || {
            let asks = |engine: &Engine| Some(engine.peek(id)?.lane().has_query(query));
            self.shard.peek(asks).unwrap_or(false)
        };
        while wanted() {
            sleep(STOPPED_LOOK).await;
        }
    }

    /// Finds out which prefixes lead to IPv4 addresses by a translator of the network, once a client asks for an
    /// address that may have such a prefix; never ends.
    pub(super) async fn discover(&self) {
        let Some(translations) = &self.translations else {
            return pending().await;
        };
        translations.wanted().await;
        loop {
            let addresses = self.resolver.probe_translations().await;
            let found = addresses.map(|addresses| nat64::discover(&addresses));
            let changed = translations.learn(found.as_deref());
            let known = translations.known().unwrap_or_default();
            if changed {
                let prefixes: Vec<_> = known.iter().map(|known| known.prefix()).collect();
                tracing::info!(
                    "NAT64 of this network: {}; what it leads to is judged as the IPv4 address",
                    process::join(&prefixes)
                );
            }
            sleep(PROBE_AGAIN[usize::from(known.is_empty())]).await;
        }
    }
}
