//! The connections of an engine, by their ids and by quinn's handles.

use std::collections::BTreeMap;

use quinn_proto::ConnectionHandle;

use super::super::connection::Connection;
use super::ConnectionId;

/// Connections that live, each found by its id and by the handle that quinn has given it.
#[derive(Default)]
pub(super) struct Connections {
    /// Each in an allocation of its own: a node of the tree has room for eleven, of 11 kB each.
    by_id: BTreeMap<ConnectionId, Box<Connection>>,
    by_handle: BTreeMap<usize, ConnectionId>,
    next_id: u64,
}

impl Connections {
    /// Adds what `begin` makes of a new id.
    pub(super) fn add(&mut self, begin: impl FnOnce(ConnectionId) -> Connection) -> ConnectionId {
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        let connection = begin(id);
        self.by_handle.insert(connection.handle.0, id);
        self.by_id.insert(id, Box::new(connection));
        id
    }

    /// Takes a connection out; the second is true if its handle was still its own: quinn may have given that of a drained
    /// connection to a newer one.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<(Box<Connection>, bool)> {
        let connection = self.by_id.remove(&id)?;
        let handle = connection.handle.0;
        let own = self.by_handle.get(&handle) == Some(&id);
        if own {
            self.by_handle.remove(&handle);
        }
        Some((connection, own))
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    /// Connection that quinn knows by `handle`.
    pub(super) fn of_handle(
        &mut self,
        handle: ConnectionHandle,
    ) -> Option<(ConnectionId, &mut Connection)> {
        let id = *self.by_handle.get(&handle.0)?;
        self.get_mut(id).map(|connection| (id, connection))
    }

    /// All connections, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        let all = self.by_id.iter();
        all.map(|(id, connection)| (*id, &**connection))
    }

    /// All connections, the oldest first, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut Connection)> {
        let all = self.by_id.iter_mut();
        all.map(|(id, connection)| (*id, &mut **connection))
    }
}
