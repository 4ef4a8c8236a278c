//! Events of a daemon in plain words, and the bounded list of the last ones.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Events that are kept; older ones go.
const KEPT: usize = 20;

/// Longest text of an event, in characters.
const LONGEST: usize = 300;

/// One event: a line of the log that warns, or a change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Moment by the daemon's clock, as RFC 3339 in UTC.
    pub at: String,
    /// Weight of the event.
    pub level: EventLevel,
    /// Words of the log.
    pub text: String,
}

/// Weight of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    /// A change of state that is in order.
    Info,
    /// Something that the operator should know.
    Warn,
    /// Something that the operator has to mend.
    Error,
}

/// The last events of a daemon, oldest first.
#[derive(Debug)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Adds an event; what is too long is cut, and what is too old goes.
    pub(crate) fn add(&mut self, at: String, level: EventLevel, text: &str) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let mut characters = text.chars().map(printable);
        let mut text: String = characters.by_ref().take(LONGEST).collect();
        if characters.next().is_some() {
            text.push('…');
        }
        self.0.push_back(Event { at, level, text });
    }

    /// A copy of the list.
    pub(crate) fn list(&self) -> Vec<Event> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_its_texts_are_one_line_each() {
        let mut events = Events::new();
        for number in 0..100 {
            let text = format!("{number}\n\u{9b}2J{}", "x".repeat(1000));
            events.add(String::new(), EventLevel::Warn, &text);
        }
        let list = events.list();
        assert_eq!(list.len(), KEPT);
        assert!(list[0].text.starts_with("80\u{fffd}"), "{}", list[0].text);
        for event in &list {
            assert_eq!(event.text.chars().count(), LONGEST + 1);
            assert!(!event.text.contains(char::is_control));
        }
    }
}
