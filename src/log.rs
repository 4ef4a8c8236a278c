//! The log: standard error, without colour, one event a line.
//!
//! ```text
//! text      2026-11-25T20:31:07.120301Z  WARN link silent since 12 s     UTC
//! journal   <4>link silent since 12 s                                    the journal has times and knows priorities
//! json      {"timestamp":"…","level":"WARN","message":"link silent since 12 s"}
//! ```
//!
//! A reader that stands still holds nobody up: lines that it leaves no room for are dropped and counted. The last line of a process, which
//! says why it ends, waits a second for room.

mod recent;
mod sink;

use std::env;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{LazyLock, Once};

use bentpipe_pep::events;
use bentpipe_pep::status::EventLevel;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{LogFormat, LogLevel};
use crate::exit::Failure;
use recent::Recent;
use sink::Sink;

/// Standard error.
static OUT: LazyLock<Sink<io::Stderr>> = LazyLock::new(|| Sink::new(io::stderr()));

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
    // Opened now: later the sandbox may be in the way.
    LazyLock::force(&OUT);
    form
}

impl Form {
    /// Tells why a command failed: to a person as it is, to a machine as an event of the log.
    pub(crate) fn tell(self, failure: &Failure) {
        match self {
            // Without a standard error there is nobody to tell.
            Self::Text => {
                let text = format!("{failure}\n");
                OUT.put_last(text.as_bytes(), |count| self.dropped(count));
            }
            Self::Journal | Self::Json => tracing::error!(target: events::FATAL, "{failure}"),
        }
    }

    /// Tells how many lines were dropped of which nobody has heard, before the process ends.
    pub(crate) fn end(self) {
        OUT.end(|count| self.dropped(count));
    }

    /// Number that the journal takes for the priority of a line (sd-daemon(3)).
    const fn priority(self, level: Level) -> &'static str {
        match (self, level) {
            (Self::Text | Self::Json, _) => "",
            (Self::Journal, Level::ERROR) => "<3>",
            (Self::Journal, Level::WARN) => "<4>",
            (Self::Journal, Level::INFO) => "<6>",
            (Self::Journal, _) => "<7>",
        }
    }

    /// A whole event as a line: text inside of one, which a peer or a file may have written, can neither begin another line nor move
    /// a terminal's cursor.
    fn line(self, level: Level, event: &[u8]) -> String {
        let event = event.strip_suffix(b"\n").unwrap_or(event);
        let text = String::from_utf8_lossy(event);
        let mut line = String::with_capacity(text.len() + 4);
        line.push_str(self.priority(level));
        for character in text.trim_start_matches(' ').chars() {
            match (character.is_control(), self) {
                (false, _) => line.push(character),
                (true, Self::Text | Self::Journal) => line.extend(character.escape_debug()),
                (true, Self::Json) => line.push_str(&format!("\\u{:04x}", u32::from(character))),
            }
        }
        line.push('\n');
        line
    }

    /// The line that tells how many were dropped before it.
    fn dropped(self, count: u64) -> String {
        let text = format!("lines of the log that nobody read in time were dropped: {count}");
        let mut time = String::new();
        // A clock that cannot be written is left out.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let event = match self {
            Self::Text => format!("{time}  WARN {text}"),
            Self::Journal => text,
            Self::Json => {
                format!("{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"{text}\"}}")
            }
        };
        self.line(Level::WARN, event.as_bytes())
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

/// Maker of a writer for each event.
struct Lines(Form);

impl MakeWriter<'_> for Lines {
    type Writer = OneLine;

    fn make_writer(&self) -> Self::Writer {
        OneLine {
            form: self.0,
            level: Level::INFO,
            is_last: false,
        }
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> Self::Writer {
        OneLine {
            form: self.0,
            level: *event.level(),
            is_last: event.target() == events::FATAL,
        }
    }
}

/// A writer of one event of a level.
struct OneLine {
    form: Form,
    level: Level,
    /// The process ends with it.
    is_last: bool,
}

impl Write for OneLine {
    /// Takes a whole event, which is how the subscriber writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        static TOLD: Once = Once::new();

        let form = self.form;
        let (line, notice) = (form.line(self.level, event), |count| form.dropped(count));
        let taken = match self.is_last {
            true => OUT.put_last(line.as_bytes(), notice),
            false => OUT.put(line.as_bytes(), notice),
        };
        if !taken {
            // Whoever looks for the log finds out where it went.
            TOLD.call_once(|| {
                let text = "standard error is not read fast enough: lines of the log are dropped";
                events::note(EventLevel::Warn, text);
            });
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, level: Level, event: &str) -> String {
        form.line(level, event.as_bytes())
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

    #[test]
    fn what_was_dropped_is_told_as_all_else_is() {
        let text = Form::Text.dropped(7);
        let told = " WARN lines of the log that nobody read in time were dropped: 7\n";
        assert!(text.starts_with("20") && text.ends_with(told), "{text}");
        let journal = Form::Journal.dropped(7);
        assert!(journal.starts_with("<4>lines of the log"), "{journal}");
        let json = Form::Json.dropped(7);
        let object: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(object["level"], "WARN");
        assert!(object["timestamp"].is_string() && object["message"].is_string());
    }
}
