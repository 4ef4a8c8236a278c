//! The log: standard error, without colour, in UTC, one line for each event.

use std::io::{self, Write};

use crate::cli::LogLevel;

/// Starts logging of everything up to `level`.
pub(crate) fn start(level: LogLevel) {
    tracing_subscriber::fmt()
        .with_writer(|| OneLine(io::stderr()))
        .with_max_level(tracing::Level::from(level))
        .with_target(false)
        .with_ansi(false)
        .init();
}

/// A writer of events that are lines: text inside of one, which a peer or a file may have written, can neither begin another
/// line nor move a terminal's cursor.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    /// Takes a whole event, which is how the subscriber writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let text = String::from_utf8_lossy(line);
        let mut escaped = String::with_capacity(text.len() + 1);
        for character in text.chars() {
            if character.is_control() {
                escaped.extend(character.escape_debug());
            } else {
                escaped.push(character);
            }
        }
        escaped.push('\n');
        self.0.write_all(escaped.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let mut written = Vec::new();
        let event = "INFO closed: bye\nINFO ready\r\u{9b}2J \"é\"\n";
        OneLine(&mut written)
            .write_all(event.as_bytes())
            .expect("a buffer");
        let expected = "INFO closed: bye\\nINFO ready\\r\\u{9b}2J \"é\"\n";
        assert_eq!(String::from_utf8(written).expect("text"), expected);
    }
}
