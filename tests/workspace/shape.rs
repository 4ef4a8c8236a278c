//! Rules of what is inside a crate: how large a type may be, over how many files its methods may spread, which folder may use
//! which. What exceeds a rule is named here with its reason; the lists may only become shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::sources::{assert_none, root, rust_files, shipped_code};

/// Fields that a type may have without a word.
const MOST_FIELDS: usize = 15;

/// Files over which the methods of a type may spread.
const MOST_FILES: usize = 3;

/// A file below `crates/`, a type in it, its fields, and why it has so many.
type Large = (&'static str, &'static str, usize, &'static str);

/// Why a type that serde reads or writes is as large as it is.
const FILE: &str = "one field for each key of a file, or of `status`";

/// Types with more fields than [`MOST_FIELDS`].
const LARGE: [Large; 5] = [
    ("link/src/scenario/return_link.rs", "DvbRcs2", 20, FILE),
    ("pep/src/config/client.rs", "QuicClientFile", 24, FILE),
    ("pep/src/config/pep.rs", "PepFile", 16, FILE),
    ("pep/src/config/server.rs", "QuicServerFile", 25, FILE),
    ("pep/src/status/tunnel.rs", "Tunnel", 22, FILE),
];

/// Folders below `crates/` and what is in them, from the lowest layer up: what stands in one may use what stands before it.
const INNER: [(&str, &[&[&str]]); 1] = [(
    "tunnel/src/transport",
    &[&["key"], &["event", "streams"], &["tunnel"], &["lane"]],
)];

/// Sources that ship, of all crates, by their path below `crates/`.
pub(crate) fn sources() -> Vec<(String, PathBuf)> {
    let crates = root().join("crates");
    let mut found: Vec<_> = rust_files(&crates)
        .into_iter()
        .filter_map(|file| {
            let inside = file.strip_prefix(&crates).ok()?.to_str()?.to_owned();
            let ships = inside.split('/').nth(1) == Some("src") && !shipped_code(&file).is_empty();
            ships.then_some((inside, file))
        })
        .collect();
    found.sort();
    found
}

/// The name that `line` defines or implements after `keyword`, if it begins with that at the margin.
pub(crate) fn named_after<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let rest = line.split_once(keyword)?;
    let margin = ["", "pub ", "pub(crate) ", "pub(super) "];
    let at_margin = margin.contains(&rest.0) || rest.0.starts_with("pub(in ");
    let name = match rest.1.strip_prefix('<') {
        Some(generic) => generic.split_once("> ")?.1,
        None => rest.1.trim_start(),
    };
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    at_margin.then_some(&name[..end.unwrap_or(name.len())])
}

/// Fields of each type that `code` defines.
fn types(code: &[(usize, String)]) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut inside = false;
    for (_, line) in code {
        if line.starts_with('}') {
            inside = false;
        } else if let Some(name) = named_after(line, "struct ").filter(|_| line.ends_with('{')) {
            inside = true;
            found.push((name.to_owned(), 0));
        } else if inside && let Some((_, fields)) = found.last_mut() {
            let field = line
                .strip_prefix("    ")
                .filter(|text| !text.starts_with([' ', '#']));
            *fields += usize::from(field.is_some_and(|text| text.contains(": ")));
        }
    }
    found
}

#[test]
fn large_types_are_few_and_named() {
    let mut faults = Vec::new();
    let mut known: BTreeMap<_, _> = LARGE
        .iter()
        .map(|(file, name, fields, _)| (format!("{file}: {name}"), *fields))
        .collect();
    for (inside, file) in sources() {
        for (name, fields) in types(&shipped_code(&file)) {
            let most = known.remove(&format!("{inside}: {name}"));
            if fields > most.unwrap_or(MOST_FIELDS) {
                faults.push(format!(
                    "crates/{inside}: {name} has {fields} fields: give parts of it owners"
                ));
            } else if most.is_some_and(|most| fields < most) {
                faults.push(format!(
                    "crates/{inside}: {name} has {fields} fields: say so in LARGE, or take it out"
                ));
            }
        }
    }
    let gone = known.keys();
    faults.extend(gone.map(|gone| format!("not found: crates/{gone}: see LARGE")));
    assert_none(&faults);
}

