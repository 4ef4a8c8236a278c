//! The memory of paths on disk: read at start, kept in step while tunnels run, written when one ends.
//!
//! What is remembered, for how long, and in which form is `congestion/paths`; this gives it a file and the wall clock. All
//! shards of a server share one memory, which they touch once a second, never on the data path. A file that cannot be
//! read or written costs one warning and what was learned.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bentpipe_congestion::Saved;
use bentpipe_congestion::paths::{MAX_FILE, PathKey, Paths};
use tokio::time::interval;

use crate::config::Role;
use crate::process::{self, PLAUSIBLE};
use crate::state::StateFile;
use bentpipe_tunnel::engine::Connection;

/// Time between two writes. What is learned meanwhile is lost if the process is killed; each write wears a router's flash.
const WRITE_EVERY: Duration = Duration::from_secs(120);

/// The end of a tunnel is written within this time: of several ends at once, once.
const WRITE_SOON: Duration = Duration::from_secs(2);

/// Memory of this daemon's paths.
pub(crate) struct PathMemory {
    file: StateFile,
    known: Mutex<Known>,
}

struct Known {
    paths: Paths,
    /// Instant at which to write what is new.
    due: Option<Instant>,
    /// Paths that were learned while the wall clock was not set.
    undated: HashSet<PathKey>,
    /// Wall clock as it stood then, and the instant at which it was read.
    unset: Option<(Duration, Instant)>,
}

impl Known {
    /// Takes in what a connection says of its path, while the wall clock shows `wall`.
    fn learn(&mut self, key: PathKey, saved: &Saved, (wall, now): (Duration, Instant)) {
        self.set_right((wall, now));
        if wall < PLAUSIBLE {
            self.undated.insert(key.clone());
            self.unset = Some((wall, now));
        } else {
            self.undated.remove(&key);
        }
        if self.paths.learn(key, saved, wall) {
            self.due.get_or_insert(now + WRITE_EVERY);
        }
    }

    /// Dates anew what was learned before the wall clock was set, once it is: else it would be as old as the clock, and forgotten.
    fn set_right(&mut self, (wall, now): (Duration, Instant)) {
        if wall < PLAUSIBLE {
            return;
        }
        let Some((before, at)) = self.unset.take() else {
            return;
        };
        let behind = wall.saturating_sub(before + now.saturating_duration_since(at));
        for key in self.undated.drain() {
            self.paths.correct(&key, behind);
        }
        self.due.get_or_insert(now + WRITE_EVERY);
    }
}

/// The wall clock, and the instant at which it was read.
fn clocks() -> (Duration, Instant) {
    (process::since_1970(), process::now())
}

