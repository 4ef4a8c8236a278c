//! Landlock: which paths the process reaches, and what it may run.
//!
//! Rules hold for inodes, so what is replaced by a rename (`resolv.conf`, a configuration) needs a rule for its directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::Access as _;
use landlock::{
    ABI, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
    make_bitflags, path_beneath_rules,
};

use super::Access;
use crate::command::search_path;

/// The programs that daemons start.
const PROGRAMS: [&str; 2] = ["nft", "ip"];

/// Paths that those and the C library read: libraries, tables of names, settings of the resolver, the kernel's tables. A name
/// server's daemon may keep what `resolv.conf` links to in /run.
const SYSTEM: [&str; 17] = [
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc",
    "/proc",
    "/sys",
    "/nix/store",
    "/gnu/store",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/connman",
    "/run/nscd",
    "/dev/urandom",
];

/// Paths that are written beside the configuration's: settings of the network, the device for packets, nothing at all.
const USED: [&str; 3] = ["/proc/sys/net", "/dev/net/tun", "/dev/null"];

/// POSIX semaphores and shared memory: libraries that are preloaded into a daemon and its tools (libfaketime) keep theirs
/// here, and end a tool that cannot open them.
const SHARED: &str = "/dev/shm";

/// Settings of the network, kept open: a rule holds for an inode, and procfs makes a new one for a directory that nobody uses.
static SETTINGS: OnceLock<Option<File>> = OnceLock::new();

/// Extent to which the file system is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// All that is asked for is in force.
    Enforced,
    /// The part that this kernel can do is in force.
    Partly,
    /// The kernel has no Landlock, or it is switched off.
    Unavailable,
}

/// Closes all but the system's paths and `paths`.
pub(super) fn close(paths: &[(PathBuf, Access)]) -> io::Result<Files> {
    SETTINGS.get_or_init(|| File::open(USED[0]).ok());
    let handled = AccessFs::from_all(ABI::V5);
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = Vec::new();
    rules.extend(SYSTEM.map(|path| (path.into(), rights(Access::Read))));
    rules.extend(USED.map(|path| (path.into(), rights(Access::Use))));
    rules.push((SHARED.into(), rights(Access::Write)));
    rules.extend(resolver_directories().map(|path| (path, rights(Access::Read))));
    rules.extend(
        paths
            .iter()
            .map(|(path, access)| (path.clone(), rights(*access))),
    );
    let programs = programs(&PROGRAMS);
    rules.extend(
        programs
            .into_iter()
            .map(|path| (path, AccessFs::Execute.into())),
    );
    let enforce = || {
        // Without the scope of signals root could still end every process of root's.
        let mut ruleset = Ruleset::default()
            .handle_access(handled)?
            .scope(Scope::Signal)?
            .create()?;
        for (path, access) in rules {
            // One that does not exist is left out.
            ruleset = ruleset.add_rules(path_beneath_rules([path], access))?;
        }
        ruleset.restrict_self()
    };
    let status = enforce().map_err(|error| io::Error::other(format!("Landlock: {error}")))?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Files::Enforced,
        RulesetStatus::PartiallyEnforced => Files::Partly,
        RulesetStatus::NotEnforced => Files::Unavailable,
    })
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    match access {
        Access::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
        Access::Use => {
            make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev | ReadDir})
        }
        Access::Sockets => make_bitflags!(AccessFs::{MakeSock | RemoveFile | ReadDir}),
        Access::Write => make_bitflags!(AccessFs::{
            ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | MakeSock | RemoveFile | Refer
        }),
    }
}

/// Directories of `resolv.conf` and `hosts`, if these are links.
fn resolver_directories() -> impl Iterator<Item = PathBuf> {
    let files = ["/etc/resolv.conf", "/etc/hosts"];
    let targets = files
        .into_iter()
        .filter_map(|file| fs::canonicalize(file).ok());
    targets.filter_map(|target| target.parent().map(Path::to_owned))
}

/// The files that have to be executable for `names` to run: they and their loaders. If one is a script, whatever it may call:
/// the whole system.
fn programs(names: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in std::env::split_paths(&search_path()) {
        for name in names {
            let Ok(program) = fs::canonicalize(directory.join(name)) else {
                continue;
            };
            match loader(&program) {
                Ok(Some(loader)) => found.push(loader),
                Ok(None) => {}
                Err(_) => return vec!["/".into()],
            }
            found.push(program);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The dynamic loader that `program` asks for; none if it is linked statically.
///
/// # Errors
/// It is no program in ELF.
fn loader(program: &Path) -> io::Result<Option<PathBuf>> {
    /// Headers and the loader's name stand at the beginning.
    const BEGINNING: u64 = 64 << 10;
    let mut bytes = Vec::new();
    File::open(program)?
        .take(BEGINNING)
        .read_to_end(&mut bytes)?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(io::Error::other("no program in ELF"));
    }
    Ok(elf_interpreter(&bytes).map(PathBuf::from))
}

/// PT_INTERP of a 64-bit little-endian file; of others `None`, and then what they are loaded by stays closed to them.
fn elf_interpreter(bytes: &[u8]) -> Option<&str> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, size: usize| {
        let field = bytes.get(at..at.checked_add(size)?)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)),
        )
    };
    let position = |at, size| usize::try_from(number(at, size)?).ok();
    let (table, entry, count) = (position(0x20, 8)?, position(0x36, 2)?, position(0x38, 2)?);
    let headers = (0..count).filter_map(|index| table.checked_add(entry.checked_mul(index)?));
    let header = headers
        .into_iter()
        .find(|header| number(*header, 4) == Some(PT_INTERP))?;
    let (offset, size) = (position(header + 0x08, 8)?, position(header + 0x20, 8)?);
    let name = bytes.get(offset..offset.checked_add(size)?)?;
    std::str::from_utf8(name.strip_suffix(b"\0")?).ok()
}
