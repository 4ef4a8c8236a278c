//! Where a body of chunks ends (RFC 9112 §7.1). The bytes are passed on as they are.

/// Longest line of a chunk's size with its extensions, and longest trailer section, in bytes.
const MAX_LINE: usize = 4096;
const MAX_TRAILERS: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the line of a chunk's size; digits seen, and whether they are over.
    Size {
        size: u64,
        digits: u32,
        over: bool,
    },
    /// After the CR of that line.
    SizeEnd {
        size: u64,
    },
    /// In a chunk, so many bytes before its end.
    Data(u64),
    /// Before the CR, and before the LF, that follow a chunk.
    DataCr,
    DataLf,
    /// In the trailer section; bytes of the present line.
    Trailer {
        length: usize,
    },
    /// After a CR in it.
    TrailerEnd {
        length: usize,
    },
    Done,
}

impl State {
    const BEFORE_SIZE: Self = Self::Size {
        size: 0,
        digits: 0,
        over: false,
    };
}

/// State after another `byte` of the line of a chunk's size; `None`: that is no such line.
fn in_size_line(byte: u8, size: u64, digits: u32, over: bool) -> Option<State> {
    let over = match byte {
        b'\r' if digits > 0 => return Some(State::SizeEnd { size }),
        _ if !over && byte.is_ascii_hexdigit() => {
            let digit = char::from(byte).to_digit(16)?;
            // Sixteen digits fill 64 bits; leading zeros beyond are suspicious.
            let size = (digits < 16).then_some(size << 4 | u64::from(digit))?;
            let digits = digits + 1;
            return Some(State::Size { size, digits, over });
        }
        // Behind the digits extensions may follow, which nobody needs.
        b';' | b' ' | b'\t' => digits > 0,
        _ => over && byte != b'\n' && byte != 0,
    };
    over.then_some(State::Size { size, digits, over })
}

/// Follows a body of chunks.
#[derive(Debug, Clone)]
pub struct Chunks {
    state: State,
    /// Bytes of the present line, or of the trailer section.
    line: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Self {
            state: State::BEFORE_SIZE,
            line: 0,
        }
    }
}

impl Chunks {
    /// True if the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes bytes and says how many of them belong to the body; `None`: these are no chunks.
    pub fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if let State::Data(left) = self.state {
                let here = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len() - at);
                at += here;
                self.state = match left - here as u64 {
                    0 => State::DataCr,
                    left => State::Data(left),
                };
                continue;
            }
            self.state = self.step(bytes[at])?;
            at += 1;
        }
        Some(at)
    }

    fn step(&mut self, byte: u8) -> Option<State> {
        self.line += 1;
        let most = match self.state {
            State::Trailer { .. } | State::TrailerEnd { .. } => MAX_TRAILERS,
            _ => MAX_LINE,
        };
        if self.line > most {
            return None;
        }
        Some(match (self.state, byte) {
            (State::Size { size, digits, over }, _) => in_size_line(byte, size, digits, over)?,
            (State::SizeEnd { size }, b'\n') => {
                self.line = 0;
                match size {
                    0 => State::Trailer { length: 0 },
                    size => State::Data(size),
                }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.line = 0;
                State::BEFORE_SIZE
            }
            (State::Trailer { length }, b'\r') => State::TrailerEnd { length },
            (State::Trailer { length }, _) if byte != b'\n' && byte != 0 => {
                State::Trailer { length: length + 1 }
            }
            (State::TrailerEnd { length: 0 }, b'\n') => State::Done,
            (State::TrailerEnd { .. }, b'\n') => State::Trailer { length: 0 },
            _ => return None,
        })
    }
}
