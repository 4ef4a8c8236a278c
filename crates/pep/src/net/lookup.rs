//! Looks names of servers up, one lookup of a name at a time: a resolver without a network holds each for many seconds.
//!
//! A client that intercepts its own machine would take in the questions that the system's library asks, and answer them by the
//! tunnel that waits for the answer. So it asks the resolvers itself, with a mark.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use super::resolver::Resolver;

/// Time that a caller waits for an answer; the lookup itself goes on.
const LOOKUP: Duration = Duration::from_secs(2);

type Found = io::Result<Vec<SocketAddr>>;

/// Lookups of names.
#[derive(Default)]
pub(crate) struct Lookups {
    /// Lookups under way, by name and port.
    under_way: RefCell<BTreeMap<(String, u16), JoinHandle<Found>>>,
    /// Asked before the system's library, whose questions are intercepted.
    resolver: Option<Rc<Resolver>>,
}

impl Lookups {
    /// Lookups of a client whose machine's questions are taken in, but for those with this mark; `None`: they are not.
    pub(crate) fn marked(mark: Option<u32>) -> Self {
        let resolver = |mark| Rc::new(Resolver::new(&[]).marked(Some(mark)));
        Self {
            resolver: mark.map(resolver),
            ..Self::default()
        }
    }

    /// The addresses of `host`, in the resolver's order.
    pub(crate) async fn find(&self, host: &str, port: u16) -> Found {
        let key = (host.to_owned(), port);
        let under_way = self.under_way.borrow_mut().remove(&key);
        let mut lookup = under_way.unwrap_or_else(|| {
            let (host, resolver) = (host.to_owned(), self.resolver.clone());
            spawn_local(look_up(resolver, host, port))
        });
        let Ok(found) = timeout(LOOKUP, &mut lookup).await else {
            self.under_way.borrow_mut().insert(key, lookup);
            return Err(io::ErrorKind::TimedOut.into());
        };
        let addresses = found.map_err(io::Error::other)??;
        match addresses.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(addresses),
        }
    }
}

async fn look_up(resolver: Option<Rc<Resolver>>, host: String, port: u16) -> Found {
    if let Some(resolver) = resolver {
        let found = resolver.find(&host).await.into_iter();
        let found: Vec<_> = found.map(|ip| SocketAddr::new(ip, port)).collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(lookup_host((host, port)).await?.collect())
}
