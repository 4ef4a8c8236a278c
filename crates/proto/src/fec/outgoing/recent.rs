//! Stream data that was given lately and is in no block yet.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// Data that one stream was given lately, without gaps.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) chunks: VecDeque<Chunk>,
    pub(super) fin: bool,
}

#[derive(Debug)]
pub(super) struct Chunk {
    number: u64,
    pub(super) sent: Instant,
    pub(super) bytes: Bytes,
}

impl Run {
    /// A run that is empty at `offset`.
    fn at(offset: u64) -> Self {
        Self {
            start: offset,
            end: offset,
            ..Self::default()
        }
    }

    fn held(&self) -> u64 {
        self.end - self.start
    }
}

/// Data of all streams, with its order and its sum.
#[derive(Debug, Default)]
pub(super) struct Recent {
    streams: BTreeMap<u64, Run>,
    /// Everything remembered, the oldest first: number, stream.
    order: VecDeque<(u64, u64)>,
    next_chunk: u64,
    /// Bytes of all runs.
    held: u64,
}

impl Recent {
    /// Bytes that are remembered.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that are remembered of a stream.
    pub(super) fn held_of(&self, stream: u64) -> u64 {
        self.streams.get(&stream).map_or(0, Run::held)
    }

    /// True once anything was remembered.
    pub(super) fn has_begun(&self) -> bool {
        self.next_chunk > 0
    }

    /// Remembers `bytes` of a stream. What does not follow its earlier ones replaces them: something between was not remembered.
    pub(super) fn push(&mut self, now: Instant, stream: u64, offset: u64, bytes: Bytes) {
        let run = self.streams.entry(stream).or_default();
        if run.end != offset {
            self.held -= run.held();
            *run = Run::at(offset);
        }
        self.held += bytes.len() as u64;
        run.end += bytes.len() as u64;
        let number = self.next_chunk;
        self.next_chunk += 1;
        run.chunks.push_back(Chunk {
            number,
            sent: now,
            bytes,
        });
        self.order.push_back((number, stream));
    }

    /// Notes that a stream has been given `offset` bytes, and no more ever if `fin`.
    pub(super) fn on_dry(&mut self, stream: u64, offset: u64, fin: bool) {
        let run = self.streams.entry(stream);
        let run = run.or_insert_with(|| Run::at(offset));
        run.fin |= fin && run.end == offset;
    }

    /// Takes out what is remembered of a stream.
    pub(super) fn take(&mut self, stream: u64) -> Option<Run> {
        let run = self.streams.remove(&stream)?;
        self.held -= run.held();
        Some(run)
    }

    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        self.streams.clear();
        self.order.clear();
        self.held = 0;
    }

    /// Forgets what is older than `horizon`, and the oldest while more than `limit` bytes are held. Runs of which nothing is left go
    /// as well, unless they are to be kept.
    pub(super) fn trim(
        &mut self,
        now: Instant,
        horizon: Duration,
        limit: u64,
        keep: impl Fn(u64) -> bool,
    ) {
        while let Some(&(number, stream)) = self.order.front() {
            let Some(run) = self.streams.get_mut(&stream) else {
                self.order.pop_front();
                continue;
            };
            match run.chunks.front() {
                Some(chunk) if chunk.number == number => {
                    let age = now.saturating_duration_since(chunk.sent);
                    if age < horizon && self.held <= limit {
                        return;
                    }
                    let length = chunk.bytes.len() as u64;
                    run.chunks.pop_front();
                    run.start += length;
                    self.held -= length;
                    if run.chunks.is_empty() && !keep(stream) {
                        self.streams.remove(&stream);
                    }
                }
                // It was in a block.
                _ => {}
            }
            self.order.pop_front();
        }
    }
}
