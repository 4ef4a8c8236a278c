//! libFuzzer around one target, which the environment variable `FUZZ_TARGET` names; arguments are libFuzzer's.
//!
//! `make fuzz-long` compiles this with counters at every edge of the program and runs each target on its corpus
//! (`long.sh`). Its seeds and what the repository holds of its corpus are written into the directory `FUZZ_SEEDS` first.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;
use std::{env, fs};

use bentpipe_fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

/// The target of this process.
fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = env::var_os("FUZZ_TARGET").unwrap_or_default();
        let name = name.to_string_lossy();
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        TARGETS
            .iter()
            .find(|target| target.name == name)
            .unwrap_or_else(|| panic!("FUZZ_TARGET is `{name}`; one of {}", names.join(" ")))
    })
}

/// Gives libFuzzer valid inputs to start from.
fn write_seeds() {
    let Some(directory) = env::var_os("FUZZ_SEEDS") else {
        return;
    };
    let seeds = (target().seeds)();
    for (number, input) in target().corpus().iter().chain(&seeds).enumerate() {
        let file = Path::new(&directory).join(format!("input-{number}"));
        fs::write(&file, input).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

fuzz_target!(init: write_seeds(), |data: &[u8]| (target().run)(data));
