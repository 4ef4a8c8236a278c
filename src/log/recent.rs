//! Lines of the log that `status` and the page repeat: warnings, errors and changes of state, whatever `--log` leaves out.

use std::fmt::{self, Write as _};

use bentpipe_pep::events::{self, STATE};
use bentpipe_pep::status::EventLevel;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::Context;

/// Hands lines of the log over as events.
pub(super) struct Recent;

impl Recent {
    /// The lines that are events.
    pub(super) fn filter() -> FilterFn {
        let is_event: fn(&Metadata<'_>) -> bool =
            |line| line.target() == STATE || *line.level() <= Level::WARN;
        // Whoever asks for less detail than the log has is asked no further.
        filter_fn(is_event).with_max_level_hint(LevelFilter::INFO)
    }
}

impl<S: Subscriber> Layer<S> for Recent {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut words = Words::default();
        event.record(&mut words);
        let level = match *event.metadata().level() {
            Level::ERROR => EventLevel::Error,
            Level::WARN => EventLevel::Warn,
            _ => EventLevel::Info,
        };
        events::note(level, &words.text());
    }
}

/// A line's message, and the client that it is about.
#[derive(Default)]
struct Words {
    client: Option<String>,
    message: String,
}

impl Words {
    fn text(self) -> String {
        match self.client {
            Some(client) => format!("{client}: {}", self.message),
            None => self.message,
        }
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "client" => self.client = Some(value.to_owned()),
            "message" => value.clone_into(&mut self.message),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // A string takes whatever is written.
            let _ = write!(self.message, "{value:?}");
        }
    }
}
