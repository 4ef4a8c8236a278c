//! Files in TOML (configurations of the daemons, scenarios of the emulator) and the one kind of error that reading one
//! can give.
//!
//! Every error is one line, `FILE:LINE: message`, and the message names the culprit and the mend. Messages of `toml`
//! and `serde` are rewritten here: a span becomes a line, an unknown key gets the nearest known one as a suggestion.
//! It knows no key of any file: which there are is said by the types that it parses into.
//!
//! ```text
//!   FILE ──► Source (text, lines) ──parse──► the reader's types ──► checks of its own
//!                  │                  │                                  │
//!                  └──────────────────┴──► ConfigError ◄── error, error_at_key
//! ```

mod place;
mod tables;
mod text;

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;
use toml::Spanned;

/// A configuration that cannot be used; displays as exactly one line, `FILE:LINE: message`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}:{line}: {message}", file.display())]
pub struct ConfigError {
    file: PathBuf,
    line: usize,
    message: String,
}

impl ConfigError {
    /// The line at fault, counted from 1; 1 when the whole file is.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The message without `FILE:LINE: `.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// A line of a configuration file; displays as `FILE:LINE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: PathBuf,
    line: usize,
}

impl Place {
    /// An error at this line.
    #[must_use]
    pub fn error(&self, message: impl fmt::Display) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: self.line,
            message: on_one_line(&message.to_string()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A value and where it stands: some can only be found wrong when they are used.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// Place at which the value stands.
    pub place: Place,
    value: T,
}

impl<T> Placed<T> {
    /// A value that follows from this one, without a line of its own.
    pub fn implied<U>(&self, value: U) -> Placed<U> {
        Placed {
            place: self.place.clone(),
            value,
        }
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// More than any configuration holds, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// A file in memory.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// Reads `path`.
    ///
    /// # Errors
    /// It cannot be read, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let mut bytes = Vec::new();
        // A device would be read for ever.
        let read =
            File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
        let (line, fault) = match read {
            Ok(read) if read as u64 > MAX_FILE => (
                1,
                "this file exceeds 16 MiB: it is no configuration".to_owned(),
            ),
            Ok(_) => match text::of(bytes) {
                Ok(text) => return Ok(Self::new(path, text)),
                Err(fault) => fault,
            },
            Err(error) => (1, format!("cannot read this file: {error}")),
        };
        Err(Self::new(path, String::new()).error_at_line(line, fault))
    }

    /// `text` as if it had been read from `path`.
    pub fn new(path: &Path, text: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            text: text.into(),
        }
    }

    /// The text itself.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Path of the file that the text came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `path` as meant in this file: relative to the file's directory.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.path
            .parent()
            .map_or_else(|| path.to_owned(), |directory| directory.join(path))
    }

    /// As [`Self::resolve`], with the line where the path stands.
    #[must_use]
    pub fn resolve_placed(&self, path: Spanned<PathBuf>) -> Placed<PathBuf> {
        let resolved = self.resolve(path.get_ref());
        self.placed(Spanned::new(path.span(), resolved))
    }

    /// Parses the whole text.
    ///
    /// # Errors
    /// It is no TOML, or not what `T` says.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let span = place::narrowed(&self.text, span, error.message());
            let message = match error.message() {
                "duplicate key" => tables::duplicate(&self.text, &span),
                message => self.explain(message, &span),
            };
            self.error(&span, message)
        })
    }

    /// An error at the line where `span` starts.
    #[must_use]
    pub fn error(&self, span: &Range<usize>, message: impl fmt::Display) -> ConfigError {
        self.error_at_line(self.line(span), message)
    }

    /// An error at the line of `key`, which names its tables too: `forward.modcods`, `terminal.1.name` (of the second
    /// `[[terminal]]`). Where the file lacks it, at the line of the nearest table around it.
    #[must_use]
    pub fn error_at_key(&self, key: &str, message: impl fmt::Display) -> ConfigError {
        self.error(&place::of_key(&self.text, key), message)
    }

    /// An error at the first line that holds `text`.
    #[must_use]
    pub fn error_at_text(&self, text: &str, message: impl fmt::Display) -> ConfigError {
        self.error(&self.span_of(text), message)
    }

    /// Place at which `text` stands first; the start of the file if it does not.
    #[must_use]
    pub fn span_of(&self, text: &str) -> Range<usize> {
        let start = self.text.find(text).unwrap_or(0);
        start..start
    }

    /// `value` with the line where it starts.
    #[must_use]
    pub fn placed<T>(&self, value: Spanned<T>) -> Placed<T> {
        Placed {
            place: Place {
                file: self.path.clone(),
                line: self.line(&value.span()),
            },
            value: value.into_inner(),
        }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        before.matches('\n').count() + 1
    }

    /// An error at `line`, counted from 1.
    #[must_use]
    pub fn error_at_line(&self, line: usize, message: impl fmt::Display) -> ConfigError {
        ConfigError {
            file: self.path.clone(),
            line,
            message: on_one_line(&message.to_string()),
        }
    }

    /// A message of serde about `span` in the words of this program.
    fn explain(&self, message: &str, span: &Range<usize>) -> String {
        let Some((name, known)) = unknown("unknown field `", message) else {
            return explain(message, self.key_before(span.start));
        };
        let said = nearest(name, &known).unwrap_or_else(|| {
            let misplaced = tables::misplaced(&self.text, span.start);
            format!("{}{misplaced}", all(&known))
        });
        format!("unknown key `{name}`; {said}")
    }

    /// The key whose value starts at `offset`, if both stand on one line.
    fn key_before(&self, offset: usize) -> Option<&str> {
        let before = self.text.get(..offset)?;
        let line = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
        let (left, _) = line.rsplit_once('=')?;
        let key = left.rsplit(['{', ',']).next()?.trim();
        let bare = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        (!key.is_empty() && key.chars().all(bare)).then_some(key)
    }
}

