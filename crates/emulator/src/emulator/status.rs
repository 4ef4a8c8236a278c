//! Tells whoever started the emulator how it goes: a status line while standard error is a terminal, and a line of JSON
//! per terminal on SIGUSR1.

use std::io::{self, IsTerminal as _, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::live::Live;
use crate::Stop;

const PERIOD: Duration = Duration::from_secs(1);
/// Back to the line's first column, and the rest of it erased.
const REWRITE: &str = "\r\x1b[K";

/// Shows `live` until `stop` is thrown, on a thread of its own.
///
/// # Errors
/// The signal cannot be caught, or no thread is left.
pub fn show(live: Live, stop: Stop) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime for the status")?;
    let mut asked = {
        let _inside = runtime.enter();
        signal(SignalKind::user_defined1()).context("cannot catch SIGUSR1")?
    };
    let follow = async move {
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let terminal = io::stderr().is_terminal();
        loop {
            tokio::select! {
                _ = tick.tick(), if terminal => rewrite(&live),
                _ = asked.recv() => dump(&live),
                _ = stop.stopped() => break,
            }
        }
        if terminal {
            say(REWRITE);
        }
    };
    thread::Builder::new()
        .name("status".into())
        .spawn(move || runtime.block_on(follow))
        .map(drop)
        .context("cannot start a thread for the status")
}

fn rewrite(live: &Live) {
    if let Some(snapshot) = live.latest() {
        say(&format!("{REWRITE}{}", snapshot.line()));
    }
}

fn dump(live: &Live) {
    if let Some(snapshot) = live.latest() {
        let lines: Vec<_> = snapshot.lines().collect();
        say(&format!("{}\n", lines.join("\n")));
    }
}

/// Without a standard error there is nobody to tell.
fn say(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
