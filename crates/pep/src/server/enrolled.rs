//! Keys that clients have named with a one-time key, on disk.
//!
//! They lie in the state directory, because a daemon cannot write its configuration; one counts while the configuration
//! lists its enrolment key.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bentpipe_proto::tunnel::EnrolCode;
use serde::{Deserialize, Serialize};

use crate::config::ServerConfig;
use crate::keys::PublicKey;
use crate::state;

/// Name of the file in the state directory.
const FILE: &str = "enrolled.json";

/// Longest file that is read, in bytes: 10,000 clients take 1.5 MB.
const MOST: u64 = 16 << 20;

/// One key that a client has named.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    /// Public key of the client, base64.
    key: String,
    /// Time, in seconds since 1970.
    at: u64,
}

/// Records by enrolment key, base64.
type Records = BTreeMap<String, Record>;

/// Keys that clients have named, by enrolment key.
#[derive(Debug)]
pub(super) struct Recorded {
    file: PathBuf,
    /// `None` while the file is there and cannot be read: whatever were written would take the place of what it holds.
    records: Mutex<Option<Records>>,
}

/// Consequence of a file that cannot be read.
const LOST: &str = "clients that joined by a code are not known, and nobody can join";

/// Mend of a file that cannot be read.
const MEND: &str =
    "put a copy back, or remove the file so that all join anew, and send the server SIGHUP";

/// Records in `file`, none if it is not there. `None`: it cannot be read, as the log says.
fn read(file: &Path) -> Option<Records> {
    match content(file) {
        Ok(Ok(records)) => return Some(records),
        Ok(Err(fault)) => tracing::error!("{}; {MEND}", damaged(file, &fault)),
        Err(error) => tracing::error!("cannot read {}: {error}; {LOST}; {MEND}", file.display()),
    }
    None
}

/// Records in `file`, or the fault of what it holds.
fn content(file: &Path) -> io::Result<Result<Records, String>> {
    match state::read(file, MOST) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ok(Records::new())),
        Err(error) => Err(error),
    }
}

fn damaged(file: &Path, fault: &str) -> String {
    format!("{} is damaged ({fault}): {LOST}", file.display())
}

/// Line about the file in `state_dir` and its mend, if that is damaged.
pub(crate) fn damage(state_dir: &Path) -> Option<[String; 2]> {
    let file = state_dir.join(FILE);
    match content(&file) {
        Ok(Err(fault)) => Some([damaged(&file, &fault), MEND.to_owned()]),
        // Who may not read it cannot tell.
        Ok(Ok(_)) | Err(_) => None,
    }
}

/// Records in the content of a file. A key that is none makes all of it untrue: its client would be unknown, and its code used.
fn parse(bytes: &[u8]) -> Result<Records, String> {
    let records: Records = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    for (enrolment, record) in &records {
        for key in [enrolment, &record.key] {
            key.parse::<PublicKey>()
                .map_err(|error| format!("`{key}`: {error}"))?;
        }
    }
    Ok(records)
}

impl Recorded {
    /// Reads what was recorded. A file that cannot be read is named, and stays as it is.
    pub(super) fn load(state_dir: &Path) -> Self {
        let file = state_dir.join(FILE);
        let records = Mutex::new(read(&file));
        Self { file, records }
    }

    /// Reads the file again, which an operator may have mended. What cannot be read changes nothing.
    pub(super) fn read_again(&self) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fresh) = read(&self.file) {
            *records = Some(fresh);
        }
    }

    /// The key that was named with the enrolment key `enrolment`.
    pub(super) fn of(&self, enrolment: &PublicKey) -> Option<PublicKey> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let record = records.as_ref()?.get(&enrolment.to_string())?;
        record.key.parse().ok()
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
        let Some(records) = records.as_mut() else {
            let file = self.file.display();
            tracing::error!(
                "a client's key is not recorded: {file} could not be read; mend it, and send SIGHUP"
            );
            return (EnrolCode::Internal, 0);
        };
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

    /// Answer to a client that names `key` in time.
    fn join(recorded: &Recorded, enrolment: &PublicKey, key: &PublicKey) -> (EnrolCode, u64) {
        recorded.enrol(enrolment, 1000, key, 1)
    }

    /// A state directory in whose file the second of the keys was named with the first.
    fn joined() -> (tempfile::TempDir, PathBuf, [PublicKey; 4]) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(FILE);
        let keys = keys();
        let first = Recorded::load(directory.path());
        assert_eq!(join(&first, &keys[0], &keys[1]), (EnrolCode::Ok, 0));
        (directory, file, keys)
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_written_over_and_counts_again_once_it_is_mended() {
        let (directory, file, [enrolment, client, other, late]) = joined();
        let whole = std::fs::read(&file).expect("the file");
        let half = &whole[..whole.len() / 2];
        std::fs::write(&file, half).expect("written");
        let recorded = Recorded::load(directory.path());
        assert_eq!(recorded.of(&enrolment), None);
        assert_eq!(join(&recorded, &other, &late), (EnrolCode::Internal, 0));
        assert_eq!(std::fs::read(&file).expect("the file"), half);
        std::fs::write(&file, &whole).expect("written");
        recorded.read_again();
        assert_eq!(recorded.of(&enrolment), Some(client));
        assert_eq!(join(&recorded, &other, &late), (EnrolCode::Ok, 0));
        // What is known outlives a file that is damaged while the server runs.
        std::fs::write(&file, "{").expect("written");
        recorded.read_again();
        assert_eq!(recorded.of(&enrolment), Some(client));
    }

    #[test]
    fn a_key_that_is_none_damages_the_file() {
        let (directory, file, [enrolment, client, other, late]) = joined();
        let whole = std::fs::read_to_string(&file).expect("the file");
        for key in [&enrolment, &client].map(ToString::to_string) {
            let cut = whole.replace(&key, &key[1..]);
            std::fs::write(&file, &cut).expect("written");
            let [told, _] = damage(directory.path()).expect("it is damaged");
            assert!(told.contains("enrolled.json is damaged"), "{told}");
            let recorded = Recorded::load(directory.path());
            // Nobody hears that the code was used, and nothing is written over.
            for (enrolment, key) in [(&enrolment, &client), (&other, &late)] {
                assert_eq!(join(&recorded, enrolment, key), (EnrolCode::Internal, 0));
            }
            assert_eq!(std::fs::read_to_string(&file).expect("the file"), cut);
        }
        std::fs::write(&file, &whole).expect("written");
        assert_eq!(
            Recorded::load(directory.path()).of(&enrolment),
            Some(client)
        );
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
