//! Which connection speaks for whom: a client's older connection is found when it comes back as a new process, wherever that
//! connection lives.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;

use super::command::Command;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::engine::identity::PublicKey;

/// Connections of one client at once: attempts beside each other, and some that it has left unheard. Its limits hold for
/// each of them, so there must not be many.
const MAX_CONNECTIONS: usize = 8;

/// Connections, each with the client that it speaks for.
pub(super) struct Registry {
    shards: Vec<mpsc::UnboundedSender<Command>>,
    current: Mutex<HashMap<PublicKey, PublishPlace>>,
    /// Connection that has published ports, by client.
    publishing: Mutex<HashMap<PublicKey, (u8, ConnectionId)>>,
    /// Every connection, by client and in the order of arrival.
    all: Mutex<HashMap<PublicKey, VecDeque<(u8, ConnectionId)>>>,
}

#[derive(Clone, Copy)]
struct PublishPlace {
    instance: u64,
    /// Process of the client that this one has replaced.
    former: Option<u64>,
    shard: u8,
    connection: ConnectionId,
}

impl Registry {
    pub(super) fn new(shards: Vec<mpsc::UnboundedSender<Command>>) -> Self {
        Self {
            shards,
            current: Mutex::default(),
            publishing: Mutex::default(),
            all: Mutex::default(),
        }
    }

    /// A client has shown its key. Where it has too many connections, the oldest goes.
    pub(super) fn enter(&self, key: PublicKey, shard: u8, connection: ConnectionId) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(key).or_default();
        own.push_back((shard, connection));
        if own.len() > MAX_CONNECTIONS
            && let Some((shard, oldest)) = own.pop_front()
        {
            let _ = self.shards[usize::from(shard)].send(Command::Replaced(oldest));
        }
    }

    /// A client said HELLO as process `instance`. The connection of an earlier process is closed:
    /// nobody is left to read what its flows receive. True if this process had been replaced by that one: both are alive, and
    /// have one key.
    pub(super) fn arrive(
        &self,
        key: PublicKey,
        instance: u64,
        shard: u8,
        connection: ConnectionId,
    ) -> bool {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let known = current.get(&key).copied();
        let old = known.filter(|old| old.instance != instance);
        let former = match old {
            Some(old) => Some(old.instance),
            None => known.and_then(|known| known.former),
        };
        let place = PublishPlace {
            instance,
            former,
            shard,
            connection,
        };
        current.insert(key, place);
        if let Some(old) = old {
            let _ = self.shards[usize::from(old.shard)].send(Command::Replaced(old.connection));
        }
        old.is_some_and(|old| old.former == Some(instance))
    }

    /// True if the client of a connection has said HELLO on another one since.
    pub(super) fn is_superseded(
        &self,
        key: &PublicKey,
        shard: u8,
        connection: ConnectionId,
    ) -> bool {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = current.get(key);
        newest.is_some_and(|at| (at.shard, at.connection) != (shard, connection))
    }

    /// A connection publishes ports; an older one of the same client yields its own.
    pub(super) fn publish(&self, key: PublicKey, shard: u8, connection: ConnectionId) {
        let place = (shard, connection);
        let mut publishing = self
            .publishing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((shard, old)) = publishing.insert(key, place).filter(|old| *old != place) {
            let _ = self.shards[usize::from(shard)].send(Command::Yield(old));
        }
    }

    /// A connection is over.
    pub(super) fn leave(&self, key: &PublicKey, shard: u8, connection: ConnectionId) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current
            .get(key)
            .is_some_and(|at| at.shard == shard && at.connection == connection)
        {
            current.remove(key);
        }
        drop(current);
        let mut publishing = self
            .publishing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if publishing.get(key) == Some(&(shard, connection)) {
            publishing.remove(key);
        }
        drop(publishing);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(key) {
            own.retain(|at| *at != (shard, connection));
            if own.is_empty() {
                all.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_tunnel::engine::identity::PrivateKey;

    #[test]
    fn ports_are_the_newest_connections() {
        let (commands, mut told) = mpsc::unbounded_channel();
        let registry = Registry::new(vec![commands]);
        let [key, other] = [(); 2].map(|()| PrivateKey::generate().expect("a key").public());
        registry.publish(key, 0, ConnectionId(1));
        registry.publish(other, 0, ConnectionId(2));
        registry.publish(key, 0, ConnectionId(1));
        assert!(told.try_recv().is_err());
        registry.publish(key, 0, ConnectionId(3));
        assert!(matches!(
            told.try_recv(),
            Ok(Command::Yield(ConnectionId(1)))
        ));
        registry.leave(&key, 0, ConnectionId(1));
        registry.leave(&key, 0, ConnectionId(3));
        registry.publish(key, 0, ConnectionId(4));
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn a_process_that_comes_back_after_another_one_shares_its_key() {
        let (commands, _told) = mpsc::unbounded_channel();
        let registry = Registry::new(vec![commands]);
        let key = PrivateKey::generate().expect("a key").public();
        let mut id = 0;
        let mut arrive = |instance| {
            id += 1;
            registry.arrive(key, instance, 0, ConnectionId(id))
        };
        // Connections of one process, and restarts of it.
        assert!(
            [1, 1, 2, 2, 3]
                .map(&mut arrive)
                .iter()
                .all(|shared| !shared)
        );
        // The newest of all counts, and one that is gone does not.
        let newest = ConnectionId(5);
        assert!(!registry.is_superseded(&key, 0, newest));
        assert!(registry.is_superseded(&key, 0, ConnectionId(4)));
        assert!(registry.is_superseded(&key, 1, newest));
        // Two at once.
        assert_eq!([2, 2, 3, 2].map(&mut arrive), [true, false, true, true]);
    }

    #[test]
    fn a_client_with_too_many_connections_loses_the_oldest() {
        let (commands, mut told) = mpsc::unbounded_channel();
        let registry = Registry::new(vec![commands]);
        let [key, other] = [(); 2].map(|()| PrivateKey::generate().expect("a key").public());
        registry.enter(other, 0, ConnectionId(100));
        for id in 0..MAX_CONNECTIONS as u64 {
            registry.enter(key, 0, ConnectionId(id));
        }
        registry.leave(&key, 0, ConnectionId(0));
        registry.enter(key, 0, ConnectionId(50));
        assert!(told.try_recv().is_err());
        registry.enter(key, 0, ConnectionId(51));
        assert!(matches!(
            told.try_recv(),
            Ok(Command::Replaced(ConnectionId(1)))
        ));
        assert!(told.try_recv().is_err());
    }
}
