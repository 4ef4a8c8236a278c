//! Acceptor: an outer connection at the server, from its first byte until it is known to be a
//! client's.
//!
//! ```text
//!  Preface ──16 bytes──► Held ──id and epoch known──► Sealed ──record 0 opened, number admitted──► Conn, OPEN's body
//! ```
//!
//! Nothing is dialled for who repeats a connection, or makes up a preface.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::keys::ANSWER;
use super::preface::{ASKS, PrefaceReader};
use super::{Associations, Conn, Kind, Opener, Preface, PrefaceError, RecordError, Sealer};
use crate::epoch::Absent;
use crate::window::Stale;

/// Time from the first byte of an outer connection to the last of its OPEN, 10 s.
pub const OPENING: Duration = Duration::from_secs(10);

/// Time for which a connection of an unknown association or epoch is held, 3 s: word of it may be
/// behind in the tunnel.
pub const HELD: Duration = Duration::from_secs(3);

/// Reason why an outer connection is reset before anything is dialled for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The connection does not begin as one of SLE.
    #[error(transparent)]
    Preface(#[from] PrefaceError),
    /// No tunnel has this name.
    #[error("association {0:#010x} is unknown")]
    Association(u32),
    /// The tunnel has not this epoch.
    #[error(transparent)]
    Epoch(#[from] Absent),
    /// The connection is a repeated one, or might be.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// Record 0 cannot be opened.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Record 0 is of another kind than OPEN.
    #[error("record 0 is {0}, not OPEN")]
    NotOpen(Kind),
    /// OPEN has not come in time.
    #[error("no OPEN within {} s", OPENING.as_secs())]
    Late,
}

impl Refusal {
    /// Says whether word that is behind in the tunnel may turn the refusal into an admission.
    fn may_pass(self) -> bool {
        matches!(self, Self::Association(_) | Self::Epoch(Absent::Unknown(_)))
    }
}

/// Connection of a client, with what it wants.
#[derive(Debug)]
pub struct Accepted {
    /// Name of the association that the connection belongs to.
    pub id: u32,
    /// Body of OPEN: destination and source, not looked at here.
    pub open: Bytes,
    /// Flow, which waits for the outcome of the dial.
    pub conn: Conn,
}

/// Outer connection of which the server does not know yet whose it is.
#[derive(Debug)]
pub struct Acceptor {
    since: Instant,
    stage: Stage,
    /// Place that the connection was made to, where prefaces may ask.
    place: Option<SocketAddr>,
    /// Answer that has not been taken.
    answer: Option<[u8; ANSWER]>,
}

#[derive(Debug)]
enum Stage {
    Preface(PrefaceReader),
    /// The preface names keys that are not here.
    Held {
        preface: Preface,
        since: Instant,
        why: Refusal,
    },
    Sealed {
        preface: Preface,
        sealer: Sealer,
        opener: Opener,
    },
    /// The connection was handed on, or refused.
    Over,
}

impl Acceptor {
    /// Acceptor of a connection that has just been made. A preface that asks is refused.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            stage: Stage::Preface(PrefaceReader::default()),
            place: None,
            answer: None,
        }
    }

    /// The acceptor of a connection that was made to `place`, where prefaces may ask.
    #[must_use]
    pub fn at(self, place: SocketAddr) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }

    /// Name of the association that the preface names, once its keys are here. Whoever has heard
    /// the name can say it.
    #[must_use]
    pub fn association(&self) -> Option<u32> {
        match &self.stage {
            Stage::Sealed { preface, .. } => Some(preface.id),
            Stage::Preface(_) | Stage::Held { .. } | Stage::Over => None,
        }
    }

    /// Answer to the preface, once, to be said before all else.
    pub fn take_answer(&mut self) -> Option<[u8; ANSWER]> {
        self.answer.take()
    }

    /// Takes what it needs from `input`; what is left of it belongs to the connection that it
    /// returns. `None`: need more bytes, or, if `input` is not taken, word from the tunnel: call
    /// again with the same bytes when `associations` have changed.
    ///
    /// # Errors
    /// [`Refusal`]: the connection is to be reset.
    pub fn push(
        &mut self,
        now: Instant,
        input: &mut &[u8],
        associations: &mut Associations,
    ) -> Result<Option<Accepted>, Refusal> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Preface(mut reader) => match reader.read(input)? {
                    Some(preface) => self.look_up(now, preface, now, associations)?,
                    None => {
                        self.stage = Stage::Preface(reader);
                        return Ok(None);
                    }
                },
                Stage::Held { preface, since, .. } => {
                    self.look_up(now, preface, since, associations)?;
                }
                Stage::Sealed {
                    preface,
                    sealer,
                    mut opener,
                } => {
                    let Some(record) = opener.next(input)? else {
                        self.stage = Stage::Sealed {
                            preface,
                            sealer,
                            opener,
                        };
                        return Ok(None);
                    };
                    if record.kind != Kind::Open {
                        return Err(Refusal::NotOpen(record.kind));
                    }
                    let open = Bytes::copy_from_slice(record.body);
                    find(associations, preface.id)?.admit(now, preface)?;
                    return Ok(Some(Accepted {
                        id: preface.id,
                        open,
                        conn: Conn::server(now, sealer, opener),
                    }));
                }
                Stage::Over => return Ok(None),
            }
            if matches!(self.stage, Stage::Held { .. }) {
                return Ok(None);
            }
        }
    }

    /// Looks for the keys of `preface`, for which the connection has waited since `since`.
    fn look_up(
        &mut self,
        now: Instant,
        preface: Preface,
        since: Instant,
        associations: &mut Associations,
    ) -> Result<(), Refusal> {
        let keys = find(associations, preface.id).and_then(|own| own.keys(now, preface));
        self.stage = match keys {
            Ok(keys) => {
                if preface.asks {
                    let place = self.place.ok_or(PrefaceError::Flags(ASKS))?;
                    self.answer = Some(keys.answer(place));
                }
                let (sealer, opener) = keys.server();
                Stage::Sealed {
                    preface,
                    sealer,
                    opener,
                }
            }
            Err(why) if why.may_pass() => Stage::Held {
                preface,
                since,
                why,
            },
            Err(why) => return Err(why),
        };
        Ok(())
    }

    /// Moment at which the connection has waited long enough; none once it was handed on or
    /// refused.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Over => None,
            Stage::Held { since, .. } => Some((*since + HELD).min(self.since + OPENING)),
            Stage::Preface(_) | Stage::Sealed { .. } => Some(self.since + OPENING),
        }
    }

    /// Gives the connection up once its time has come.
    ///
    /// # Errors
    /// [`Refusal`]: the connection is to be reset.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Refusal> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Held { why, .. } => Err(why),
            _ => Err(Refusal::Late),
        }
    }
}

/// Association with this name.
fn find(associations: &mut Associations, id: u32) -> Result<&mut super::Admissions, Refusal> {
    associations.get_mut(&id).ok_or(Refusal::Association(id))
}
