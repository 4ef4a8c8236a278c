//! Connections of one client in the order of their HELLOs, and which of them it is to be reached by.

use bentpipe_tunnel::engine::ConnectionId;

/// A shard and a connection of it.
pub(super) type Place = (u8, ConnectionId);

/// Connections of one client: it is reached by the newest that answers, and by the newest if none does. A client that tries another
/// way beside a silent tunnel may give up the newer connection and stay with the older one, which says no other HELLO; and what it
/// says of giving up may be lost.
#[derive(Debug, Default)]
pub(super) struct ClientConnections(Vec<ClientConnection>);

#[derive(Debug)]
struct ClientConnection {
    place: Place,
    /// False while what is sent is not answered.
    answers: bool,
}

impl ClientConnections {
    pub(super) fn new(place: Place) -> Self {
        let mut it = Self::default();
        it.enter(place);
        it
    }

    /// Makes `place` the newest.
    pub(super) fn enter(&mut self, place: Place) {
        self.leave(place);
        self.0.push(ClientConnection {
            place,
            answers: true,
        });
    }

    /// Forgets `place`; true if another one is left.
    pub(super) fn leave(&mut self, place: Place) -> bool {
        self.0.retain(|known| known.place != place);
        !self.0.is_empty()
    }

    /// Connection at `place` is not answered (`outage`), or is again.
    pub(super) fn on_outage(&mut self, place: Place, outage: bool) {
        if let Some(known) = self.0.iter_mut().find(|known| known.place == place) {
            known.answers = !outage;
        }
    }

    /// The connection that the client is to be reached by.
    pub(super) fn best(&self) -> Option<Place> {
        let answering = self.0.iter().rev().find(|known| known.answers);
        answering.or(self.0.last()).map(|known| known.place)
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = Place> + '_ {
        self.0.iter().map(|known| known.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_reached_by_the_newest_that_answers() {
        let [first, second] = [(0, ConnectionId(1)), (1, ConnectionId(1))];
        let mut it = ClientConnections::new(first);
        it.enter(second);
        assert_eq!(it.best(), Some(second));
        it.on_outage(second, true);
        assert_eq!(it.best(), Some(first));
        it.on_outage(first, true);
        assert_eq!(it.best(), Some(second), "none answers");
        it.on_outage(second, false);
        assert_eq!(it.best(), Some(second));
        assert!(it.leave(second));
        assert_eq!(it.best(), Some(first));
        assert!(!it.leave(first));
        assert_eq!(it.best(), None);
    }
}
