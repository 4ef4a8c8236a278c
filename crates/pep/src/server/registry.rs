//! Which connection speaks for whom: a client's older connection is found when it comes back as a new process, wherever that
//! connection lives.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;

use super::client_connections::{ClientConnections, Place};
use super::command::Command;
use bentpipe_tunnel::engine::ConnectionId;
use bentpipe_tunnel::engine::identity::PublicKey;

/// Connections of one client at once: attempts beside each other, and some that it has left unheard. Its limits hold for
/// each of them, so there must not be many.
const MAX_CONNECTIONS: usize = 8;

/// Connections, each with the client that it speaks for.
pub(super) struct Registry {
    shards: Vec<mpsc::UnboundedSender<Command>>,
    speaking: Mutex<HashMap<PublicKey, ClientProcess>>,
    /// Connection that has published ports, by client.
    publishing: Mutex<HashMap<PublicKey, Place>>,
    /// Every connection, by client and in the order of arrival.
    all: Mutex<HashMap<PublicKey, VecDeque<Place>>>,
}

/// Process that speaks for a client.
struct ClientProcess {
    instance: u64,
    /// Process of the client that this one has replaced.
    former: Option<u64>,
    connections: ClientConnections,
}

impl Registry {
    pub(super) fn new(shards: Vec<mpsc::UnboundedSender<Command>>) -> Self {
        Self {
            shards,
            speaking: Mutex::default(),
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

    /// A client said HELLO as process `instance`. All connections of an earlier process are closed:
    /// nobody is left to read what their flows receive. True if this process had been replaced by that one: both are alive, and
    /// have one key.
    pub(super) fn arrive(
        &self,
        key: PublicKey,
        instance: u64,
        shard: u8,
        connection: ConnectionId,
    ) -> bool {
        let place = (shard, connection);
        let mut speaking = self.speaking.lock().unwrap_or_else(PoisonError::into_inner);
        let process = speaking.entry(key).or_insert_with(|| ClientProcess {
            instance,
            former: None,
            connections: ClientConnections::default(),
        });
        if process.instance == instance {
            process.connections.enter(place);
            return false;
        }
        let next = ClientProcess {
            instance,
            former: Some(process.instance),
            connections: ClientConnections::new(place),
        };
        let old = mem::replace(process, next);
        for (shard, connection) in old.connections.all() {
            let _ = self.shards[usize::from(shard)].send(Command::Replaced(connection));
        }
        old.former == Some(instance)
    }

    /// Connection of a client at `place` is not answered (`outage`), or is again.
    pub(super) fn on_outage(&self, key: &PublicKey, place: Place, outage: bool) {
        let mut speaking = self.speaking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = speaking.get_mut(key) {
            process.connections.on_outage(place, outage);
        }
    }

    /// True if the client of a connection is to be reached by another one: a newer one, or an older one that answers while this one
    /// does not.
    pub(super) fn is_superseded(
        &self,
        key: &PublicKey,
        shard: u8,
        connection: ConnectionId,
    ) -> bool {
        let speaking = self.speaking.lock().unwrap_or_else(PoisonError::into_inner);
        let best = speaking
            .get(key)
            .and_then(|process| process.connections.best());
        best.is_some_and(|best| best != (shard, connection))
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
        let place = (shard, connection);
        let mut speaking = self.speaking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = speaking.get_mut(key)
            && !process.connections.leave(place)
        {
            speaking.remove(key);
        }
        drop(speaking);
        let mut publishing = self
            .publishing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if publishing.get(key) == Some(&place) {
            publishing.remove(key);
        }
        drop(publishing);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(key) {
            own.retain(|at| *at != place);
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
    fn a_connection_that_ends_leaves_the_one_before_in_its_place() {
        let (commands, mut told) = mpsc::unbounded_channel();
        let registry = Registry::new(vec![commands]);
        let key = PrivateKey::generate().expect("a key").public();
        let [older, newer, third, fourth] = [1, 2, 3, 4].map(ConnectionId);
        assert!(!registry.arrive(key, 1, 0, older));
        assert!(!registry.arrive(key, 1, 0, newer));
        assert!(registry.is_superseded(&key, 0, older));
        // It is silent, and the client may have given it up.
        registry.on_outage(&key, (0, newer), true);
        assert!(registry.is_superseded(&key, 0, newer));
        assert!(!registry.is_superseded(&key, 0, older));
        registry.leave(&key, 0, newer);
        assert!(!registry.is_superseded(&key, 0, older));
        assert!(told.try_recv().is_err());
        // The client comes back as a new process, which closes what the former one has.
        assert!(!registry.arrive(key, 2, 0, third));
        assert!(matches!(told.try_recv(), Ok(Command::Replaced(id)) if id == older));
        registry.leave(&key, 0, older);
        assert!(!registry.arrive(key, 2, 0, fourth));
        assert!(!registry.is_superseded(&key, 0, fourth));
        // What the connections of one process leave behind is remembered as long as one of them lives.
        registry.leave(&key, 0, fourth);
        assert!(registry.arrive(key, 1, 0, older));
        let replaced = [told.try_recv(), told.try_recv()];
        assert!(matches!(replaced, [Ok(Command::Replaced(id)), Err(_)] if id == third));
    }

    #[test]
    fn all_connections_of_an_earlier_process_are_closed() {
        let (commands, mut told) = mpsc::unbounded_channel();
        let registry = Registry::new(vec![commands]);
        let key = PrivateKey::generate().expect("a key").public();
        let [older, newer, third] = [1, 2, 3].map(ConnectionId);
        registry.arrive(key, 1, 0, older);
        registry.arrive(key, 1, 0, newer);
        registry.arrive(key, 2, 0, third);
        for replaced in [older, newer] {
            assert!(matches!(told.try_recv(), Ok(Command::Replaced(id)) if id == replaced));
        }
        // That they end then changes nothing.
        registry.leave(&key, 0, older);
        registry.leave(&key, 0, newer);
        assert!(registry.is_superseded(&key, 0, newer));
        assert!(!registry.is_superseded(&key, 0, third));
        assert!(told.try_recv().is_err());
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
