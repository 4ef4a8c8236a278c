//! Rules of the workspace that the compiler does not hold: who may depend on whom, what pure means, where `unsafe`
//! may stand, and that every crate root shows its part of the data path.
//!
//! Clocks, environment variables and TLS verifiers are forbidden by `clippy.toml`.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::sources::{array, assert_none, packages, root, rust_files, shipped_code, text};

/// Every crate of the workspace, the others that it may use, and those that its tests may use besides. `bentpipe-testbed` is
/// in no middle column, so that nothing of it ships.
const ARROWS: [(&str, &[&str], &[&str]); 17] = [
    (
        "bentpipe",
        &["bentpipe-emulator", "bentpipe-lab", "bentpipe-pep"],
        &[
            "bentpipe-link",
            "bentpipe-sealed",
            "bentpipe-sys",
            "bentpipe-testbed",
            "bentpipe-tunnel",
            "bentpipe-units",
            "bentpipe-web",
        ],
    ),
    ("bentpipe-aqm", &["bentpipe-units"], &[]),
    ("bentpipe-config", &[], &[]),
    ("bentpipe-congestion", &["bentpipe-units"], &[]),
    (
        "bentpipe-emulator",
        &[
            "bentpipe-config",
            "bentpipe-link",
            "bentpipe-plot",
            "bentpipe-sys",
            "bentpipe-units",
        ],
        &["bentpipe-testbed"],
    ),
    (
        "bentpipe-lab",
        &[
            "bentpipe-config",
            "bentpipe-emulator",
            "bentpipe-link",
            "bentpipe-plot",
            "bentpipe-sys",
            "bentpipe-units",
        ],
        &["bentpipe-testbed"],
    ),
    ("bentpipe-link", &["bentpipe-aqm", "bentpipe-units"], &[]),
    (
        "bentpipe-pep",
        &[
            "bentpipe-config",
            "bentpipe-congestion",
            "bentpipe-plot",
            "bentpipe-proto",
            "bentpipe-sealed",
            "bentpipe-segments",
            "bentpipe-sys",
            "bentpipe-tunnel",
            "bentpipe-units",
            "bentpipe-web",
        ],
        &["bentpipe-testbed"],
    ),
    ("bentpipe-plot", &[], &[]),
    ("bentpipe-proto", &["bentpipe-aqm", "bentpipe-units"], &[]),
    ("bentpipe-sealed", &["bentpipe-proto"], &[]),
    ("bentpipe-segments", &[], &[]),
    ("bentpipe-sys", &[], &[]),
    (
        "bentpipe-testbed",
        &[
            "bentpipe-congestion",
            "bentpipe-emulator",
            "bentpipe-lab",
            "bentpipe-link",
            "bentpipe-proto",
            "bentpipe-sealed",
            "bentpipe-sys",
            "bentpipe-tunnel",
            "bentpipe-units",
        ],
        &[],
    ),
    (
        "bentpipe-tunnel",
        &["bentpipe-congestion", "bentpipe-proto", "bentpipe-units"],
        &["bentpipe-link", "bentpipe-testbed"],
    ),
    ("bentpipe-units", &[], &[]),
    ("bentpipe-web", &["bentpipe-proto"], &[]),
];

/// Crates without clock, environment, runtime, threads or sockets: `now` and a seeded generator are arguments.
const PURE: [&str; 9] = [
    "bentpipe-aqm",
    "bentpipe-congestion",
    "bentpipe-link",
    "bentpipe-proto",
    "bentpipe-sealed",
    "bentpipe-segments",
    "bentpipe-tunnel",
    "bentpipe-units",
    "bentpipe-web",
];

/// What the tunnel may use besides: the QUIC state machine, TLS, and what its keys and log lines need. None of them opens
/// anything by itself.
const TUNNEL_LIBRARIES: [&str; 6] = [
    "aws-lc-rs",
    "base64",
    "quinn-proto",
    "rustls",
    "tracing",
    "zeroize",
];

/// What formats of the tunnel may use besides: what wipes the random bytes of a key.
const PROTO_LIBRARIES: [&str; 1] = ["zeroize"];

/// What sealed carriers may use besides: AEAD and HKDF, and what wipes keys. Their random bytes are arguments, as is the time.
const SEALED_LIBRARIES: [&str; 2] = ["aws-lc-rs", "zeroize"];

