//! What a daemon gives up before it reads its first packet: capabilities that it does not need, privileges that a program
//! it starts could gain, and the file system but for the paths that it names.
//!
//! ```text
//!   Sandbox { network, paths } ──enter──► bounding set, capabilities ──► Entered (for log and status)
//!                                         no_new_privs
//!                                         Landlock: paths, programs, signals
//! ```
//!
//! All of it holds for the calling thread and for whatever that starts later, threads and programs alike; so it has to be
//! entered while there is one thread. Kernels differ in what they can do: what is missing is told, not an error.

mod files;

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access as Probe, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, no_new_privs,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

pub use files::Files;

/// Right to a path and to all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Files are read and directories listed.
    Read,
    /// Files are made, read, written, renamed and removed.
    Write,
    /// Sockets are bound, renamed and removed; files stay out of reach.
    Sockets,
    /// A file that is there is read and written, such as a setting of the kernel or a device.
    Use,
}

/// Rights that a daemon still needs.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// The daemon configures the network: devices, routes, rules, marks (CAP_NET_ADMIN).
    pub network: bool,
    /// The daemon sends packets from addresses of others, as it does in resolvers' place (CAP_NET_RAW).
    pub raw: bool,
    /// Paths of its configuration. One that does not exist is left out.
    pub paths: Vec<(PathBuf, Access)>,
}

/// Restrictions that are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Names of the capabilities that are left, such as `net_admin`.
    pub capabilities: Vec<String>,
    /// No program that is started can gain privileges.
    pub no_new_privileges: bool,
    /// Extent to which the file system is closed.
    pub files: Files,
}

impl Sandbox {
    /// Enters it, for good.
    ///
    /// # Errors
    /// The kernel refuses what every kernel can do, or there are other threads, which it would not hold.
    pub fn enter(&self) -> io::Result<Entered> {
        if std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() > 1) {
            let fault = "cannot enter the sandbox: this process has several threads already";
            return Err(io::Error::other(fault));
        }
        self.enter_with_this_thread()
    }

    /// As [`Sandbox::enter`], for the calling thread and what it starts alone.
    ///
    /// # Errors
    /// The kernel refuses what every kernel can do.
    pub fn enter_with_this_thread(&self) -> io::Result<Entered> {
        // While nothing is given up yet: afterwards the answer would always be no.
        let overrides = self.needs_overrides()?;
        set_no_new_privs(true)?;
        // Before the capabilities go: with them goes the right to open the paths of others for their rules.
        let files = files::close(&self.paths)?;
        drop_capabilities(self.kept(overrides))?;
        Ok(Entered {
            capabilities: names(capabilities(None)?.effective),
            no_new_privileges: no_new_privs()?,
            files,
        })
    }

    fn kept(&self, overrides: bool) -> CapabilitySet {
        // Ports below 1024: DNS for the LAN, published ports; sockets are bound again when addresses change.
        let mut kept = CapabilitySet::NET_BIND_SERVICE;
        kept.set(CapabilitySet::NET_ADMIN, self.network);
        kept.set(CapabilitySet::NET_RAW, self.raw);
        kept.set(CapabilitySet::DAC_OVERRIDE, overrides);
        kept
    }

    /// True if some path belongs to another user, so that root reaches it by CAP_DAC_OVERRIDE alone.
    fn needs_overrides(&self) -> io::Result<bool> {
        const OVERRIDES: CapabilitySet =
            CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);
        let sets = capabilities(None)?;
        if !sets.effective.intersects(OVERRIDES) {
            return Ok(false);
        }
        let without = CapabilitySets {
            effective: sets.effective.difference(OVERRIDES),
            ..sets
        };
        set_capabilities(None, without)?;
        let needs = self.paths.iter().any(|(path, access)| {
            let wanted = match access {
                Access::Read => Probe::READ_OK,
                Access::Write | Access::Sockets | Access::Use => Probe::WRITE_OK,
            };
            is_refused(path, wanted)
        });
        set_capabilities(None, sets)?;
        Ok(needs)
    }
}

fn is_refused(path: &Path, wanted: Probe) -> bool {
    accessat(CWD, path, wanted, AtFlags::EACCESS) == Err(Errno::ACCESS)
}

