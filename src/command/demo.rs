//! `bentpipe demo`: the emulated satellite with and without bentpipe, one table.

use std::io::{self, Write};

use anyhow::Context;
use bentpipe_emulator::Stop;
use bentpipe_emulator::machine::{Tool, prepare};
use bentpipe_lab::demo::{Demo, DemoConfig, Progress};

use crate::cli;
use crate::exit::Failure;

/// Measures and prints; with `--keep`, stays.
pub(crate) fn run(options: &cli::Demo) -> Result<(), Failure> {
    // First of all: it may have to enter a user namespace, which a process with threads cannot.
    let standing = prepare(&[Tool::Ip, Tool::Nft])?;
    let stop = Stop::on_signals()?;
    let config = DemoConfig {
        bentpipe: std::env::current_exe().context("cannot tell where this program is")?,
        standing,
    };
    // Without a standard error there is nobody to tell.
    let mut say = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    let mut progress = Progress::new(&mut say);
    let mut demo = Demo::build(config, &mut progress)?;
    let report = demo.measure(&stop, &mut progress)?;
    if options.keep {
        let text = format!("\n{report}\n\n{}\nCtrl-C ends it.", demo.doors()?);
        // Without a reader nobody knows what stays.
        if super::deliver(&text)? {
            stop.forever();
        }
        return Ok(demo.finish().map(drop)?);
    }
    let reservation = demo.finish()?;
    super::print(&format!("\n{report}"))?;
    if let Some(reservation) = reservation {
        super::print(&format!("\n{reservation}"))?;
    }
    Ok(())
}