/// What pages that are fetched ahead may use besides: a browser's reader of tags, and what unpacks pages.
const WEB_LIBRARIES: [&str; 4] = ["brotli-decompressor", "flate2", "html5ever", "zstd-safe"];

/// What code that is pure does not name: sockets, files, processes, threads and clocks.
const IMPURE: [&str; 11] = [
    "Instant::now",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "std::env",
    "std::fs",
    "std::process",
    "std::thread",
    "tokio",
];

/// Folders of crates, from the lowest layer up: a module may use what stands before its own layer, and nothing else of its
/// crate. Tests in modules may use anything.
const LAYERS: [(&str, &[&[&str]]); 3] = [
    (
        "lab",
        &[
            &["workload"],
            &["capture", "hostile"],
            &["contender"],
            &["demo", "experiment", "leaks"],
            &["results"],
            &["report", "runner"],
        ],
    ),
    (
        "tunnel",
        &[
            &["dial", "text"],
            &["transport"],
            &["engine", "relay"],
            &["lines"],
        ],
    ),
    (
        "pep",
        &[
            &["throttle"],
            &["complaint"],
            &["state"],
            &[
                "asked", "bucket", "device", "filler", "firewall", "keys", "tls",
            ],
            &["config"],
            &["status"],
            &["les", "shard", "sle_traffic", "wishes"],
            &["process"],
            &["les_keys", "relay"],
            &["trust", "web"],
            &[
                "authority",
                "certified",
                "congestion_control",
                "events",
                "kernel",
                "metrics",
                "page",
                "paths",
                "qlog",
                "reading",
                "sandbox",
                "service_manager",
            ],
            &["net", "reload", "sampler", "stop"],
            &["client", "origin", "segments", "server"],
            &["doctor"],
        ],
    ),
];

/// The libraries that those crates may use; none of them does any I/O.
const PURE_LIBRARIES: [&str; 10] = [
    "bytes",
    "domain",
    "httparse",
    "ipnet",
    "rand_core",
    "rand_pcg",
    "reed-solomon-simd",
    "serde",
    "serde_json",
    "thiserror",
];

/// What follows the word `unsafe` where it is code, not prose.
const UNSAFE_CODE: [&str; 7] = ["{", "(", "fn ", "impl", "trait ", "extern ", "_code"];

/// A dependency that only tests use.
fn is_for_tests(dependency: &Value) -> bool {
    text(dependency, "kind") == "dev"
}

#[test]
fn crates_use_only_those_below_them() {
    let mut faults = Vec::new();
    for package in packages() {
        let name = text(&package, "name");
        let Some((_, normal, tests)) = ARROWS.iter().find(|(known, ..)| *known == name) else {
            faults.push(format!("{name} has no arrows yet: add it to ARROWS"));
            continue;
        };
        let inside = array(&package, "dependencies")
            .iter()
            .filter(|dependency| !dependency["path"].is_null());
        for dependency in inside {
            let other = text(dependency, "name");
            let for_tests = is_for_tests(dependency) && tests.contains(&other);
            if !normal.contains(&other) && !for_tests {
                faults.push(format!("{name} must not depend on {other}"));
            }
        }
    }
    assert_none(&faults);
}

/// Packages that only `demo`, `emulate` and `lab` need.
const LAB_PACKAGES: [&str; 3] = ["bentpipe-emulator", "bentpipe-lab", "bentpipe-link"];

#[test]
fn the_daemon_without_the_lab_holds_nothing_of_it() {
    let tree = |features: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--package", "bentpipe"])
            .args(["--edges", "normal", "--prefix", "none"])
            .args(features)
            .current_dir(root())
            .output()
            .expect("cargo runs this test, so it can be run");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("cargo prints text");
        let packages = text.lines().filter_map(|line| line.split(' ').next());
        packages.map(str::to_owned).collect::<Vec<_>>()
    };
    let (whole, small) = (tree(&[]), tree(&["--no-default-features"]));
    for package in LAB_PACKAGES {
        let is_it = |known: &String| known == package;
        assert!(whole.iter().any(is_it), "the lab does not use {package}");
        assert!(!small.iter().any(is_it), "the small daemon holds {package}");
    }
}

