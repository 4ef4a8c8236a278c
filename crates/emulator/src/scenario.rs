//! Scenarios by name or from a file, with the files that they name.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use bentpipe_config::{ConfigError, Source};
use bentpipe_link::{Files, PRESETS, Scenario};

/// The largest file that a scenario may name: a trace of a week, many times over.
const MOST: u64 = 64 << 20;

/// A scenario that cannot be used; displays as one line, `FILE:LINE: message` where there is a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadScenario {
    /// No file and no preset has that name.
    Unknown(String),
    /// The file is at fault.
    File(ConfigError),
}

impl fmt::Display for BadScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(
                f,
                "{name}: there is no such file; name a scenario file or one of the presets {}",
                PRESETS.join(", ")
            ),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BadScenario {}

impl From<ConfigError> for BadScenario {
    fn from(error: ConfigError) -> Self {
        Self::File(error)
    }
}

/// The presets' names, one per line.
#[must_use]
pub fn presets() -> String {
    PRESETS.join("\n")
}

/// The preset of that name.
#[must_use]
pub fn preset(name: &str) -> Option<Scenario> {
    let text = bentpipe_link::preset(name)?;
    Source::new(Path::new(name), text).parse().ok()
}

/// The preset of that name, or what the file says, and the texts of the files that it names. What is returned describes
/// a link.
///
/// # Errors
/// There is neither, or what it says is no scenario.
pub fn load(name_or_file: &str) -> Result<(Scenario, Files), BadScenario> {
    load_from(name_or_file, Path::new(name_or_file))
}

/// As [`load`]; a file is meant as `source`, which names it, means it.
///
/// # Errors
/// As there.
pub fn load_beside(source: &Source, name_or_file: &str) -> Result<(Scenario, Files), BadScenario> {
    load_from(name_or_file, &source.resolve(Path::new(name_or_file)))
}

fn load_from(name_or_file: &str, path: &Path) -> Result<(Scenario, Files), BadScenario> {
    if let Some(scenario) = preset(name_or_file) {
        return Ok((scenario, Files::default()));
    }
    // A name without anything of a path is more likely a preset's, misspelt.
    let bare = Path::new(name_or_file);
    if !path.exists() && bare.extension().is_none() && bare.components().count() == 1 {
        return Err(BadScenario::Unknown(name_or_file.to_owned()));
    }
    Ok(load_text(&Source::read(path)?)?)
}

/// As [`load_beside`], with its text put through `change` first.
///
/// # Errors
/// As there, or `change`'s own.
pub fn load_changed(
    source: &Source,
    name_or_file: &str,
    change: impl FnOnce(&str) -> Result<String, ConfigError>,
) -> Result<(Scenario, Files), BadScenario> {
    // An unknown name is told as everywhere.
    load_beside(source, name_or_file)?;
    let path = source.resolve(Path::new(name_or_file));
    let text = match bentpipe_link::preset(name_or_file) {
        Some(text) => text.to_owned(),
        None => Source::read(&path)?.text().to_owned(),
    };
    Ok(load_text(&Source::new(&path, change(&text)?))?)
}

fn load_text(source: &Source) -> Result<(Scenario, Files), ConfigError> {
    let scenario: Scenario = source.parse()?;
    let files = read_files(source, &scenario)?;
    let model = scenario.build(&files);
    model.map_err(|error| source.error_at_key(error.key(), &error))?;
    Ok((scenario, files))
}

fn read_files(source: &Source, scenario: &Scenario) -> Result<Files, ConfigError> {
    let read = |named: std::path::PathBuf| {
        let path = source.resolve(&named);
        let text = read_bounded(&path).map_err(|error| {
            let (name, path) = (named.display(), path.display());
            let text = format!(
                "cannot read the file {name}: {error}; it belongs at {path}, relative to the scenario"
            );
            source.error_at_text(&named.to_string_lossy(), text)
        })?;
        Ok((named, text))
    };
    scenario.files().into_iter().map(read).collect()
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    if length > MOST {
        let text = format!("it has {length} bytes; at most {MOST} are possible");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[scenario]\nname = \"x\"\nseed = 1\n[orbit]\nmodel = \"constant\"\n\
        one_way_delay = \"250 ms\"\n[forward]\nstandard = \"cbr\"\nbit_rate = \"10 Mbit/s\"\n\
        [return]\nstandard = \"cbr\"\nbit_rate = \"2 Mbit/s\"\n";

    fn loaded(text: &str) -> Result<Scenario, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.toml");
        fs::write(&file, text).unwrap();
        let loaded = load(file.to_str().unwrap());
        let loaded = loaded.map(|(scenario, _)| scenario);
        loaded.map_err(|error| error.to_string().split_once("s.toml").unwrap().1.to_owned())
    }

    #[test]
    fn presets_and_files_are_found() {
        assert_eq!(load("geo").unwrap().0, preset("geo").unwrap());
        assert_eq!(loaded(GOOD).unwrap().general.name, "x");
        let error = load("nosuch").unwrap_err().to_string();
        assert!(error.contains("presets geo, "), "{error}");
        let error = load("no/such.toml").unwrap_err().to_string();
        assert!(error.starts_with("no/such.toml:1: cannot read"), "{error}");
    }

    #[test]
    fn faults_are_told_with_their_line() {
        let fault = |from: &str, to: &str| loaded(&GOOD.replace(from, to)).unwrap_err();
        for (from, to, expected) in [
            ("seed = 1", "seed = true", ":3: `seed`: invalid type"),
            (
                "250 ms",
                "250 parsecs",
                ":6: `one_way_delay`: `250 parsecs`",
            ),
            ("one_way_delay", "delay", ":6: unknown key `delay`"),
            ("10 Mbit/s", "0 Mbit/s", ":9: [forward] bit_rate is zero"),
            (
                "2 Mbit/s",
                "-2 Mbit/s",
                ":12: `bit_rate`: `-2 Mbit/s` is not",
            ),
            (
                "[return]",
                "[retrun]",
                ":10: unknown key `retrun`; did you mean `return`?",
            ),
        ] {
            let error = fault(from, to);
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(
            loaded("")
                .unwrap_err()
                .starts_with(":1: missing key `scenario`")
        );
    }
}
