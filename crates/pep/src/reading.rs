//! Processor time and memory that looking for links in pages takes, and how much of it there is for a peer, or for all.
//!
//! Pure but for the clock of the thread: `now` is an argument.

use std::time::{Duration, Instant};

use bentpipe_web::{Ahead, Frame};

use crate::bucket::Bucket;
use crate::process;

/// Processor time of a thread that may go into pages.
#[derive(Debug)]
pub(crate) struct ReadingTime(Bucket);

/// Share of one peer: a tenth of a processor, and half a second that is saved up while it loads nothing.
impl Default for ReadingTime {
    fn default() -> Self {
        Self(Bucket::with_burst(100.0, 500.0))
    }
}

impl ReadingTime {
    /// Share of all peers together: four tenths of a processor, and a second that is saved up.
    pub(crate) fn of_all() -> Self {
        Self(Bucket::with_burst(400.0, 1000.0))
    }

    /// True if some of it is left.
    pub(crate) fn is_left(&mut self, now: Instant) -> bool {
        self.is_left_beyond(Duration::ZERO, now)
    }

    /// True if some of it is left besides `kept`.
    pub(crate) fn is_left_beyond(&mut self, kept: Duration, now: Instant) -> bool {
        let events = kept.as_secs_f64() * 1000.0 + 1.0;
        self.0.holds(events, now)
    }

    /// Takes away the time that reading took.
    pub(crate) fn spend(&mut self, took: Duration) {
        self.0.spend(took.as_secs_f64() * 1000.0);
    }
}

/// Most memory that decoders of one peer's pages hold together, bytes: three windows of the longest kind, or those of dozens of pages as
/// they are.
const MOST_HELD: usize = 32 << 20;

/// Memory of the decoders of one peer's pages that are being read.
#[derive(Debug, Default)]
pub(crate) struct ReadingMemory {
    held: usize,
}

impl ReadingMemory {
    /// Counts that a page's decoder holds `now` bytes, and no longer `before`; false: with it all hold more than they may, and that page is
    /// to be read no further.
    pub(crate) fn settle(&mut self, before: usize, now: usize) -> bool {
        self.held = self.held.saturating_sub(before) + now;
        self.held <= MOST_HELD
    }
}

/// Longest processor time that reading a piece of a page may take, a hundred times what it usually takes. The tokenizer compares the name of
/// each attribute with all before it in its tag: megabytes of them would take seconds a piece.
const LONGEST: Duration = Duration::from_millis(10);

/// Outcome of reading one piece of a page.
pub(crate) struct PieceRead {
    /// Promises for what the piece links to.
    pub(crate) promises: Vec<Frame>,
    /// Processor time of this thread that it took.
    pub(crate) took: Duration,
    /// True if that was so long that the page is read no further.
    pub(crate) gave_up: bool,
}

/// Reads the next piece of a page.
pub(crate) fn read_piece(ahead: &mut Ahead) -> PieceRead {
    let before = process::thread_time();
    let promises = ahead.read();
    let took = process::thread_time().saturating_sub(before);
    let gave_up = took > LONGEST && ahead.has_more();
    if gave_up {
        ahead.stop_reading();
    }
    PieceRead {
        promises,
        took,
        gave_up,
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_web::{Response, Scheme, Verdict, judge};

    use super::*;

    #[test]
    fn pages_hold_so_much_together_and_give_it_back() {
        let (mut memory, window) = (ReadingMemory::default(), 9 << 20);
        let fit: Vec<_> = (0..4).map(|_| memory.settle(0, window)).collect();
        assert_eq!(fit, [true, true, true, false]);
        assert!(memory.settle(window, 0), "the fourth has given up");
        assert!(!memory.settle(0, window));
        assert!(memory.settle(window, 1 << 20), "a smaller one");
    }

    #[test]
    fn a_page_whose_reading_costs_more_and_more_is_given_up() {
        let Verdict::Get(request, _) = judge(
            Scheme::Http,
            b"GET / HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\n\r\n",
        ) else {
            panic!("a request");
        };
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
        let (response, _) = Response::parse(head).expect("a head").expect("all of it");
        let mut ahead = Ahead::of(&request, &response).expect("a page");
        ahead.push(b"<img src=a><p ");
        let attributes: String = (0..500_000).map(|number| format!("{number:x} ")).collect();
        ahead.push(attributes.as_bytes());
        let (mut promised, mut gave_up) = (0, false);
        while ahead.has_more() {
            let piece = read_piece(&mut ahead);
            promised += piece.promises.len();
            gave_up = piece.gave_up;
        }
        assert!(gave_up, "all of it was read");
        assert_eq!(promised, 1, "what was before");
    }
}
