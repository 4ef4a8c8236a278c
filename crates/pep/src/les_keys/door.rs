//! Door of a PEP for keys: lets in clients that are listed, and holds what they grant.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bentpipe_sealed::les::sa::Word;
use bentpipe_sealed::les::{ClientKey, Grants, Pair};
use bentpipe_units::Seed;

use super::KeyLines;
use crate::keys::{PrivateKey, PublicKey};
use crate::process::{self, RunError};
use bentpipe_tunnel::engine::identity::{self, Accepts};
use bentpipe_tunnel::engine::{ConnectionId, ServerSetup};
use bentpipe_tunnel::lines::{LineCode, LineEnd, LineNotice, Lines};

/// Something that happened at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEvent {
    /// A client has connected, and may grant.
    Connected(ClientKey),
    /// K2 of an association of this pair is here.
    Granted(Pair),
    /// The client has ended an association.
    Ended(ClientKey),
    /// The last K2 of this pair is erased in a moment: its relays are to be reset with it.
    Withdrawn(Pair),
    /// The line is lost: K2 of the client holds until its time is over, or the client comes again.
    Lost(ClientKey),
}

/// Door of a PEP for keys.
pub(crate) struct KeyDoor {
    lines: KeyLines,
    grants: RefCell<Grants>,
    accepts: Accepts,
    /// Lines that are up, and whose they are.
    clients: RefCell<BTreeMap<ConnectionId, PublicKey>>,
}

impl KeyDoor {
    /// Door at a bound, non-blocking socket, of the PEP with this `key`; `accepts` is asked in every handshake. To be called
    /// inside a runtime.
    ///
    /// # Errors
    /// The key or the socket cannot be used.
    pub(crate) fn open(
        socket: std::net::UdpSocket,
        key: &PrivateKey,
        accepts: Accepts,
        allow_classical: bool,
    ) -> Result<Self, RunError> {
        let asked = accepts.clone();
        let told = Arc::new(move |key: &PublicKey| {
            let known = asked(key);
            if !known {
                tracing::debug!(
                    "the client with public key {key} is not in the list, and gets no answer here"
                );
            }
            known
        });
        let setup = ServerSetup {
            crypto: identity::les_server_crypto(key, told, allow_classical)
                .map_err(RunError::key)?,
            token_key: identity::token_key(key),
        };
        let seed = Seed::new(process::random_u64());
        let lines = Lines::new(identity::reset_key(key), Some(setup), seed);
        Ok(Self {
            lines: KeyLines::new(socket, lines)?,
            grants: RefCell::default(),
            accepts,
            clients: RefCell::default(),
        })
    }

