//! Streams of relayed flows: messages that the other PEP has written are read as far as there is room, and own ones are written.

use std::time::Instant;

use bentpipe_proto::relay::End;
use bentpipe_segments::{Cause, Message, Opening, Parser};
use bytes::{Bytes, BytesMut};

use super::{Carried, Member, Place, RelayObstacle, SegmentRelays, Use};
use bentpipe_tunnel::transport::{Incoming, Tunnel};

/// Bytes of messages that are written at once.
const ONCE: usize = 64 << 10;

/// Chunks of a stream that are looked at at once.
const CHUNKS: usize = 64;

impl SegmentRelays {
    /// Reads what a stream has brought, as far as there is room.
    pub(super) fn read(&mut self, now: Instant, place: Place) {
        loop {
            if !self.has_room(place) {
                return self.change(place, |tunnel, key, _| tunnel.blocked(key));
            }
            let chunks = |tunnel: &Tunnel, key| {
                let ready = tunnel.ready(key).take(CHUNKS).cloned();
                (tunnel.incoming(key), ready.collect::<Vec<Bytes>>())
            };
            let Some((incoming, chunks)) = self.look(place, chunks) else {
                return self.drop_stream(now, place);
            };
            match incoming {
                Incoming::Data => {}
                Incoming::Blocked => return,
                Incoming::End(End::Fin) => return self.on_end(now, place),
                Incoming::End(_) | Incoming::Refused(_) | Incoming::Gone => {
                    return self.drop_stream(now, place);
                }
            }
            let taken = self.take(now, place, &chunks);
            if taken == 0 {
                return;
            }
            self.change(place, |tunnel, key, _| tunnel.consume(key, taken));
        }
    }

    fn has_room(&self, place: Place) -> bool {
        match self.streams.get(&place).map(|carried| &carried.used) {
            Some(Use::Flow(member)) => self.tables.of(member.form).has_room(member.id),
            _ => true,
        }
    }

    /// Takes bytes of a stream; returns how many.
    fn take(&mut self, now: Instant, place: Place, chunks: &[Bytes]) -> u64 {
        let mut taken = 0;
        for chunk in chunks {
            let mut input = &chunk[..];
            while !input.is_empty() {
                let before = input.len();
                self.take_piece(now, place, &mut input);
                taken += (before - input.len()) as u64;
                if input.len() == before {
                    return taken;
                }
            }
        }
        taken
    }

    /// Takes bytes from `input`, as the use of the stream is.
    fn take_piece(&mut self, now: Instant, place: Place, input: &mut &[u8]) {
        let Some(carried) = self.streams.get_mut(&place) else {
            *input = &[];
            return;
        };
        match &mut carried.used {
            Use::Refused => *input = &[],
            Use::Flow(member) => {
                let table = self.tables.get(member.form);
                if let Err(fault) = table.on_stream(now, member.id, input) {
                    tracing::warn!("a flow is reset, for the other PEP breaks the rules: {fault}");
                }
            }
            Use::Opening(parser) => match parser.next(input) {
                Ok(None) => {}
                Ok(Some(Message::Open(opening))) => {
                    let parser = std::mem::take(parser);
                    self.invite(now, place, &opening, parser);
                }
                Ok(Some(_)) => self.refuse(place, Cause::Fault),
                Err(fault) => {
                    tracing::warn!("a stream of the other PEP cannot be read: {fault}");
                    self.refuse(place, Cause::Fault);
                }
            },
        }
    }

    /// Takes the offer of a flow, or refuses it.
    fn invite(&mut self, now: Instant, place: Place, opening: &Opening, parser: Parser) {
        if self.draining {
            return self.refuse(place, Cause::Room);
        }
        // An answer that does not arrive leaves the flow to this PEP alone.
        if self.usable().is_none() {
            self.hinder(RelayObstacle::Tunnel);
            return self.refuse(place, Cause::Unknown);
        }
        let form = opening.form;
        match self.tables.get(form).invite(now, opening, parser) {
            Ok(id) => {
                let member = Member { form, id };
                if let Some(obstacle) = self.enter(member, place) {
                    self.hinder(obstacle);
                    self.tables.get(form).on_no_stream(id);
                    self.refuse(place, Cause::Room);
                } else {
                    let carried = Carried {
                        invited: Some(now),
                        ..Carried::new(Use::Flow(member))
                    };
                    self.streams.insert(place, carried);
                }
            }
            Err(cause) => self.refuse(place, cause),
        }
    }

    fn refuse(&mut self, place: Place, cause: Cause) {
        let mut out = BytesMut::new();
        Message::Reset(cause).encode(&mut out);
        self.change(place, |tunnel, key, _| {
            tunnel.push(key, out.freeze());
            tunnel.finish(key);
        });
        let refused = Carried {
            finished: true,
            ..Carried::new(Use::Refused)
        };
        self.streams.insert(place, refused);
    }

    /// The other PEP has ended its side of the stream.
    fn on_end(&mut self, now: Instant, place: Place) {
        let Some(carried) = self.streams.get(&place) else {
            return;
        };
        match carried.used {
            Use::Flow(member) => {
                let table = self.tables.get(member.form);
                // Before the last word of both it has broken off.
                table.on_stream_lost(now, member.id);
                self.write(now, place);
                let ended = self.streams.get(&place).is_some_and(|it| it.finished);
                if ended {
                    self.streams.remove(&place);
                    self.places.remove(&member);
                    self.release(place);
                }
            }
            Use::Opening(_) | Use::Refused => {
                self.streams.remove(&place);
                self.release(place);
            }
        }
    }

    /// Writes messages into a stream, as far as it has room; ends it after the last.
    pub(super) fn write(&mut self, now: Instant, place: Place) {
        let Some(Carried {
            used: Use::Flow(member),
            finished: false,
            ..
        }) = self.streams.get(&place)
        else {
            return;
        };
        let member = *member;
        loop {
            let capacity = self.look(place, |tunnel, key| tunnel.capacity(key));
            let most = capacity.unwrap_or_default().min(ONCE);
            if most == 0 {
                break;
            }
            let mut out = BytesMut::new();
            let table = self.tables.get(member.form);
            table.poll_stream(now, member.id, &mut out, most);
            if out.is_empty() {
                break;
            }
            self.change(place, |tunnel, key, _| tunnel.push(key, out.freeze()));
        }
        if self.tables.of(member.form).is_stream_done(member.id) {
            self.change(place, |tunnel, key, _| tunnel.finish(key));
            if let Some(carried) = self.streams.get_mut(&place) {
                carried.finished = true;
            }
        }
    }
}
