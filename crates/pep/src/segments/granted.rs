//! Keys of headers that clients have granted at the door, as relays use them.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use bentpipe_sealed::les::{Discarded, Pair, PepUnopened, Toward};
use bentpipe_segments::Scope;
use bytes::{Bytes, BytesMut};

use super::les::{HeaderKeys, OpenedPacket, StaysClosed};
use crate::les_keys::KeyDoor;

/// Pairs whose names are kept; of more, all are computed anew.
const MOST_NAMES: usize = 4096;

/// Keys at the door, and the names of the pairs that have used them.
pub(super) struct GrantedKeys {
    door: Rc<KeyDoor>,
    scopes: HashMap<Pair, Scope>,
    pairs: HashMap<Scope, Pair>,
}

impl GrantedKeys {
    /// Keys that are granted at `door`.
    pub(super) fn new(door: Rc<KeyDoor>) -> Self {
        Self {
            door,
            scopes: HashMap::new(),
            pairs: HashMap::new(),
        }
    }
}

/// Name of a pair between PEPs, which is a digest: computed once.
fn scope(scopes: &mut HashMap<Pair, Scope>, pairs: &mut HashMap<Scope, Pair>, pair: Pair) -> Scope {
    if let Some(scope) = scopes.get(&pair) {
        return *scope;
    }
    if scopes.len() >= MOST_NAMES {
        scopes.clear();
        pairs.clear();
    }
    let scope = pair.scope();
    scopes.insert(pair, scope);
    pairs.insert(scope, pair);
    scope
}

impl HeaderKeys for GrantedKeys {
    fn open(&mut self, now: Instant, datagram: &[u8]) -> Result<OpenedPacket, StaysClosed> {
        let mut grants = self.door.grants();
        let opened = grants.open(now, datagram).map_err(|why| match why {
            PepUnopened::Discarded(Discarded::Packet(_)) => StaysClosed::Copy,
            PepUnopened::Unknown | PepUnopened::Discarded(_) => StaysClosed::NoKey,
        })?;
        Ok(OpenedPacket {
            scope: scope(&mut self.scopes, &mut self.pairs, opened.pair),
            toward: opened.toward,
            renewed: opened.renewed,
            header: Bytes::copy_from_slice(opened.packet.header()),
            zone: opened
                .packet
                .zone()
                .map_or_else(Bytes::new, Bytes::copy_from_slice),
        })
    }

    fn write(
        &mut self,
        now: Instant,
        (scope, toward): (&Scope, Toward),
        parts: (&[u8], Option<&[u8]>),
        out: &mut BytesMut,
    ) -> bool {
        let Some(pair) = self.pairs.get(scope) else {
            return false;
        };
        let written = self.door.grants().write(now, pair, toward, parts, out);
        written.is_ok()
    }
}