#[test]
fn the_methods_of_a_type_are_in_few_files() {
    let mut homes: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (inside, file) in sources() {
        let package = inside.split('/').next().unwrap_or_default();
        for (_, line) in shipped_code(&file) {
            let own = line.starts_with("impl") && !line.contains(" for ");
            if let Some(name) = named_after(&line, "impl").filter(|_| own) {
                let key = (package.to_owned(), name.to_owned());
                homes.entry(key).or_default().insert(inside.clone());
            }
        }
    }
    let mut faults = Vec::new();
    for ((package, name), files) in &homes {
        if files.len() > MOST_FILES {
            faults.push(format!(
                "crates/{package}: methods of {name} are in {} files, at most {MOST_FILES}: {files:?}",
                files.len()
            ));
        }
    }
    assert_none(&faults);
}

/// Modules that `code` of the module `own` names, as paths from the crate's root.
fn named_modules(code: &str, own: &[&str]) -> Vec<Vec<String>> {
    let split = |text: &str| {
        let text = text.split([' ', ';', ',', '{', '(', '<', ')']).next();
        let words = text.unwrap_or_default().split("::");
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        found.push(split(&code[at + start.len()..]));
    }
    let mut rest = code;
    while let Some(at) = rest.find("super::") {
        rest = &rest[at..];
        let mut up = 0;
        while let Some(after) = rest.strip_prefix("super::") {
            (up, rest) = (up + 1, after);
        }
        let base = &own[..own.len().saturating_sub(up)];
        let base = base.iter().map(|word| (*word).to_owned());
        found.push(base.chain(split(rest)).collect());
    }
    found
}

#[test]
fn inner_folders_use_only_those_below_them() {
    let mut faults = Vec::new();
    for (folder, layers) in INNER {
        let (package, place) = folder.split_once("/src/").expect("a folder of a crate");
        let layer = |name: &str| layers.iter().position(|layer| layer.contains(&name));
        let prefix = format!("{folder}/");
        let files = sources().into_iter();
        for (inside, file) in files.filter(|(inside, _)| inside.starts_with(&prefix)) {
            let module = Path::new(&inside[package.len() + "/src/".len()..]).with_extension("");
            let mut module: Vec<_> = module.iter().filter_map(|part| part.to_str()).collect();
            if module.last() == Some(&"mod") {
                module.pop();
            }
            let depth = place.split('/').count();
            let Some(own) = module.get(depth) else {
                continue;
            };
            let Some(level) = layer(own) else {
                faults.push(format!(
                    "crates/{folder}: {own} has no layer: add it to INNER"
                ));
                continue;
            };
            for (line, code) in shipped_code(&file) {
                for used in named_modules(&code, &module) {
                    let here = used.iter().take(depth).eq(place.split('/'));
                    let other = used.get(depth).filter(|other| here && other != own);
                    if other.is_some_and(|other| layer(other).is_some_and(|it| it >= level)) {
                        faults.push(format!(
                            "crates/{inside}:{line}: {own} must not use {}",
                            used.join("::")
                        ));
                    }
                }
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let own = ["transport", "lane", "queries"];
    let read = |code| {
        let paths = named_modules(code, &own).into_iter();
        paths.map(|path| path.join("::")).collect::<Vec<_>>()
    };
    assert_eq!(
        read("use super::super::key::FlowKey;"),
        ["transport::key::FlowKey"]
    );
    assert_eq!(read("use crate::transport::Tunnel;"), ["transport::Tunnel"]);
    let code = "fn f(_: super::Lane, _: crate::text::Text) {}";
    assert_eq!(read(code), ["text::Text", "transport::lane::Lane"]);
    let name = |line| named_after(line, "impl").map(str::to_owned);
    assert_eq!(name("impl<T: Copy> Queue<T> {").as_deref(), Some("Queue"));
    assert_eq!(name("    impl Inner {"), None);
    let lines = ["pub struct A {", "    pub a: u8,", "    b: Vec<u8>,", "}"];
    let code: Vec<_> = lines.map(|line| (0, line.to_owned())).into();
    assert_eq!(types(&code), [("A".to_owned(), 2)]);
}