#[test]
fn pure_crates_use_pure_libraries() {
    let mut faults = Vec::new();
    for package in packages() {
        let name = text(&package, "name");
        if !PURE.contains(&name) {
            continue;
        }
        let outside = array(&package, "dependencies")
            .iter()
            .filter(|dependency| dependency["path"].is_null() && !is_for_tests(dependency));
        for dependency in outside {
            let other = text(dependency, "name");
            let besides = match name {
                "bentpipe-proto" => &PROTO_LIBRARIES[..],
                "bentpipe-sealed" => &SEALED_LIBRARIES,
                "bentpipe-tunnel" => &TUNNEL_LIBRARIES,
                "bentpipe-web" => &WEB_LIBRARIES,
                _ => &[],
            };
            if !PURE_LIBRARIES.contains(&other) && !besides.contains(&other) {
                faults.push(format!(
                    "{name} is pure and must not depend on {other}; a library without I/O belongs in PURE_LIBRARIES"
                ));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn pure_crates_open_nothing_and_ask_no_clock() {
    let mut faults = Vec::new();
    for package in packages() {
        let name = text(&package, "name");
        if !PURE.contains(&name) {
            continue;
        }
        let folder = name.trim_start_matches("bentpipe-");
        for file in rust_files(&root().join("crates").join(folder).join("src")) {
            for (line, code) in shipped_code(&file) {
                if let Some(word) = IMPURE.iter().find(|word| code.contains(**word)) {
                    faults.push(format!(
                        "{}:{line}: {name} is pure and must not name {word}",
                        file.display()
                    ));
                }
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn folders_use_only_those_below_them() {
    let mut faults = Vec::new();
    for (name, layers) in LAYERS {
        let source = root().join("crates").join(name).join("src");
        let layer = |folder: &str| layers.iter().position(|layer| layer.contains(&folder));
        for file in rust_files(&source) {
            let inside = file.strip_prefix(&source).expect("a file of the crate");
            let first = inside.components().next().expect("a name").as_os_str();
            let folder = first.to_string_lossy();
            let folder = folder.trim_end_matches(".rs");
            if folder == "lib" {
                continue;
            }
            let Some(own) = layer(folder) else {
                faults.push(format!(
                    "crates/{name}: {folder} has no layer: add it to LAYERS"
                ));
                continue;
            };
            for (line, code) in shipped_code(&file) {
                for used in modules_named(&code).filter(|used| used != folder) {
                    if layer(&used).is_some_and(|other| other >= own) {
                        faults.push(format!(
                            "{}:{line}: {folder} must not use {used}",
                            file.display()
                        ));
                    }
                }
            }
        }
    }
    assert_none(&faults);
}

/// The modules that `code` names after `crate::`, in braces too.
fn modules_named(code: &str) -> impl Iterator<Item = String> + '_ {
    let word = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    code.match_indices("crate::").flat_map(move |(at, before)| {
        let after = &code[at + before.len()..];
        match after.strip_prefix('{') {
            Some(list) => list.split(", ").map(word).collect(),
            None => vec![word(after)],
        }
    })
}

#[test]
fn unsafe_stands_in_sys_alone() {
    let allowed = root().join("crates/sys/src");
    let mut faults = Vec::new();
    for file in ["benches", "crates", "fuzz", "src", "tests"]
        .into_iter()
        .flat_map(|directory| rust_files(&root().join(directory)))
        .filter(|file| !file.starts_with(&allowed) && !file.ends_with("tests/workspace/arrows.rs"))
    {
        let code = fs::read_to_string(&file).expect("a source file is UTF-8");
        for (index, line) in code.lines().enumerate() {
            if has_unsafe_code(line) {
                faults.push(format!(
                    "{}:{}: unsafe code belongs in crates/sys/src",
                    file.display(),
                    index + 1
                ));
            }
        }
    }
    assert_none(&faults);
}

/// Whether `line` holds unsafe code, or permits it.
fn has_unsafe_code(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("unsafe").any(|(at, word)| {
        let after = code[at + word.len()..].trim_start();
        UNSAFE_CODE.iter().any(|next| after.starts_with(next))
    })
}

#[test]
fn every_crate_root_draws_its_part_of_the_data_path() {
    let mut faults = Vec::new();
    for package in packages() {
        let roots = array(&package, "targets").iter().filter(|target| {
            array(target, "kind")
                .iter()
                .any(|kind| kind == "lib" || kind == "bin")
        });
        for file in roots.map(|target| text(target, "src_path")) {
            let code = fs::read_to_string(file).expect("cargo names existing roots");
            if !code.lines().any(|line| line == "//! ```text") {
                faults.push(format!(
                    "{file}: draw the crate's part of the data path in its `//!` page, after \"```text\""
                ));
            }
        }
    }
    assert_none(&faults);
}
