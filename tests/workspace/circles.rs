//! Circles of files across folders: what stands in one folder and uses another must not be used by that in turn, on whatever
//! way. A circle is found where two modules of one parent reach each other and one of them is a folder; a folder and what it
//! holds are one module here, and so is `x.rs` with `x/`. What a parent and its own children take of each other is no circle.
//!
//! Paths are read as text: those that begin with `crate`, `super`, `self` or the name of a module that is in scope. Names that a
//! module re-exports are followed to the file that defines them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::sources::{assert_none, root, rust_files, shipped_code};

/// A module, as its path from the crate's root.
type Module = Vec<String>;

/// A crate, two modules of it (the first comes first in the alphabet) and why they use each other.
type Known = (&'static str, &'static str, &'static str, &'static str);

/// Circles that are there: at most three may be.
const KNOWN: [Known; 2] = [
    (
        "proto",
        "fec",
        "tunnel",
        "HELLO says how many repairs are wished for, and repairs are written as the tunnel's frames are",
    ),
    (
        "tunnel",
        "engine::endpoint",
        "engine::handshakes",
        "the share of first packets is stated where datagrams are taken, and counted where handshakes are",
    ),
];

/// Modules of a crate with the code that ships.
fn modules(source: &Path) -> BTreeMap<Module, String> {
    let files = rust_files(source).into_iter();
    let read = |file: std::path::PathBuf| {
        let code: Vec<_> = shipped_code(&file)
            .into_iter()
            .map(|(_, line)| line)
            .collect();
        let inside = file.strip_prefix(source).ok()?.with_extension("");
        let mut module: Module = inside
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let last = module.last().map(String::as_str);
        if matches!(last, Some("mod" | "lib" | "main")) {
            module.pop();
        }
        (!code.is_empty()).then(|| (module, code.join("\n")))
    };
    files.filter_map(read).collect()
}

