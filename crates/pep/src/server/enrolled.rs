//! Clients that join by a code: a one-time key lets one of them name the key of its own (`PROTOCOL.md` §16).
//!
//! ```text
//! server.toml: enrolment_key ─► Clients ─► begin_enrolment() ─ ENROL ─► Recorded::enrol() ─► enrolled.json, Clients
//! ```
//!
//! What was recorded lies in the state directory, because a daemon cannot write its configuration; it counts while the
//! configuration lists the enrolment key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_proto::tunnel::{CloseCode, ENROL_KEY, EnrolCode};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::sessions::Sessions;
use crate::config::ServerConfig;
use crate::keys::PublicKey;
use crate::state;
use bentpipe_tunnel::engine::ConnectionId;

/// Name of the file in the state directory.
const FILE: &str = "enrolled.json";

/// Longest file that is read, in bytes: 10,000 clients take 1.5 MB.
const MOST: u64 = 16 << 20;

/// Time that a client with an enrolment key has to name its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// One key that a client has named.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    /// Its public key, base64.
    key: String,
    /// When, in seconds since 1970.
    at: u64,
}

/// Keys that clients have named, by enrolment key.
#[derive(Debug)]
pub(super) struct Recorded {
    file: PathBuf,
    records: Mutex<BTreeMap<String, Record>>,
}

impl Recorded {
    /// Reads what was recorded. A damaged file is named, and whom it listed has to join again.
    pub(super) fn load(state_dir: &Path) -> Self {
        let file = state_dir.join(FILE);
        let records = match state::read(&file, MOST) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::error!(
                    "{} is damaged ({error}): clients that joined by a code must join again",
                    file.display()
                );
                BTreeMap::new()
            }),
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::error!(
                        "cannot read {}: {error}; clients that joined by a code are not known",
                        file.display()
                    );
                }
                BTreeMap::new()
            }
        };
        Self {
            file,
            records: Mutex::new(records),
        }
    }

    /// The key that was named with the enrolment key `enrolment`.
    pub(super) fn of(&self, enrolment: &PublicKey) -> Option<PublicKey> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.get(&enrolment.to_string())?.key.parse().ok()
    }

    /// Records `key` for `enrolment`, which expires at `expires`, all times in seconds since 1970. Returns the answer
    /// and since when the enrolment key is void. What is answered with OK is on the disk.
    pub(super) fn enrol(
        &self,
        enrolment: &PublicKey,
        expires: u64,
        key: &PublicKey,
        now: u64,
    ) -> (EnrolCode, u64) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, key) = (enrolment.to_string(), key.to_string());
        if let Some(known) = records.get(&name) {
            return match known.key == key {
                true => (EnrolCode::Ok, 0),
                false => (EnrolCode::Used, known.at),
            };
        }
        if now >= expires {
            return (EnrolCode::Expired, expires);
        }
        let mut next = records.clone();
        next.insert(name, Record { key, at: now });
        let bytes = serde_json::to_vec_pretty(&next).expect("texts and numbers");
        if let Err(error) = state::replace(&self.file, &bytes) {
            let file = self.file.display();
            tracing::error!("cannot record a client's key in {file}: {error}");
            return (EnrolCode::Internal, 0);
        }
        *records = next;
        (EnrolCode::Ok, 0)
    }
}

/// The keys that clients of `config` have named, by enrolment key.
pub(super) fn joined(config: &ServerConfig) -> impl Fn(&PublicKey) -> Option<PublicKey> + use<> {
    let recorded = Recorded::load(&config.state_dir);
    move |enrolment| recorded.of(enrolment)
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "codes expire by the clock that the operator reads"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

impl Sessions {
    /// A client has shown the enrolment key `key`: it may name its own, and nothing else.
    pub(super) fn begin_enrolment(self: &Rc<Self>, id: ConnectionId, key: PublicKey) {
        self.registry.enter(key, self.index, id);
        self.enrolling.borrow_mut().insert(id, key);
        self.shard.change(id, |connection| {
            connection.tunnel.set_max_flows(0);
            connection.set_max_flows(0);
        });
        let this = self.clone();
        spawn_local(async move {
            sleep(PATIENCE).await;
            if this.enrolling.borrow().contains_key(&id) {
                this.close(id, CloseCode::Removed, "the time to join is over");
            }
        });
    }

    /// A client names the key that it will connect with.
    pub(super) fn on_enrol(&self, id: ConnectionId, key: [u8; ENROL_KEY]) {
        let enrolment = self.enrolling.borrow().get(&id).copied();
        let Some(enrolment) = enrolment else {
            return self.close(id, CloseCode::ProtocolViolation, "it has a key of its own");
        };
        let (code, at) = match PublicKey::from_bytes(key) {
            Some(key) => self.clients.enrol(&enrolment, &key, now()),
            None => (EnrolCode::KeyTaken, 0),
        };
        let client = self.clients.enrolment_name(&enrolment);
        match code {
            EnrolCode::Ok => tracing::info!(client, "joined"),
            refused => tracing::warn!(client, "cannot join: {refused:?}"),
        }
        self.shard
            .change(id, |connection| connection.tunnel.enrolled(code, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_tunnel::engine::identity::PrivateKey;

    fn keys<const N: usize>() -> [PublicKey; N] {
        std::array::from_fn(|_| PrivateKey::generate().expect("a key").public())
    }

    #[test]
    fn one_key_is_recorded_for_good_and_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let [enrolment, client, thief, other] = keys();
        let recorded = Recorded::load(directory.path());
        let enrol = |key, now| recorded.enrol(&enrolment, 1000, key, now);
        assert_eq!(recorded.of(&enrolment), None);
        assert_eq!(enrol(&client, 900), (EnrolCode::Ok, 0));
        assert_eq!(
            enrol(&client, 950),
            (EnrolCode::Ok, 0),
            "the answer was lost"
        );
        assert_eq!(enrol(&client, 5000), (EnrolCode::Ok, 0), "and long after");
        assert_eq!(enrol(&thief, 950), (EnrolCode::Used, 900));
        assert_eq!(
            recorded.enrol(&other, 1000, &thief, 1000),
            (EnrolCode::Expired, 1000)
        );
        let again = Recorded::load(directory.path());
        assert_eq!(again.of(&enrolment), Some(client));
        assert_eq!(again.of(&other), None);
    }

    #[test]
    fn nothing_is_promised_that_cannot_be_written() {
        let directory = tempfile::tempdir().expect("a directory");
        // A directory in the file's place.
        std::fs::create_dir(directory.path().join(FILE)).expect("a directory");
        let [enrolment, client] = keys();
        let recorded = Recorded::load(directory.path());
        assert_eq!(
            recorded.enrol(&enrolment, 1000, &client, 1),
            (EnrolCode::Internal, 0)
        );
        assert_eq!(recorded.of(&enrolment), None);
    }
}
