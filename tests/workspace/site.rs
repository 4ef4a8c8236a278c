//! The pages hold together: links and their anchors exist, the site shows every page, and lines that a page quotes from log and
//! status are the program's own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Page that `bentpipe generate` writes for the site; the repository has no copy.
const GENERATED: &str = "docs/commands.md";
/// Shortest part of a quoted line that says anything, in bytes.
const TELLING: usize = 6;

/// Words that stand for values in quoted lines.
const VALUES: [&str; 7] = ["ADDRESS", "HOST", "NAME", "FILE", "PREFIX", "N ", "X "];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of the page `name`, a path from the root.
pub(crate) fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// All pages for readers, as paths from the root.
pub(crate) fn pages() -> Vec<String> {
    let mut found = Vec::new();
    files(&root().join("docs"), "md", &mut found);
    for entry in fs::read_dir(root()).expect("the repository") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    let name = |path: PathBuf| {
        let path = path.strip_prefix(root()).expect("below the root");
        path.to_str().expect("a name in UTF-8").to_owned()
    };
    found.into_iter().map(name).collect()
}

/// Adds the files below `directory` whose names end in `extension`.
fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// `text` without fenced blocks.
fn prose(text: &str) -> String {
    let parts = text.split("\n```").step_by(2);
    parts.collect::<Vec<_>>().join("\n")
}

/// Targets of the links in `text`.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = prose(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.flat_map(char::to_lowercase)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(anchor).collect()
}

/// The path that `target` names on the page `from`, from the root.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = Path::new(from)
        .parent()
        .into_iter()
        .flat_map(Path::components)
        .filter_map(|part| part.as_os_str().to_str())
        .collect();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.extend(part.to_str()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Why the link `target` of the page `from` leads nowhere.
fn fault(from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = match path {
        "" => from.to_owned(),
        path => resolve(from, path),
    };
    if to == GENERATED {
        return None;
    }
    // The site has pages, their pictures and licences, and no other files of the repository.
    let picture = to.starts_with("docs/") && to.ends_with(".svg");
    if !to.ends_with(".md") && !to.starts_with("LICENSE-") && !picture {
        return Some(format!("{from}: {target} is no page"));
    }
    if !root().join(&to).is_file() {
        return Some(format!("{from}: {target} does not exist"));
    }
    let known = anchor.is_empty() || anchors(&page(&to)).contains(anchor);
    (!known).then(|| format!("{from}: {to} has no heading for #{anchor}"))
}

#[test]
fn links_lead_to_pages_and_headings() {
    let mut faults = Vec::new();
    for name in pages() {
        let targets = links(&page(&name));
        faults.extend(targets.iter().filter_map(|target| fault(&name, target)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_site_shows_every_page_once() {
    let mut listed = links(&page("site/SUMMARY.md"));
    listed.sort_unstable();
    let mut wanted = pages();
    wanted.push(GENERATED.to_owned());
    wanted.sort_unstable();
    assert_eq!(listed, wanted);
}

/// The program's sources without comments: literals in one piece, with a NUL for each value that is put in.
fn sources() -> String {
    let mut found = Vec::new();
    files(&root().join("src"), "rs", &mut found);
    for krate in fs::read_dir(root().join("crates")).expect("crates") {
        files(
            &krate.expect("a crate").path().join("src"),
            "rs",
            &mut found,
        );
    }
    let mut joined = String::new();
    for file in found {
        let text = fs::read_to_string(file).expect("a source");
        for line in text.lines().map(str::trim) {
            if !line.starts_with("//") {
                // A literal goes on after a backslash, without what the next line is indented by.
                joined.push_str(line.strip_suffix('\\').unwrap_or(line));
                joined.push_str(if line.ends_with('\\') { "" } else { "\n" });
            }
        }
    }
    without_values(&joined.replace("\\\"", "\""))
}

/// `text` with a NUL for each `{…}` that holds no other.
fn without_values(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        kept.push_str(before);
        let end = after.find(['{', '}', '\n']);
        match end.filter(|end| after[*end..].starts_with('}')) {
            Some(end) => {
                kept.push('\0');
                rest = &after[end + 1..];
            }
            None => rest = after,
        }
    }
    kept + rest
}

/// What a quoted line says itself: the pieces between `…` and [`VALUES`].
fn pieces(line: &str) -> Vec<&str> {
    let mut pieces: Vec<&str> = line.split('…').collect();
    for value in VALUES {
        pieces = pieces
            .into_iter()
            .flat_map(|piece| piece.split(value))
            .collect();
    }
    let pieces = pieces.into_iter().map(str::trim);
    pieces.filter(|piece| piece.len() >= TELLING).collect()
}

/// Lines that a page quotes: those of blocks marked `log`, and the first cells of the table of the log.
fn quoted(text: &str) -> Vec<&str> {
    let blocks = text.split("```log\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let mut lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    if let Some((_, chapter)) = text.split_once("\n## Logs\n") {
        let chapter = chapter.split("\n## ").next().unwrap_or_default();
        let rows = chapter.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        lines.extend(cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)));
    }
    lines.retain(|line| !line.trim().is_empty());
    lines
}

#[test]
fn quoted_lines_are_the_programs_own() {
    let sources = sources();
    let (mut count, mut faults) = (0, Vec::new());
    for name in pages() {
        let text = page(&name);
        for line in quoted(&text) {
            count += 1;
            let pieces = pieces(line);
            let missing = pieces.iter().find(|piece| !sources.contains(**piece));
            faults.extend(missing.map(|piece| format!("{name}: nothing says `{piece}`")));
            assert!(!pieces.is_empty(), "{name}: {line} says nothing");
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count >= 60, "only {count} quoted lines were found");
}
