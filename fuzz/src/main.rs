//! `cargo run --release --manifest-path fuzz/Cargo.toml -- TARGET ROUNDS SEED`: one target for as long as you like.
//! With `-- TARGET HEX` it runs one input, such as the one printed by a failure.

use std::process::ExitCode;

use bentpipe_fuzz::{TARGETS, Target, bytes, driver};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if run(&args).is_some() {
        return ExitCode::SUCCESS;
    }
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!(
        "usage: bentpipe-fuzz TARGET ROUNDS SEED | TARGET HEX; targets: {}",
        names.join(" ")
    );
    ExitCode::from(2)
}

fn run(args: &[String]) -> Option<()> {
    let find =
        |name: &str| -> Option<&Target> { TARGETS.iter().find(|target| target.name == name) };
    match args {
        [name, rounds, seed] => driver::run(find(name)?, rounds.parse().ok()?, seed.parse().ok()?),
        [name, hex] => driver::one(find(name)?, &bytes(hex)?),
        _ => return None,
    }
    Some(())
}
