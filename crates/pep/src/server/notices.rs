//! What the operator hears of clients and strangers that are turned away: each thing once, in bounded tables.
//!
//! Pure but for the lock: `now` is an argument. Shared by all shards.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::net::answering::Answering;
use crate::process;
use bentpipe_tunnel::engine::identity::PublicKey;

/// Things named of one client; what is more is said to exist.
const PER_CLIENT: usize = 128;

/// Unknown keys that are remembered.
const KEYS: usize = 256;

/// Time for which an unknown key is not named again.
const AGAIN: Duration = Duration::from_secs(3600);

/// Notices that were given already.
#[derive(Default)]
pub(super) struct Notices {
    clients: Mutex<HashMap<String, HashSet<String>>>,
    keys: Mutex<HashMap<PublicKey, Instant>>,
    answering: Arc<Answering>,
}

/// Notice of something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    /// The thing itself.
    This,
    /// Words that more of the kind is not named any more.
    More,
    /// Nothing: it was said.
    Nothing,
}

impl Notices {
    /// Record of the answers of resolvers that clients' names are asked of.
    pub(super) fn answering(&self) -> Arc<Answering> {
        self.answering.clone()
    }

    /// Something happened to a client; `what` tells it from other things.
    fn of_client(&self, client: &str, what: &str) -> Say {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if !clients.contains_key(client) {
            clients.insert(client.to_owned(), HashSet::new());
        }
        let Some(said) = clients.get_mut(client) else {
            return Say::Nothing;
        };
        if said.len() > PER_CLIENT || said.contains(what) {
            return Say::Nothing;
        }
        said.insert(what.to_owned());
        match said.len() > PER_CLIENT {
            true => Say::More,
            false => Say::This,
        }
    }

    /// Notes that a key was shown that nobody knows.
    fn of_key(&self, now: Instant, key: PublicKey) -> Say {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |since: &Instant| now.saturating_duration_since(*since) < AGAIN;
        if keys.get(&key).is_some_and(fresh) {
            return Say::Nothing;
        }
        if keys.len() > KEYS {
            keys.retain(|_, since| fresh(since));
        }
        if keys.len() > KEYS {
            return Say::Nothing;
        }
        keys.insert(key, now);
        match keys.len() > KEYS {
            true => Say::More,
            false => Say::This,
        }
    }

    /// Warns of something that a client may not do: once, until the configuration changes.
    pub(super) fn tell_of_client(
        &self,
        client: &str,
        what: &str,
        text: impl FnOnce(&str) -> String,
    ) {
        match self.of_client(client, what) {
            Say::This => tracing::warn!("{}", text(client)),
            Say::More => tracing::warn!("{client}: more of what it may not do is not named"),
            Say::Nothing => {}
        }
    }

    /// Tells of a stranger's key, or of a client's that was not entered yet. While the server `awaits` a client that joins, this
    /// is no warning: such a client shows its own key first, and names it next.
    pub(super) fn tell_of_key(
        &self,
        now: Instant,
        (key, address): (&PublicKey, SocketAddr),
        awaits: bool,
    ) {
        let address = process::canonical(address);
        match self.of_key(now, *key) {
            Say::This if awaits => {
                tracing::info!("{address} shows the key {key}, which no [[client]] has (yet)");
            }
            Say::This => tracing::warn!(
                "{address} shows a key that no [[client]] has: {key}; if that is what `bentpipe pubkey` prints at a client of \
                 yours, add a [[client]] with it as public_key; a code that was withdrawn shows one as well, and stays out"
            ),
            Say::More => tracing::warn!("more unknown keys come and are not named"),
            Say::Nothing => {}
        }
    }

    /// The configuration has changed: what clients still may not do is said anew.
    pub(super) fn forget_clients(&self) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_tunnel::engine::identity::PrivateKey;

    #[test]
    fn each_thing_is_said_once_and_the_table_is_bounded() {
        let notices = Notices::default();
        for _ in 0..3 {
            let says = (0..1000).map(|number| notices.of_client("a", &number.to_string()));
            let says: Vec<_> = says.collect();
            let count = |what| says.iter().filter(|say| **say == what).count();
            assert!(count(Say::This) == 0 || count(Say::This) == PER_CLIENT);
            assert!(count(Say::More) <= 1);
        }
        assert_eq!(notices.of_client("b", "1"), Say::This);
        assert_eq!(notices.of_client("b", "1"), Say::Nothing);
        notices.forget_clients();
        assert_eq!(notices.of_client("b", "1"), Say::This);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn an_unknown_key_is_said_once_an_hour() {
        let (notices, start) = (Notices::default(), Instant::now());
        let key = || PrivateKey::generate().expect("a key").public();
        let first = key();
        assert_eq!(notices.of_key(start, first), Say::This);
        let soon = start + Duration::from_secs(3000);
        assert_eq!(notices.of_key(soon, first), Say::Nothing);
        let says: Vec<_> = (0..2 * KEYS).map(|_| notices.of_key(soon, key())).collect();
        assert_eq!(
            says.iter().filter(|say| **say == Say::This).count(),
            KEYS - 1
        );
        assert_eq!(says.iter().filter(|say| **say == Say::More).count(), 1);
        assert_eq!(notices.of_key(soon + AGAIN, first), Say::This);
    }
}
