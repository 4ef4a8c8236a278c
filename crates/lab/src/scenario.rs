//! Scenarios by name or from a file.

use std::fs;
use std::ops::Range;

use bentpipe_link::{PRESETS, Scenario, preset};

/// A scenario that cannot be used; displays as `FILE:LINE: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadScenario(String);

impl std::fmt::Display for BadScenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadScenario {}

/// The preset of that name, or what the file says.
///
/// # Errors
/// There is neither, or what it says is no scenario.
pub fn load(name_or_file: &str) -> Result<Scenario, BadScenario> {
    if let Some(scenario) = preset(name_or_file) {
        return Ok(scenario);
    }
    let text = fs::read_to_string(name_or_file).map_err(|error| {
        let presets = PRESETS.join(", ");
        BadScenario(format!(
            "{name_or_file}: {error}; it must be a scenario file or one of {presets}"
        ))
    })?;
    let scenario: Scenario = toml::from_str(&text).map_err(|error| {
        let line = line_of(&text, error.span());
        let message = error.message().replace('\n', ", ");
        BadScenario(format!("{name_or_file}:{line}: {message}"))
    })?;
    scenario
        .link_config()
        .map_err(|error| BadScenario(format!("{name_or_file}: {error}")))?;
    Ok(scenario)
}

/// The line that a place is in, from 1.
fn line_of(text: &str, place: Option<Range<usize>>) -> usize {
    let start = place.map_or(0, |place| place.start);
    let before = text.as_bytes().get(..start).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count()
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
        loaded.map_err(|error| error.to_string().split_once("s.toml").unwrap().1.to_owned())
    }

    #[test]
    fn presets_and_files_are_found() {
        assert_eq!(load("geo").unwrap(), preset("geo").unwrap());
        assert_eq!(loaded(GOOD).unwrap().general.name, "x");
        let error = load("nosuch").unwrap_err().to_string();
        assert!(error.contains("one of geo, leo"), "{error}");
    }

    #[test]
    fn faults_are_told_with_their_place() {
        let error = loaded(&GOOD.replace("seed = 1", "seed = true")).unwrap_err();
        assert!(error.starts_with(":3: "), "{error}");
        // In tables that have a model, the place is the table.
        let error = loaded(&GOOD.replace("250 ms", "250 parsecs")).unwrap_err();
        assert!(
            error.starts_with(":4: ") && error.contains("250 parsecs"),
            "{error}"
        );
        let error = loaded(&GOOD.replace("10 Mbit/s", "0 Mbit/s")).unwrap_err();
        assert!(error.contains("[forward] bit_rate is zero"), "{error}");
        assert!(loaded("").unwrap_err().starts_with(":1: "));
    }
}
