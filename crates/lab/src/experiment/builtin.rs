//! Experiments that are part of the program: the files of `scenarios/`, by their names.

use std::path::Path;

use bentpipe_config::Source;

use super::{Claims, Extent, Titles, file};

/// Tables of an experiment's file that say what others have found, and change nothing that is run.
const FINDINGS: [&str; 6] = [
    "published",
    "published_ratio",
    "published_order",
    "published_pairs",
    "published_rise",
    "explanation",
];

/// Name and text of each file.
macro_rules! experiments {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../scenarios/", $name, ".toml")))),*]
    };
}

const EXPERIMENTS: &[(&str, &str)] = &experiments![
    "beam" "behind-a-pep" "blocked" "calls" "cnes" "cnes-lan" "deep-pages" "designs" "draft-kuhn" "dssl" "fau" "http3" "les" "les-lan" "lossy-pages" "names" "picoquic" "policer" "prefetch"
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

/// Findings of others and titles in the program's own file of that name, if `text`, a file's, differs from it in these alone.
pub(super) fn words(name: &str, text: &str) -> Option<(Claims, Titles)> {
    let source = source(Path::new(name))?;
    if measured(text)? != measured(source.text())? {
        return None;
    }
    let own = file::read(&source, Extent::Full, &[]).ok()?;
    Some((own.claims, own.titles))
}

/// Part of an experiment's file that decides what is measured.
fn measured(text: &str) -> Option<toml::Table> {
    let mut file: toml::Table = text.parse().ok()?;
    file.retain(|table, _| !FINDINGS.contains(&table));
    let general = file.get_mut("experiment")?.as_table_mut()?;
    general.remove("not_built");
    for kind in ["link", "task"] {
        let Some(named) = file.get_mut(kind).and_then(toml::Value::as_table_mut) else {
            continue;
        };
        for (_, one) in named.iter_mut() {
            one.as_table_mut()?.remove("title");
        }
        // A link that has but a title is as one without a table.
        named.retain(|_, one| one.as_table().is_some_and(|table| !table.is_empty()));
    }
    file.retain(|_, table| table.as_table().is_none_or(|table| !table.is_empty()));
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    /// Works that published findings are from: the page counts its findings by these names.
    const WORKS: [&str; 11] = [
        "CNES, VPNs over satellites",
        "FAU, QUIC interop runner (arXiv 2202.08228)",
        "Huwyler et al., QPEP in the Real World (SpaceSec 2023)",
        "McKinney and Lambert, VPN over Satellite (Skycasters)",
        "Pavur et al., QPEP (2020)",
        "Pavur et al., QPEP (NDSS 2021)",
        "Roy-Chowdhury et al. (LES, DSSL)",
        "Computed from round trips",
        "draft-kuhn-quic-4-sat",
        "picoquic satellite_test.c",
        "wirelessmoves",
    ];

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

    #[test]
    fn a_work_has_one_name_in_all_experiments() {
        let mut works = BTreeSet::new();
        for (name, text) in EXPERIMENTS {
            let file: toml::Table = text.parse().expect(name);
            let findings = FINDINGS.iter().filter_map(|table| file.get(*table));
            let findings = findings.flat_map(|table| table.as_array().expect(name));
            let sources = findings.filter_map(|finding| finding.get("source")?.as_str());
            works.extend(sources.map(|source| source.split(": ").next().unwrap().to_owned()));
        }
        assert_eq!(works, WORKS.map(str::to_owned).into());
    }

    #[test]
    fn findings_are_the_programs_own_where_a_file_differs_in_these_alone() {
        let own = source(Path::new("skycasters")).unwrap();
        let (runs, findings) = own.text().split_once("[[published").unwrap();
        let known = words("skycasters", runs).unwrap();
        assert_eq!(known, words("skycasters", own.text()).unwrap());
        let (claims, titles) = &known;
        assert!(!claims.explanations.is_empty() && !findings.is_empty());
        assert_eq!(titles.link("s1"), "512 kbit/s");
        // Results that were measured before its link had a title.
        let untitled = runs.replace("[link.s1]\ntitle = \"512 kbit/s\"\n", "");
        assert_ne!(untitled, runs);
        assert_eq!(words("skycasters", &untitled), Some(known));
        let other = runs.replace("repeats = 5", "repeats = 6");
        assert_eq!(words("skycasters", &other), None);
        assert_eq!(words("cnes", runs), None);
        assert_eq!(words("nobody", runs), None);
    }
}
