//! Lines that tell a waiting human what happens.

use std::time::{Duration, Instant};

/// Time between two lines about something that goes on and on.
const INTERVAL: Duration = Duration::from_secs(1);

/// Goal of the lines, and the time since which they count.
pub struct Progress<'a> {
    say: &'a mut (dyn FnMut(&str) + Send),
    start: Instant,
    told: Instant,
}

impl std::fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").finish_non_exhaustive()
    }
}

impl<'a> Progress<'a> {
    /// `say` is given each line, without its end.
    pub fn new(say: &'a mut (dyn FnMut(&str) + Send)) -> Self {
        let now = Instant::now();
        Self {
            say,
            start: now,
            told: now,
        }
    }

    /// Something begins or is done.
    pub fn step(&mut self, text: &str) {
        self.told = Instant::now();
        let time = self.start.elapsed().as_secs_f64();
        (self.say)(&format!("{time:6.1} s  {text}"));
    }

    /// Something goes on; told once a second.
    pub fn tick(&mut self, text: impl FnOnce() -> String) {
        if self.told.elapsed() >= INTERVAL {
            self.step(&text());
        }
    }
}
