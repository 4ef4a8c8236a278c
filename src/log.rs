//! The log: standard error, without colour, one event a line.
//!
//! ```text
//! text      2026-11-25T20:31:07.120301Z  WARN link silent since 12 s     UTC
//! journal   <4>link silent since 12 s                                    the journal has times and knows priorities
//! json      {"timestamp":"…","level":"WARN","message":"link silent since 12 s"}
//! ```

mod recent;

use std::env;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{LogFormat, LogLevel};
use crate::exit::Failure;
use recent::Recent;

/// Form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Journal,
    Json,
}

/// Starts logging of everything up to `level`, in `format` or as suits standard error.
pub(crate) fn start(level: LogLevel, format: Option<LogFormat>) -> Form {
    let form = match format {
        Some(LogFormat::Json) => Form::Json,
        Some(LogFormat::Text) => Form::Text,
        None if is_journal() => Form::Journal,
        None => Form::Text,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Lines(form))
        .with_target(false)
        .with_ansi(false);
    let level = Level::from(level);
    // Sockets of the lab's browsers complain of each datagram that is refused: that is a measurement, no fault.
    let wanted =
        filter_fn(move |event| *event.level() <= level && !event.target().starts_with("quinn_udp"));
    let wanted = wanted.with_max_level_hint(LevelFilter::from_level(level));
    let log = tracing_subscriber::registry().with(Recent.with_filter(Recent::filter()));
    match form {
        Form::Text => log.with(lines.with_filter(wanted)).init(),
        Form::Journal => {
            let lines = lines.without_time().with_level(false);
            log.with(lines.with_filter(wanted)).init();
        }
        Form::Json => {
            let lines = lines.json().flatten_event(true);
            log.with(lines.with_filter(wanted)).init();
        }
    }
    form
}

impl Form {
    /// Tells why a command failed: to a person as it is, to a machine as an event of the log.
    pub(crate) fn tell(self, failure: &Failure) {
        match self {
            // Without a standard error there is nobody to tell.
            Self::Text => drop(writeln!(io::stderr(), "{failure}")),
            Self::Journal | Self::Json => tracing::error!("{failure}"),
        }
    }
}

/// True if standard error leads to the journal: systemd says which device and inode that is, and whoever has redirected it
/// since has another.
fn is_journal() -> bool {
    let journal = env::var_os("JOURNAL_STREAM");
    let own = || {
        let error = io::stderr().as_fd().try_clone_to_owned().ok()?;
        let metadata = std::fs::File::from(error).metadata().ok()?;
        Some(format!("{}:{}", metadata.dev(), metadata.ino()))
    };
    journal.is_some_and(|journal| own().is_some_and(|own| journal == *own))
}

/// Makes a writer for each event.
struct Lines(Form);

impl MakeWriter<'_> for Lines {
    type Writer = OneLine<io::Stderr>;

    fn make_writer(&self) -> Self::Writer {
        OneLine {
            out: io::stderr(),
            form: self.0,
            level: Level::INFO,
        }
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> Self::Writer {
        OneLine {
            level: *event.level(),
            ..self.make_writer()
        }
    }
}

/// A writer of events that are lines: text inside of one, which a peer or a file may have written, can neither begin another
/// line nor move a terminal's cursor.
struct OneLine<W> {
    out: W,
    form: Form,
    level: Level,
}

impl<W> OneLine<W> {
    /// Number that the journal takes for the priority of a line (sd-daemon(3)).
    fn priority(&self) -> &'static str {
        match (self.form, self.level) {
            (Form::Text | Form::Json, _) => "",
            (Form::Journal, Level::ERROR) => "<3>",
            (Form::Journal, Level::WARN) => "<4>",
            (Form::Journal, Level::INFO) => "<6>",
            (Form::Journal, _) => "<7>",
        }
    }
}

impl<W: Write> Write for OneLine<W> {
    /// Takes a whole event, which is how the subscriber writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let text = String::from_utf8_lossy(line);
        let mut escaped = String::with_capacity(text.len() + 4);
        escaped.push_str(self.priority());
        for character in text.trim_start_matches(' ').chars() {
            match (character.is_control(), self.form) {
                (false, _) => escaped.push(character),
                (true, Form::Text | Form::Journal) => escaped.extend(character.escape_debug()),
                (true, Form::Json) => {
                    escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
                }
            }
        }
        escaped.push('\n');
        self.out.write_all(escaped.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, level: Level, event: &str) -> String {
        let mut out = Vec::new();
        let mut line = OneLine {
            out: &mut out,
            form,
            level,
        };
        line.write_all(event.as_bytes()).expect("a buffer");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn an_event_is_one_line() {
        let event = "INFO closed: bye\nINFO ready\r\u{9b}2J \"é\"\n";
        let expected = "INFO closed: bye\\nINFO ready\\r\\u{9b}2J \"é\"\n";
        assert_eq!(written(Form::Text, Level::INFO, event), expected);
        let expected = "<4>closed: bye\\nINFO\n";
        let event = "closed: bye\nINFO\n";
        assert_eq!(written(Form::Journal, Level::WARN, event), expected);
    }

    #[test]
    fn an_object_stays_one_whatever_is_in_it() {
        let event = "{\"message\":\"closed \u{9b}2J\u{7f}\"}\n";
        let line = written(Form::Json, Level::INFO, event);
        let object: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(object["message"], "closed \u{9b}2J\u{7f}");
        assert!(!line.trim_end().contains(char::is_control), "{line:?}");
    }
}