/// Gives up all capabilities but `kept`; those for the network are handed on to the tools that are started (`nft`, `ip`),
/// whoever runs this.
fn drop_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for capability in (!kept).iter() {
            // The kernel may know fewer than we do.
            match remove_capability_from_bounding_set(capability) {
                Err(Errno::INVAL) => {}
                other => other?,
            }
        }
    }
    let handed_on = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    let left = CapabilitySets {
        effective: sets.effective & kept,
        permitted: sets.permitted & kept,
        inheritable: sets.permitted & kept & handed_on,
    };
    set_capabilities(None, left)?;
    for capability in left.inheritable.iter() {
        // Root's children get it anyway, and some service managers forbid this.
        let _ = configure_capability_in_ambient_set(capability, true);
    }
    Ok(())
}

fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names()
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::thread;

    use super::*;
    use crate::command::{run, tool};

    /// A directory of this test's, with `inside` and `outside` in it.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("bentpipe-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("inside")).unwrap();
            fs::create_dir_all(path.join("outside")).unwrap();
            fs::write(path.join("outside/secret"), "x").unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    const DENIED: Option<io::ErrorKind> = Some(io::ErrorKind::PermissionDenied);

    #[test]
    fn a_thread_reaches_what_it_named_and_nothing_else() {
        let place = Place::new("sandbox");
        let (inside, outside) = (place.0.join("inside"), place.0.join("outside"));
        let sandbox = Sandbox {
            network: true,
            raw: true,
            paths: vec![(inside.clone(), Access::Write)],
        };
        let work = thread::spawn(move || {
            let entered = sandbox.enter_with_this_thread().unwrap();
            assert!(entered.no_new_privileges);
            if entered.files == Files::Unavailable {
                eprintln!("no Landlock here: only capabilities are tried");
                return entered;
            }
            fs::write(inside.join("a.new"), "1").unwrap();
            fs::rename(inside.join("a.new"), inside.join("a")).unwrap();
            assert_eq!(fs::read(inside.join("a")).unwrap(), b"1");
            fs::remove_file(inside.join("a")).unwrap();
            assert_eq!(kind(fs::read(outside.join("secret"))), DENIED);
            assert_eq!(kind(fs::write(outside.join("new"), "1")), DENIED);
            assert_eq!(kind(fs::read_dir("/root")), DENIED);
            assert_eq!(
                kind(Command::new("sh").arg("-c").arg("true").status()),
                DENIED
            );
            fs::read("/etc/hosts").unwrap();
            fs::read("/proc/self/net/tcp").unwrap();
            // A thread of its own is held too, and so are the programs.
            let inner = outside.join("secret");
            let inner = thread::spawn(move || kind(fs::read(inner)));
            assert_eq!(inner.join().unwrap(), DENIED);
            run("ip", &["-V"]).unwrap();
            entered
        });
        let entered = work.join().unwrap();
        println!("{entered:?}");
        // It is this thread's own business.
        fs::read(place.0.join("outside/secret")).unwrap();
    }

    #[test]
    fn what_is_left_of_roots_capabilities_reaches_nft() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("root's capabilities: skipped, needs root");
            return;
        }
        let work = thread::spawn(|| {
            let entered = Sandbox {
                network: true,
                raw: true,
                ..Sandbox::default()
            }
            .enter_with_this_thread()
            .unwrap();
            assert_eq!(
                entered.capabilities,
                ["net_bind_service", "net_admin", "net_raw"]
            );
            // Needs CAP_NET_ADMIN in the program.
            let listed = tool("nft").args(["list", "tables"]).output().unwrap();
            assert!(listed.status.success(), "{listed:?}");
        });
        work.join().unwrap();
        let work = thread::spawn(|| {
            let entered = Sandbox::default().enter_with_this_thread().unwrap();
            assert_eq!(entered.capabilities, ["net_bind_service"]);
            // The program cannot get back what was given up.
            let listed = tool("nft").args(["list", "tables"]).output().unwrap();
            assert!(!listed.status.success(), "{listed:?}");
        });
        work.join().unwrap();
    }

    #[test]
    fn what_belongs_to_another_user_is_still_reached() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("another user's: skipped, needs root");
            return;
        }
        let place = Place::new("overrides");
        let theirs = place.0.join("inside");
        std::os::unix::fs::chown(&theirs, Some(65_534), None).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&theirs, mode).unwrap();
        let work = thread::spawn(move || {
            let entered = Sandbox {
                network: false,
                raw: false,
                paths: vec![(theirs.clone(), Access::Write)],
            }
            .enter_with_this_thread()
            .unwrap();
            assert_eq!(entered.capabilities, ["dac_override", "net_bind_service"]);
            fs::write(theirs.join("a"), "1").unwrap();
        });
        work.join().unwrap();
    }

    #[test]
    fn several_threads_are_refused() {
        let error = Sandbox::default().enter().unwrap_err();
        assert!(error.to_string().contains("several threads"), "{error}");
    }
}
