//! Frames into packets: pieces of consecutive frames are joined, whatever the order they come in.

use bytes::{Bytes, BytesMut};

use super::{CONTEXT, FrameKind, HEAD, MTU, PACKETS, PIECE, set_congestion_experienced};

/// Pieces wait for the frames beside theirs until so many newer ones have come.
const WINDOW: u16 = 64;

/// No frame, and no copy of one, comes so many later than it was sent: a number that far back is a later one.
const LATEST: u16 = 4096;

/// A frame that is not as it must be; it is dropped whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a malformed frame of packets")]
pub struct Malformed;

/// Joins what the peer's [`super::Packer`] has split. Holds at most 64 frames' first and last pieces.
#[derive(Debug)]
pub struct Joiner {
    newest: Option<u16>,
    slots: Vec<Slot>,
    /// Newest frames that have come, a bit for each.
    came: Vec<u64>,
    discarded: u64,
    copies: u64,
}

/// Pieces of one frame that wait.
#[derive(Debug, Default)]
struct Slot {
    /// A packet's middle or last piece, at the frame's start.
    start: Option<(FrameKind, Bytes)>,
    /// A packet's first piece, at the frame's end.
    end: Option<Bytes>,
    /// "Congestion experienced" on the datagram.
    marked: bool,
}

impl Default for Joiner {
    fn default() -> Self {
        Self {
            newest: None,
            slots: Vec::new(),
            came: vec![0; usize::from(LATEST / 64)],
            discarded: 0,
            copies: 0,
        }
    }
}

impl Joiner {
    /// True if the content of a DATAGRAM frame is of this kind.
    #[must_use]
    pub fn is_for_packets(content: &[u8]) -> bool {
        content.first() == Some(&PACKETS)
    }

    /// Pieces given up because what belongs to them did not come.
    #[must_use]
    pub const fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Frames that came once more.
    #[must_use]
    pub const fn copies(&self) -> u64 {
        self.copies
    }

