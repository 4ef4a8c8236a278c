//! What streams were given and the peer may not have.
//!
//! QUIC sends nothing of a stream again before an acknowledgement shows that it was lost. After an outage that takes a round
//! trip from the first packet that gets through, and the peer's own word of where it waits is there in half of one. What is
//! remembered is not copied, and no more than is in flight: QUIC holds it as well.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::tunnel::{Again, Place};

/// Said again of one stream, at most: it is to go on, not to be repeated.
const EACH: usize = 4096;

/// The newest bytes given to all streams of a tunnel, the oldest first.
#[derive(Debug, Default)]
pub struct Outstanding {
    chunks: VecDeque<(Place, Bytes)>,
    held: u64,
}

impl Outstanding {
    /// A stream was given `bytes` at `place`.
    pub fn on_written(&mut self, place: Place, bytes: Bytes) {
        if !bytes.is_empty() {
            self.held += bytes.len() as u64;
            self.chunks.push_back((place, bytes));
        }
    }

    /// No more than `in_flight` bytes are not acknowledged: those before them are forgotten.
    pub fn trim(&mut self, in_flight: u64) {
        while let Some((_, oldest)) = self.chunks.front() {
            let rest = self.held - oldest.len() as u64;
            if rest < in_flight {
                break;
            }
            self.held = rest;
            self.chunks.pop_front();
        }
    }

    /// Bytes behind the places where the peer waits, in pieces of at most `size` bytes, `most` together.
    #[must_use]
    pub fn at(&self, places: &[Place], size: usize, mut most: usize) -> Vec<Again> {
        let wait = |place: &Place| (place.stream, (place.offset, EACH));
        let mut waits: BTreeMap<_, _> = places.iter().map(wait).collect();
        let mut found = Vec::new();
        for (place, bytes) in &self.chunks {
            let stream = place.stream;
            let Some((at, each)) = waits.get_mut(&stream) else {
                continue;
            };
            let reached = at.checked_sub(place.offset);
            let reached = reached.and_then(|reached| usize::try_from(reached).ok());
            let mut rest = match reached {
                Some(reached) if reached < bytes.len() => bytes.slice(reached..),
                _ => continue,
            };
            rest.truncate((*each).min(most));
            (*each, most) = (*each - rest.len(), most - rest.len());
            while !rest.is_empty() {
                let bytes = rest.split_to(rest.len().min(size.max(1)));
                let place = Place {
                    stream,
                    offset: *at,
                };
                *at += bytes.len() as u64;
                found.push(Again { place, bytes });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(chunks: &[(u64, u64, &'static [u8])]) -> Outstanding {
        let mut outstanding = Outstanding::default();
        for &(stream, offset, bytes) in chunks {
            outstanding.on_written(Place { stream, offset }, Bytes::from_static(bytes));
        }
        outstanding
    }

    fn said(found: &[Again]) -> Vec<(u64, u64, &[u8])> {
        let said = found.iter().map(|again| {
            let Place { stream, offset } = again.place;
            (stream, offset, again.bytes.as_ref())
        });
        said.collect()
    }

    #[test]
    fn a_stream_goes_on_where_the_peer_waits() {
        let outstanding = written(&[(1, 10, b"abcd"), (2, 0, b"xyz"), (1, 14, b"efgh")]);
        let at = |stream, offset| Place { stream, offset };
        let found = outstanding.at(&[at(1, 12), at(2, 3), at(3, 0)], 3, 100);
        assert_eq!(
            said(&found),
            [(1, 12, &b"cd"[..]), (1, 14, b"efg"), (1, 17, b"h")]
        );
        let found = outstanding.at(&[at(1, 12), at(2, 0)], 3, 4);
        assert_eq!(said(&found), [(1, 12, &b"cd"[..]), (2, 0, b"xy")]);
        // What it waits for is not known any more.
        assert!(outstanding.at(&[at(1, 9)], 3, 100).is_empty());
    }

    #[test]
    fn what_is_acknowledged_is_forgotten() {
        let mut outstanding = written(&[(1, 0, b"abcd"), (1, 4, b"efgh")]);
        let from = [Place {
            stream: 1,
            offset: 0,
        }];
        outstanding.trim(5);
        assert_eq!(outstanding.at(&from, 9, 9).len(), 2);
        outstanding.trim(4);
        assert!(outstanding.at(&from, 9, 9).is_empty());
        outstanding.trim(0);
        assert_eq!(outstanding.held, 0);
    }
}
