//! A client that joins by a code (`PROTOCOL.md` §16): once the server does not know its key, it connects with the one-time
//! key of the code, names its own key, and goes on with that.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bentpipe_proto::tunnel::EnrolCode;
use jiff::Timestamp;
use quinn_proto::crypto::ClientConfig as ClientCrypto;

use super::SharedKeyLog;
use crate::config::{ClientConfig, Server};
use crate::keys::{self, PrivateKey};
use crate::process::RunError;
use bentpipe_tunnel::engine::identity;

/// One-time keys of the servers, and what came of them.
pub(super) struct Enrolments {
    /// One for each server of the configuration.
    servers: Vec<EnrolKey>,
}

/// One-time key for one server.
struct EnrolKey {
    crypto: Option<Arc<dyn ClientCrypto>>,
    phase: Cell<EnrolPhase>,
}

/// Phase of joining one server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EnrolPhase {
    /// Attempts show the client's own key.
    OwnKey,
    /// The server does not know that: attempts show the one-time key, until it has answered about it.
    OneTimeKey,
    /// The server has answered: attempts show the client's own key for good.
    Answered,
}

impl Enrolments {
    /// Keys that `read_keys` gave, one for each server.
    pub(super) fn new(
        config: &ClientConfig,
        keys: &[Option<PrivateKey>],
        key_log: &SharedKeyLog,
    ) -> Result<Self, RunError> {
        let each = config.servers.iter().zip(keys).map(|(server, key)| {
            let crypto = key.as_ref().map(|key| crypto(config, server, key, key_log));
            Ok(EnrolKey {
                crypto: crypto.transpose()?,
                phase: Cell::new(EnrolPhase::OwnKey),
            })
        });
        let servers = each.collect::<Result<_, RunError>>()?;
        Ok(Self { servers })
    }

    /// Cryptography of an attempt at `server`, if that shows the one-time key.
    pub(super) fn crypto(&self, server: usize) -> Option<Arc<dyn ClientCrypto>> {
        let enrolment = &self.servers[server];
        let shown = enrolment.phase.get() == EnrolPhase::OneTimeKey;
        enrolment.crypto.clone().filter(|_| shown)
    }

    /// Has attempts at `server` show the one-time key; false if there is none, or the server has answered about it.
    pub(super) fn want(&self, server: usize) -> bool {
        let enrolment = &self.servers[server];
        let can = enrolment.crypto.is_some() && enrolment.phase.get() == EnrolPhase::OwnKey;
        if can {
            enrolment.phase.set(EnrolPhase::OneTimeKey);
        }
        can
    }

    /// The server has answered about the one-time key, or does not know it.
    pub(super) fn on_answered(&self, server: usize) {
        self.servers[server].phase.set(EnrolPhase::Answered);
    }
}

/// TLS of a client that shows `key` to `server`.
pub(super) fn crypto(
    config: &ClientConfig,
    server: &Server,
    key: &PrivateKey,
    key_log: &SharedKeyLog,
) -> Result<Arc<dyn ClientCrypto>, RunError> {
    let (public, classical) = (server.public_key, config.identity.allow_classical);
    identity::client_crypto(key, public, classical, key_log.clone())
        .map(|crypto| crypto as Arc<dyn ClientCrypto>)
        .map_err(RunError::key)
}

/// One-time keys of the servers in `config`. The file of one that was used may be gone.
pub(super) fn read_keys(config: &ClientConfig) -> Result<Vec<Option<PrivateKey>>, RunError> {
    let read = |file: &Path| match file.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => keys::read(file).map(Some).map_err(RunError::key),
    };
    let files = config
        .servers
        .iter()
        .map(|server| server.enrolment_key_file.as_deref());
    files.map(|file| file.map_or(Ok(None), read)).collect()
}

/// Explains to the operator why the server has refused to join; `at` is when the one-time key became void, in seconds
/// since 1970.
pub(super) fn explain(code: EnrolCode, at: u64) -> String {
    let at = i64::try_from(at).ok().map(Timestamp::from_second);
    let at = at.and_then(Result::ok).unwrap_or_default();
    let mend = "ask for a new one (`bentpipe server add` at the server) and join again";
    match code {
        EnrolCode::Used => {
            format!("the code was used on {at}, and not by this client's key; {mend}")
        }
        EnrolCode::Expired => format!("the code has expired on {at}; {mend}"),
        EnrolCode::KeyTaken => {
            "another client of the server has this client's key; make a new key and join again"
                .to_owned()
        }
        EnrolCode::Internal | EnrolCode::Ok => {
            "the server could not record this client's key, and its log says why; once that is mended, this client joins by itself"
                .to_owned()
        }
    }
}