    /// Takes the content of a DATAGRAM frame of kind packets; `marked` if its IP packet was marked "congestion
    /// experienced". What became whole goes to `deliver`, none of it empty or longer than [`MTU`].
    ///
    /// # Errors
    /// [`Malformed`]: nothing of it is used.
    pub fn on_frame(
        &mut self,
        content: &Bytes,
        marked: bool,
        mut deliver: impl FnMut(Bytes),
    ) -> Result<(), Malformed> {
        let head = content.first_chunk::<HEAD>().ok_or(Malformed)?;
        let &[PACKETS, context, high, low] = head else {
            return Err(Malformed);
        };
        check(content)?;
        if context != CONTEXT {
            return Err(Malformed);
        }
        let sequence = u16::from_be_bytes([high, low]);
        let joins = self.advance(sequence);
        if self.has_come(sequence) {
            self.copies += 1;
            return Ok(());
        }
        for (kind, piece) in Pieces::of(content) {
            let piece = content.slice(piece);
            let slot = &mut self.slots[usize::from(sequence % WINDOW)];
            match kind {
                FrameKind::Whole => deliver(mark(piece, marked)),
                _ if !joins => self.discarded += 1,
                FrameKind::First => {
                    (slot.end, slot.marked) = (Some(piece), marked);
                    self.join(sequence, &mut deliver);
                }
                FrameKind::Middle | FrameKind::Last => {
                    (slot.start, slot.marked) = (Some((kind, piece)), marked);
                    if let Some(begin) = self.beginning(sequence) {
                        self.join(begin, &mut deliver);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes room for a frame; false if it comes too late to be joined with others.
    fn advance(&mut self, sequence: u16) -> bool {
        // Not before: most tunnels carry no packets, and the slots take some kilobytes.
        self.slots.resize_with(usize::from(WINDOW), Slot::default);
        let newest = *self.newest.get_or_insert(sequence.wrapping_sub(1));
        let (ahead, behind) = (sequence.wrapping_sub(newest), newest.wrapping_sub(sequence));
        if behind < LATEST {
            return behind < WINDOW;
        }
        self.newest = Some(sequence);
        for step in 0..ahead.min(LATEST) {
            let (word, bit) = Self::place(sequence.wrapping_sub(step));
            self.came[word] &= !bit;
        }
        for step in 0..ahead.min(WINDOW) {
            let slot = &mut self.slots[usize::from(sequence.wrapping_sub(step) % WINDOW)];
            let old = std::mem::take(slot);
            self.discarded += u64::from(old.start.is_some()) + u64::from(old.end.is_some());
        }
        true
    }

    /// Word and bit that note that a frame has come.
    const fn place(sequence: u16) -> (usize, u64) {
        let index = (sequence % LATEST) as usize;
        (index / 64, 1 << (index % 64))
    }

    /// Notes that a frame comes; true if it has come before.
    fn has_come(&mut self, sequence: u16) -> bool {
        let (word, bit) = Self::place(sequence);
        let before = self.came[word];
        self.came[word] |= bit;
        before & bit != 0
    }

    fn slot(&self, sequence: u16) -> Option<&Slot> {
        let age = self.newest?.wrapping_sub(sequence);
        (age < WINDOW).then(|| &self.slots[usize::from(sequence % WINDOW)])
    }

    /// The frame with the first piece of the packet that goes on at the start of `sequence`.
    fn beginning(&self, sequence: u16) -> Option<u16> {
        self.slot(sequence)?.start.as_ref()?;
        let mut at = sequence;
        for _ in 1..WINDOW {
            at = at.wrapping_sub(1);
            let slot = self.slot(at)?;
            match (&slot.end, &slot.start) {
                (Some(_), _) => return Some(at),
                (None, Some((FrameKind::Middle, _))) => {}
                _ => return None,
            }
        }
        None
    }

    /// Delivers the packet that begins at the end of frame `begin`, if all of it is here.
    fn join(&mut self, begin: u16, deliver: &mut impl FnMut(Bytes)) {
        let Some(mut length) = self
            .slot(begin)
            .and_then(|slot| Some(slot.end.as_ref()?.len()))
        else {
            return;
        };
        let mut last = begin;
        loop {
            last = last.wrapping_add(1);
            let Some((kind, piece)) = self.slot(last).and_then(|slot| slot.start.as_ref()) else {
                return;
            };
            length += piece.len();
            if *kind == FrameKind::Last {
                break;
            }
        }
        let first = &mut self.slots[usize::from(begin % WINDOW)];
        let mut marked = first.marked;
        let mut packet = BytesMut::with_capacity(length);
        packet.extend_from_slice(&first.end.take().unwrap_or_default());
        let mut at = begin;
        while at != last {
            at = at.wrapping_add(1);
            let slot = &mut self.slots[usize::from(at % WINDOW)];
            marked |= slot.marked;
            if let Some((_, piece)) = slot.start.take() {
                packet.extend_from_slice(&piece);
            }
        }
        if length <= MTU {
            deliver(mark(packet.freeze(), marked));
        } else {
            self.discarded += 1;
        }
    }
}

/// Tells the packet's receiver of the mark on the datagram, if the packet can (RFC 6040 §4.2). If it cannot, it is not
/// dropped: the tunnel's own controller has heard the mark and slows down.
fn mark(packet: Bytes, marked: bool) -> Bytes {
    if !marked {
        return packet;
    }
    let mut changed = BytesMut::from(packet);
    set_congestion_experienced(&mut changed);
    changed.freeze()
}

/// The pieces of a frame, as far as they are complete: kinds and places.
struct Pieces<'a> {
    content: &'a [u8],
    at: usize,
}

impl<'a> Pieces<'a> {
    const fn of(content: &'a [u8]) -> Self {
        Self { content, at: HEAD }
    }
}

impl Iterator for Pieces<'_> {
    type Item = (FrameKind, std::ops::Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let head = self.content.get(self.at..)?.first_chunk::<PIECE>()?;
        let (kind, length) = FrameKind::split(*head);
        let start = self.at + PIECE;
        self.content.get(start..start + length)?;
        self.at = start + length;
        Some((kind, start..start + length))
    }
}

/// Whether a frame is `[last] whole* [first]`, or one middle piece, and nothing else.
fn check(content: &[u8]) -> Result<(), Malformed> {
    let mut pieces = Pieces::of(content);
    let mut count = 0;
    let mut closed = false;
    for (kind, piece) in pieces.by_ref() {
        let fits = !closed && !piece.is_empty() && piece.len() <= MTU;
        let place = match kind {
            FrameKind::Whole | FrameKind::First => true,
            FrameKind::Middle | FrameKind::Last => count == 0,
        };
        if !fits || !place {
            return Err(Malformed);
        }
        closed = matches!(kind, FrameKind::First | FrameKind::Middle);
        count += 1;
    }
    if count > 0 && pieces.at == content.len() {
        Ok(())
    } else {
        Err(Malformed)
    }
}