/// Paths that a tree of `use` names.
fn tree(text: &str) -> Vec<Module> {
    let words = |text: &str| -> Module {
        let names = text.split("::").map(str::trim);
        let names = names.map(|name| name.split(' ').next().unwrap_or_default());
        names
            .filter(|name| !name.is_empty() && *name != "self")
            .map(str::to_owned)
            .collect()
    };
    let Some((before, list)) = text.split_once('{') else {
        let own = text.trim().starts_with("self::");
        let start = own.then(|| "self".to_owned()).into_iter();
        return vec![start.chain(words(text)).collect()];
    };
    let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
    let start = tree(before).remove(0);
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    let cuts = list.char_indices().chain([(list.len(), ',')]);
    for (at, c) in cuts {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !list[from..at].trim().is_empty() {
                    let rest = tree(&list[from..at]).into_iter();
                    found.extend(rest.map(|rest| [start.clone(), rest].concat()));
                }
                from = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// One crate's modules, with what each names.
struct Crate {
    modules: BTreeMap<Module, String>,
    /// Paths that a module names, from the crate's root.
    named: BTreeMap<Module, Vec<Module>>,
    /// What a module hands on under a name.
    handed: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Crate {
    fn read(modules: BTreeMap<Module, String>) -> Self {
        let mut it = Self {
            modules,
            named: BTreeMap::new(),
            handed: BTreeMap::new(),
        };
        for (own, code) in &it.modules {
            let (mut named, mut handed) = (Vec::new(), BTreeMap::new());
            let mut rest = String::new();
            for statement in code.split_inclusive(';') {
                let Some(at) = statement.rfind("use ").filter(|at| {
                    let before = statement[..*at].trim_end();
                    statement.ends_with(';')
                        && (before.is_empty() || before.ends_with([';', '}', ']', ')', 'b', '{']))
                }) else {
                    rest.push_str(statement);
                    continue;
                };
                let (before, paths) = statement.split_at(at);
                let public = before.rsplit('\n').next().unwrap_or_default();
                rest.push_str(before);
                for path in tree(&paths["use ".len()..paths.len() - 1]) {
                    let Some(path) = it.absolute(path, own) else {
                        continue;
                    };
                    if public.trim_start().starts_with("pub")
                        && let Some(name) = path.last()
                    {
                        handed.insert(name.clone(), path.clone());
                    }
                    named.push(path);
                }
            }
            named.extend(it.in_code(&rest, own, &named));
            it.named.insert(own.clone(), named);
            it.handed.insert(own.clone(), handed);
        }
        it
    }

    /// The path that `own` names, from the crate's root; `None` if it leads into another crate.
    fn absolute(&self, path: Module, own: &Module) -> Option<Module> {
        let mut base = own.clone();
        let mut words = path.into_iter().peekable();
        match words.peek()?.as_str() {
            "crate" => base.clear(),
            "super" | "self" => {}
            name => {
                base.push(name.to_owned());
                let known = self.modules.contains_key(&base);
                base.pop();
                known.then_some(())?;
            }
        }
        for word in words {
            match word.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => base.push(word),
            }
        }
        Some(base)
    }

    /// Paths of more than one word in `code`, which is not within a `use`.
    fn in_code(&self, code: &str, own: &Module, used: &[Module]) -> Vec<Module> {
        let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let texts = code.split(|c| !is_path(c)).filter(|it| it.contains("::"));
        let paths = texts.filter_map(|text| {
            let words: Module = text
                .split("::")
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect();
            let first = words.first()?.clone();
            let of_use = || {
                let named = used.iter().find(|path| path.last() == Some(&first));
                let module = named.filter(|path| self.modules.contains_key(*path))?;
                Some([module.as_slice(), &words[1..]].concat())
            };
            self.absolute(words.clone(), own).or_else(of_use)
        });
        paths.collect()
    }

    /// The module whose file defines what `path` leads to.
    fn home(&self, path: &[String], depth: usize) -> Module {
        let ends = (0..=path.len()).rev();
        let end = ends
            .into_iter()
            .find(|end| self.modules.contains_key(&path[..*end]));
        let (module, rest) = path.split_at(end.unwrap_or(0));
        let handed = rest.first().and_then(|name| {
            let of_module = self.handed.get(module)?;
            of_module.get(name).filter(|to| to.as_slice() != path)
        });
        match handed.filter(|_| depth < 6) {
            Some(to) => self.home(&[to.as_slice(), &rest[1..]].concat(), depth + 1),
            None => module.to_vec(),
        }
    }

    /// Which children of each parent use which others, and a pair of files that shows it.
    fn arrows(&self) -> BTreeMap<Module, BTreeMap<(String, String), String>> {
        let mut found: BTreeMap<Module, BTreeMap<_, _>> = BTreeMap::new();
        for (own, named) in &self.named {
            for path in named {
                let other = self.home(path, 0);
                let same = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (own.get(same), other.get(same)) {
                    let shown = format!("{} uses {}", own.join("::"), other.join("::"));
                    let arrows = found.entry(own[..same].to_vec()).or_default();
                    arrows.entry((a.clone(), b.clone())).or_insert(shown);
                }
            }
        }
        found
    }

    /// Whether a module has others inside.
    fn is_folder(&self, parent: &[String], name: &str) -> bool {
        let whole = [parent, &[name.to_owned()]].concat();
        let inside = |module: &Module| module.len() > whole.len() && module.starts_with(&whole);
        self.modules.keys().any(inside)
    }

    /// Pairs of modules in circles that touch a folder, each with the arrow that shows it.
    fn circles(&self) -> BTreeMap<(String, String), Vec<String>> {
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (parent, arrows) in self.arrows() {
            for ((a, b), shown) in &arrows {
                let touches = self.is_folder(&parent, a) || self.is_folder(&parent, b);
                if touches && reaches(&arrows, b, a) {
                    let full = |name: &String| [&parent, std::slice::from_ref(name)].concat();
                    let (a, b) = (full(a).join("::"), full(b).join("::"));
                    let pair = if a < b { (a, b) } else { (b, a) };
                    found.entry(pair).or_default().push(shown.clone());
                }
            }
        }
        found
    }
}

/// Whether `from` leads to `to` by `arrows`.
fn reaches(arrows: &BTreeMap<(String, String), String>, from: &str, to: &str) -> bool {
    let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(at) = next.pop() {
        let onwards = arrows.keys().filter(|(a, _)| a == at);
        next.extend(onwards.map(|(_, b)| b.as_str()).filter(|b| seen.insert(b)));
    }
    seen.contains(to)
}

#[test]
fn files_of_different_folders_use_each_other_one_way() {
    let mut known: BTreeSet<_> = KNOWN.iter().map(|(a, b, c, _)| (*a, *b, *c)).collect();
    let mut faults = Vec::new();
    let folders = std::fs::read_dir(root().join("crates")).expect("the workspace's crates");
    for folder in folders.map(|entry| entry.expect("readable").path()) {
        let name = folder.file_name().expect("a name").to_string_lossy();
        for ((a, b), shown) in Crate::read(modules(&folder.join("src"))).circles() {
            let is_it = |known: &&(&str, &str, &str)| **known == (&*name, a.as_str(), b.as_str());
            match known.iter().copied().find(|it| is_it(&it)) {
                Some(it) => drop(known.remove(&it)),
                None => faults.push(format!(
                    "crates/{name}: {a} and {b} are in a circle: {}",
                    shown.join("; ")
                )),
            }
        }
    }
    let gone = known.iter();
    faults.extend(gone.map(|gone| format!("no circle any more: {gone:?}: take it out of KNOWN")));
    assert_none(&faults);
}

#[test]
fn a_circle_is_found_on_every_way_that_leads_round() {
    let module = |path: &str, code: &str| {
        let path: Module = path.split("::").map(str::to_owned).collect();
        (path, code.to_owned())
    };
    let circles = |files: &[(&str, &str)]| {
        let files = files.iter().map(|(path, code)| module(path, code));
        let found = Crate::read(files.collect()).circles().into_keys();
        found.map(|(a, b)| format!("{a} {b}")).collect::<Vec<_>>()
    };
    let there = ("a::x", "use crate::b::{self, Thing as Other};\n");
    assert!(circles(&[there, ("b", "")]).is_empty());
    assert_eq!(circles(&[there, ("b", "use super::a::x::Y;\n")]), ["a b"]);
    let by_code = ("b", "fn f() {\n    crate::a::x::go();\n}\n");
    assert_eq!(circles(&[there, by_code]), ["a b"]);
    let round = [
        there,
        ("b", "use crate::c::Z;\n"),
        ("c", "use crate::a::x::Y;\n"),
    ];
    assert_eq!(circles(&round), ["a b", "a c"]);
    let handed = [
        ("a::x", "use crate::b::Thing;\n"),
        ("b", "pub(crate) mod y;\npub use y::Thing;\n"),
        ("b::y", "use crate::a::x::Y;\n"),
    ];
    assert_eq!(circles(&handed), ["a b"]);
    let own = [("a", "mod x;\nuse x::Y;\n"), ("a::x", "use super::Z;\n")];
    assert!(circles(&own).is_empty(), "a parent and its child");
}
