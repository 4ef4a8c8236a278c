//! Experiments that are part of the program: the files of `scenarios/`, by their names.

use std::path::Path;

use bentpipe_config::Source;

/// Name and text of each file.
macro_rules! experiments {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../scenarios/", $name, ".toml")))),*]
    };
}

const EXPERIMENTS: &[(&str, &str)] = &experiments![
    "beam" "behind-a-pep" "blocked" "calls" "cnes" "deep-pages" "designs" "draft-kuhn" "dssl" "fau" "http3" "les" "les-lan" "lossy-pages" "picoquic" "policer" "prefetch"
    "qpep-goodput" "qpep-leo" "qpep-pages" "qpep-plr" "qpep-snr" "qpep-streams" "qpep-tuning" "rain" "skycasters"
    "skycasters-rtt" "starlink"
];

/// Names of the experiments that are part of the program.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|(name, _)| *name)
}

/// Text of the experiment of that name.
pub(super) fn source(name: &Path) -> Option<Source> {
    let (name, text) = EXPERIMENTS
        .iter()
        .find(|(known, _)| Path::new(known) == name)?;
    Some(Source::new(Path::new(name), *text))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_file_of_scenarios_is_part_of_the_program() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut files: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|file| file.unwrap().path())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        assert_eq!(names().collect::<Vec<_>>(), files);
    }
}