    /// Grants of clients, to open and to write header zones with.
    pub(crate) fn grants(&self) -> RefMut<'_, Grants> {
        self.grants.borrow_mut()
    }

    /// Lines that are up, and whose they are.
    pub(crate) fn clients(&self) -> Ref<'_, BTreeMap<ConnectionId, PublicKey>> {
        self.clients.borrow()
    }

    /// Takes in keys, and tells of it; never ends but with an error.
    pub(crate) async fn serve(&self, mut tell: impl FnMut(KeyEvent)) -> io::Result<()> {
        let served = self.lines.drive(|id, notice| match notice {
            LineNotice::Up(key) => {
                tracing::info!("the client with public key {key} has connected");
                // An earlier line of it is closed by now.
                self.clients.borrow_mut().retain(|_, other| *other != key);
                self.clients.borrow_mut().insert(id, key);
                tell(KeyEvent::Connected(client(&key)));
            }
            LineNotice::Word(word) => self.on_word(id, &word, &mut tell),
            LineNotice::Down(end) => self.on_down(id, &end, &mut tell),
        });
        served.await
    }

    fn on_word(&self, id: ConnectionId, word: &[u8], tell: &mut impl FnMut(KeyEvent)) {
        let Some(key) = self.clients.borrow().get(&id).copied() else {
            return;
        };
        let (client, now) = (client(&key), process::now());
        let mut grants = self.grants();
        let taken = match Word::parse(word) {
            Ok(Word::Grant(grant)) => grants
                .grant(now, client, &grant)
                .map(KeyEvent::Granted)
                .map_err(|fault| fault.to_string()),
            Ok(Word::Ended(spis)) => {
                grants.end(now, client, spis);
                Ok(KeyEvent::Ended(client))
            }
            Err(fault) => Err(fault.to_string()),
        };
        drop(grants);
        match taken {
            Ok(event) => {
                tell(event);
                self.tell_ending(tell);
            }
            Err(fault) => {
                tracing::warn!("the client with public key {key} breaks the protocol: {fault}");
                self.put_out(id, LineCode::Violation, &fault, tell);
            }
        }
    }

    fn on_down(&self, id: ConnectionId, end: &LineEnd, tell: &mut impl FnMut(KeyEvent)) {
        let Some(key) = self.clients.borrow_mut().remove(&id) else {
            return;
        };
        match end {
            // Until K2's time is over: a client may be silent because the satellite is.
            LineEnd::Lost(_) => {
                tracing::info!("the client with public key {key} is not heard any more");
                tell(KeyEvent::Lost(client(&key)));
            }
            LineEnd::Closed(LineCode::Revoked) => {
                tracing::warn!("the client with public key {key} has revoked its keys");
                self.erase(&key, tell);
            }
            _ => {
                tracing::info!("the client with public key {key} has gone, and its keys with it");
                self.erase(&key, tell);
            }
        }
    }

    /// Closes a line, and erases what its client has granted.
    fn put_out(
        &self,
        id: ConnectionId,
        code: LineCode,
        reason: &str,
        tell: &mut impl FnMut(KeyEvent),
    ) {
        self.lines
            .with(|lines, now| lines.close(now, id, code, reason));
        if let Some(key) = self.clients.borrow_mut().remove(&id) {
            self.erase(&key, tell);
        }
    }

    fn erase(&self, key: &PublicKey, tell: &mut impl FnMut(KeyEvent)) {
        self.grants().forget(process::now(), client(key));
        self.tell_ending(tell);
    }

    /// Tells of pairs whose last K2 goes.
    fn tell_ending(&self, tell: &mut impl FnMut(KeyEvent)) {
        loop {
            let ending = self.grants().poll_ending(process::now());
            let Some(pair) = ending else { return };
            tell(KeyEvent::Withdrawn(pair));
        }
    }

    /// Erases what is over, and tells of what is about to be; to be called every second.
    pub(crate) fn tick(&self, mut tell: impl FnMut(KeyEvent)) {
        self.tell_ending(&mut tell);
    }

    /// Puts out clients that are not accepted any more, after the list has changed.
    pub(crate) fn recheck(&self, mut tell: impl FnMut(KeyEvent)) {
        let gone: Vec<_> = self
            .clients
            .borrow()
            .iter()
            .filter(|(_, key)| !(self.accepts)(key))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            let reason = "removed from the configuration";
            self.put_out(id, LineCode::Delisted, reason, &mut tell);
        }
        // Of some the line is lost, and K2 is still here.
        let held = self.grants().clients().into_iter();
        let keys: Vec<_> = held.filter_map(|it| PublicKey::from_bytes(it.0)).collect();
        for key in keys.iter().filter(|key| !(self.accepts)(key)) {
            self.erase(key, &mut tell);
        }
    }

    /// Erases all that is held, and tells clients that the PEP stops.
    pub(crate) fn close(&self) {
        let all = std::mem::take(&mut *self.clients.borrow_mut());
        self.lines.with(|lines, now| {
            for id in all.keys() {
                lines.close(now, *id, LineCode::Stopped, "");
            }
        });
        self.lines.finish();
        *self.grants() = Grants::default();
    }
}

fn client(key: &PublicKey) -> ClientKey {
    ClientKey(key.to_bytes())
}
