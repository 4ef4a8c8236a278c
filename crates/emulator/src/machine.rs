//! What the machine must offer for namespaces, links and interception, and how to get it without being root.

use std::fmt;
use std::fs::OpenOptions;

use bentpipe_sys::command::{run_command, tool};
use bentpipe_sys::link;
use bentpipe_sys::netns::NetNs;
use bentpipe_sys::privilege::{enter_user_namespace, has_net_admin};

const TUN: &str = "/dev/net/tun";

/// A tool that has to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Links, addresses and routes.
    Ip,
    /// Interception.
    Nft,
}

/// As whom namespaces are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// With privileges on the machine itself: everybody sees the namespaces.
    Root,
    /// As root of a user namespace: they are reached through this process only.
    UserNamespace,
}

/// Things that are missing, one line each, with the mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(Vec<String>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n  and "))
    }
}

impl std::error::Error for Missing {}

/// Makes sure that namespaces and TUN devices can be made and that `tools` are there. Without privileges the process
/// moves into a user namespace. Call it before the first thread is started: afterwards the kernel refuses that.
///
/// # Errors
/// All that is missing, at once.
pub fn prepare(tools: &[Tool]) -> Result<Standing, Missing> {
    let missing = missing(tools);
    // Not entered in vain: that cannot be undone.
    if !missing.is_empty() {
        return Err(Missing(missing));
    }
    if has_net_admin() {
        return Ok(Standing::Root);
    }
    enter_user_namespace().map_err(|error| Missing(vec![error.to_string()]))?;
    Ok(Standing::UserNamespace)
}

/// [`prepare`] for work on namespaces that exist already, which a user namespace has no power over.
///
/// # Errors
/// All that is missing, at once.
pub fn require_root(tools: &[Tool]) -> Result<(), Missing> {
    let mut missing = missing(tools);
    if !has_net_admin() {
        missing.push("CAP_NET_ADMIN and CAP_SYS_ADMIN are missing; run as root".into());
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Missing(missing))
    }
}

/// Makes sure that `namespaces` exist, and `interfaces` in the calling thread's namespace.
///
/// # Errors
/// All that is missing, at once.
pub fn require_places(namespaces: &[String], interfaces: &[&str]) -> Result<(), Missing> {
    let namespaces = namespaces.iter().filter_map(|name| NetNs::open(name).err());
    let interfaces = interfaces.iter().filter_map(|name| link::index(name).err());
    let missing = namespaces.chain(interfaces);
    let missing: Vec<_> = missing.map(|error| error.to_string()).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Missing(missing))
    }
}

fn missing(tools: &[Tool]) -> Vec<String> {
    let mut missing: Vec<String> = tools.iter().filter_map(|tool| tool.missing()).collect();
    let tun = OpenOptions::new().read(true).write(true).open(TUN);
    if let Err(error) = tun {
        missing.push(format!(
            "{TUN}: {error}; as root: `modprobe tun; chmod 0666 {TUN}`"
        ));
    }
    missing
}

impl Standing {
    /// Words to put before a command, in a terminal of the same user, for it to run in the namespace called `name`.
    #[must_use]
    pub fn enter(self, name: &str) -> String {
        match self {
            Self::Root => format!("ip netns exec {name}"),
            // The names are files of a mount namespace, which is reached through this process.
            Self::UserNamespace => format!(
                "nsenter --target {} --user --mount --preserve-credentials nsenter --net=/run/netns/{name}",
                std::process::id()
            ),
        }
    }
}

impl Tool {
    fn missing(self) -> Option<String> {
        // A command that needs no privilege; the error names the package.
        let (program, argument) = match self {
            Self::Ip => ("ip", "-V"),
            Self::Nft => ("nft", "--version"),
        };
        let outcome = run_command(tool(program).arg(argument));
        outcome.err().map(|error| error.to_string())
    }
}