impl PathMemory {
    /// Reads what a former process of this role left in `directory`.
    pub(crate) fn load(directory: &Path, role: Role) -> Self {
        let path = directory.join(format!("{role}-paths.json"));
        let file = StateFile::new(path, "paths");
        let mut paths = file.load(MAX_FILE, Paths::decode);
        paths.expire(process::since_1970());
        Self {
            file,
            known: Mutex::new(Known {
                paths,
                due: None,
                undated: HashSet::new(),
                unset: None,
            }),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a new connection what is known of its path.
    pub(crate) fn resume(&self, key: &PathKey, now: Instant, connection: &mut Connection) {
        let clocks = clocks();
        let mut known = self.known();
        known.set_right(clocks);
        let saved = known.paths.choose(key, clocks.0);
        drop(known);
        if let Some(saved) = saved {
            connection.resume(now, saved);
        }
    }

    /// Takes in what a connection says of its path.
    pub(crate) fn learn(&self, key: PathKey, saved: &Saved) {
        self.known().learn(key, saved, clocks());
    }

    /// A tunnel has ended: what is new is written soon.
    pub(crate) fn tunnel_ended(&self) {
        let soon = process::now() + WRITE_SOON;
        let mut known = self.known();
        known.due = known.due.map(|due| due.min(soon));
    }

    /// Writes when it is time, and when the directory was removed; never ends.
    pub(crate) async fn keep(&self) {
        let mut tick = interval(WRITE_SOON);
        loop {
            tick.tick().await;
            if self.file.restore_directory() {
                let now = process::now();
                self.known().due.get_or_insert(now);
            }
            let is_due = self.known().due.is_some_and(|due| due <= process::now());
            if is_due && let Some(bytes) = self.news() {
                self.file.replace_soon(bytes);
            }
        }
    }

    /// Writes what is new, before it returns.
    pub(crate) fn write(&self) {
        if let Some(bytes) = self.news() {
            self.file.replace_now(&bytes);
        }
    }

    /// The file's content, if there is something new.
    fn news(&self) -> Option<Vec<u8>> {
        let mut known = self.known();
        known.due.take()?;
        let clocks = clocks();
        known.set_right(clocks);
        known.due = None;
        known.paths.expire(clocks.0);
        Some(known.paths.encode())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use bentpipe_units::{BitRate, Ratio};

    use super::*;

    fn saved() -> Saved {
        Saved {
            rate: BitRate::megabits_per_second(10),
            rtt: Duration::from_millis(602),
            loss: Ratio::ZERO,
            age: Duration::ZERO,
        }
    }

    fn knows(memory: &PathMemory, key: &PathKey) -> bool {
        let now = process::since_1970();
        memory.known().paths.choose(key, now).is_some()
    }

    #[test]
    fn a_clock_that_is_set_makes_nothing_old() {
        let key = PathKey::new("a", "192.0.2.1".parse().expect("an address"));
        let mut known = Known {
            paths: Paths::default(),
            due: None,
            undated: HashSet::new(),
            unset: None,
        };
        let (begun, second) = (process::now(), Duration::from_secs(1));
        known.learn(key.clone(), &saved(), (100 * second, begun));
        let (wall, later) = (PLAUSIBLE + 1000 * second, begun + 60 * second);
        known.set_right((160 * second, later));
        assert!(known.unset.is_some(), "it is not set yet");
        known.set_right((wall, later));
        known.paths.expire(wall);
        let age = known.paths.choose(&key, wall).map(|saved| saved.age);
        assert_eq!(age, Some(60 * second));
        known.set_right((wall + second, later + second));
        let age = known.paths.choose(&key, wall).map(|saved| saved.age);
        assert_eq!(age, Some(60 * second), "once");
    }

    #[test]
    fn a_file_outlives_the_process_and_a_damaged_one_harms_nobody() {
        let directory = std::env::temp_dir().join(format!("bentpipe-paths-{}", std::process::id()));
        let file = directory.join("server-paths.json");
        let key = PathKey::new("a", "192.0.2.1".parse().expect("an address"));
        let memory = PathMemory::load(&directory, Role::Server);
        memory.learn(key.clone(), &saved());
        memory.write();
        let mode = fs::metadata(&file)
            .expect("it was written")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = PathMemory::load(&directory, Role::Server);
        assert!(knows(&again, &key));
        assert!(!knows(&PathMemory::load(&directory, Role::Client), &key));

        let whole = fs::read(&file).expect("it is ours");
        for bytes in [
            &whole[..whole.len() / 2],
            b"",
            &vec![b' '; 3 << 20],
            b"\xff\xfe",
        ] {
            fs::write(&file, bytes).expect("it is ours");
            let memory = PathMemory::load(&directory, Role::Server);
            assert!(!knows(&memory, &key));
            memory.learn(key.clone(), &saved());
            memory.write();
            assert!(knows(&PathMemory::load(&directory, Role::Server), &key));
        }
        fs::remove_file(&file).expect("it is ours");
        fs::create_dir(&file).expect("the directory is ours");
        let memory = PathMemory::load(&directory, Role::Server);
        memory.learn(key, &saved());
        memory.write();
        assert!(memory.file.is_at_fault());
        fs::remove_dir_all(directory).expect("the directory is ours");
    }
}
