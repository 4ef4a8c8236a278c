//! Looks names of servers up, one lookup of a name at a time: a resolver without a network holds each for many seconds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

/// Time that a caller waits for an answer; the lookup itself goes on.
const LOOKUP: Duration = Duration::from_secs(2);

type Found = io::Result<Vec<SocketAddr>>;

/// Lookups under way, by name and port.
#[derive(Debug, Default)]
pub(crate) struct Lookups(RefCell<BTreeMap<(String, u16), JoinHandle<Found>>>);

impl Lookups {
    /// The addresses of `host`, in the resolver's order.
    pub(crate) async fn find(&self, host: &str, port: u16) -> Found {
        let key = (host.to_owned(), port);
        let under_way = self.0.borrow_mut().remove(&key);
        let mut lookup = under_way.unwrap_or_else(|| {
            let host = host.to_owned();
            spawn_local(async move { Ok(lookup_host((host, port)).await?.collect()) })
        });
        let Ok(found) = timeout(LOOKUP, &mut lookup).await else {
            self.0.borrow_mut().insert(key, lookup);
            return Err(io::ErrorKind::TimedOut.into());
        };
        let addresses = found.map_err(io::Error::other)??;
        match addresses.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(addresses),
        }
    }
}