/// `message` without line breaks and control characters: what a file holds reaches a terminal by it.
fn on_one_line(message: &str) -> String {
    let rows: Vec<_> = message.lines().map(str::trim).collect();
    rows.join("; ").replace(char::is_control, "\u{fffd}")
}

/// Directory that holds `file`; of a bare name the current one.
#[must_use]
pub fn directory(file: &Path) -> &Path {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// A message of serde in the words of this program; `key` is the one whose value is at fault.
fn explain(message: &str, key: Option<&str>) -> String {
    if let Some((name, known)) = unknown("unknown variant `", message) {
        let key = key.map(|key| format!(" for `{key}`")).unwrap_or_default();
        let said = nearest(name, &known).unwrap_or_else(|| all(&known));
        return format!("unknown value `{name}`{key}; {said}");
    }
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("missing key {rest}");
    }
    // An enum may be written as a table, and those of our files are words alone.
    let message = match message.starts_with("wanted string or table")
        || message.starts_with("wanted exactly 1 element")
    {
        true => "expected a string".to_owned(),
        false => in_words_of_toml(message),
    };
    match key {
        Some(key) => format!("`{key}`: {message}"),
        None => message,
    }
}

/// serde names Rust's types where a reader expects TOML's.
fn in_words_of_toml(message: &str) -> String {
    const WORDS: [(&str, &str); 9] = [
        ("a sequence", "a list"),
        ("a map", "a table"),
        ("f64", "a number"),
        ("i64", "an integer"),
        ("u64", "an integer from 0 on"),
        ("path string", "a path"),
        ("a boolean", "true or false"),
        ("u16", "an integer from 0 to 65535"),
        ("u32", "an integer from 0 to 4294967295"),
    ];
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let known = WORDS
        .iter()
        .find(|(word, _)| *word == expected)
        .map(|(_, plain)| *plain);
    let plain = if expected.starts_with("struct ") {
        "a table"
    } else {
        known.unwrap_or(expected)
    };
    format!("{found}, expected {plain}")
}

/// Splits serde's "unknown field `x`, expected one of `a`, `b`" into `x` and `[a, b]`.
fn unknown<'a>(prefix: &str, message: &'a str) -> Option<(&'a str, Vec<&'a str>)> {
    let (name, rest) = message.strip_prefix(prefix)?.split_once('`')?;
    Some((name, rest.split('`').skip(1).step_by(2).collect()))
}

/// Words that suggest the nearest of the `known` names; `None` if none is near.
fn nearest(name: &str, known: &[&str]) -> Option<String> {
    /// Below this Jaro-Winkler similarity a suggestion confuses more than it helps.
    const NEAR: f64 = 0.8;
    let (score, candidate) = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score >= NEAR).then(|| format!("did you mean `{candidate}`?"))
}

/// Words that list all `known` names.
fn all(known: &[&str]) -> String {
    match known {
        [] => "no key is known here".to_owned(),
        known => format!("known here: `{}`", known.join("`, `")),
    }
}
