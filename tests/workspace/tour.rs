//! The tour of the sources, `ARCHITECTURE.md`: what it names is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::site::page;

/// Folders that hold no sources.
const NO_SOURCES: [&str; 3] = ["target", ".git", "node_modules"];

/// Parts of paths that the tour leaves out.
const LEFT_OUT: [&str; 3] = ["crates", "src", ""];

/// Files and folders, each as a path without `crates` and `src`, and the words of each source.
#[derive(Default)]
struct Tree {
    paths: Vec<String>,
    words: BTreeMap<String, BTreeSet<String>>,
}

impl Tree {
    fn read(&mut self, directory: &Path, shown: &str) {
        for entry in fs::read_dir(directory).expect("a folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if NO_SOURCES.contains(&name.as_str()) {
                continue;
            }
            let shown = match name.as_str() {
                name if LEFT_OUT.contains(&name) => shown.to_owned(),
                name => format!("{shown}/{name}"),
            };
            if path.is_dir() {
                self.paths.push(shown.clone());
                self.read(&path, &shown);
                continue;
            }
            if let Some(module) = shown.strip_suffix(".rs") {
                self.paths.push(module.to_owned());
                let text = fs::read_to_string(&path).expect("a source");
                let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                let words = words.map(str::to_owned).collect();
                self.words.insert(module.to_owned(), words);
            }
            self.paths.push(shown);
        }
    }

    /// True if there is what is called `name`: a file, a folder, or a word of the sources.
    fn has(&self, name: &str) -> bool {
        let name = name.split('(').next().unwrap_or(name);
        end_of(name).is_none_or(|end| self.paths.iter().any(|path| path.ends_with(&end)))
            || self.words.values().any(|words| words.contains(name))
    }

    /// True if a source whose path ends in `file` has the word `name`; also if no source's path ends so.
    fn has_in(&self, file: &str, name: &str) -> bool {
        let Some(end) = end_of(file.trim_end_matches(".rs")) else {
            return true;
        };
        let sources = self.words.iter().filter(|(path, _)| path.ends_with(&end));
        let mut has = sources.map(|(_, words)| words.contains(name)).peekable();
        has.peek().is_none() || has.any(|has| has)
    }
}

/// The end of the path of what the tour calls `name`; none if nothing of it is left.
fn end_of(name: &str) -> Option<String> {
    let parts = name.split('/');
    let parts: Vec<_> = parts.filter(|part| !LEFT_OUT.contains(part)).collect();
    (!parts.is_empty()).then(|| format!("/{}", parts.join("/")))
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (within, after) = rest.split_once('}').unwrap_or((rest, ""));
    within
        .split(',')
        .map(|one| format!("{before}{one}{after}"))
        .collect()
}

/// What stands in backticks and is a name: no command, no example.
fn names(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with("```"));
    let spans = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name = |span: &&str| {
        let mut letters = span.chars();
        !span.starts_with('-') && letters.all(|c| c.is_alphanumeric() || "_/.{,}()-".contains(c))
    };
    spans.filter(is_name).collect()
}

/// Names in brackets behind a file, each with that file: of "`a.rs` (`b`: what, `c`)" (a.rs, b) and (a.rs, c).
fn bracketed(text: &str) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    for piece in text.split("` (`").collect::<Vec<_>>().windows(2) {
        let file = piece[0].rsplit('`').next().unwrap_or_default();
        let within = piece[1].split(')').next().unwrap_or_default();
        let names = within.split('`').step_by(2);
        let is_word = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
        pairs.extend(names.filter(is_word).map(|name| (file, name)));
    }
    pairs
}

#[test]
fn what_stands_in_brackets_behind_a_file_is_in_that_file() {
    let mut tree = Tree::default();
    tree.read(Path::new(env!("CARGO_MANIFEST_DIR")), "");
    let text = page("ARCHITECTURE.md");
    let elsewhere: Vec<_> = bracketed(&text)
        .into_iter()
        .filter(|(files, name)| !expanded(files).iter().any(|file| tree.has_in(file, name)))
        .collect();
    assert!(elsewhere.is_empty(), "ARCHITECTURE.md: {elsewhere:#?}");
    let wrong = "`client/frontend/tproxy.rs` (`serve`, `no_such_word`: which)";
    let found: Vec<_> = bracketed(wrong)
        .into_iter()
        .map(|(file, name)| tree.has_in(file, name))
        .collect();
    assert_eq!(found, [true, false]);
}

#[test]
fn what_the_tour_names_is_there() {
    let mut tree = Tree::default();
    tree.read(Path::new(env!("CARGO_MANIFEST_DIR")), "");
    let text = page("ARCHITECTURE.md");
    let missing: BTreeSet<String> = names(&text)
        .into_iter()
        .flat_map(expanded)
        .filter(|name| !tree.has(name))
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names {missing:#?}");
}

#[test]
fn a_name_that_is_gone_is_found() {
    let mut tree = Tree::default();
    tree.read(Path::new(env!("CARGO_MANIFEST_DIR")), "");
    let text = "`pep/net/{dial,gone}.rs`, `carriers()`, `bentpipe check FILE`";
    let missing: Vec<String> = names(text)
        .into_iter()
        .flat_map(expanded)
        .filter(|name| !tree.has(name))
        .collect();
    assert_eq!(missing, ["pep/net/gone.rs"]);
}
