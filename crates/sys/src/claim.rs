//! Things that a network namespace has once, interception and a server's device and table: who takes one holds a name that the
//! kernel gives back when the process ends.
//!
//! The name is an abstract unix socket, which belongs to the network namespace as the table does. A file would bar daemons
//! of other namespaces, and outlive a kill.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;

/// Thing that one daemon of a network namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sole {
    /// A client's interception.
    Interception,
    /// A server's device and table.
    ServerNetwork,
}

impl Sole {
    fn name(self) -> &'static str {
        match self {
            Self::Interception => "bentpipe-client-interception",
            Self::ServerNetwork => "bentpipe-server-network",
        }
    }

    /// Fault that another process has it, with the mend; `who` names the process.
    fn fault(self, who: &str) -> String {
        match self {
            Self::Interception => format!(
                "another bentpipe client{who} intercepts in this network namespace; stop it, or take its interfaces into one \
                 configuration"
            ),
            Self::ServerNetwork => format!(
                "another bentpipe server{who} has the device and the table of this network namespace; stop it, or run one of \
                 the two in a network namespace of its own"
            ),
        }
    }
}

/// The right of one daemon to what its network namespace has once, held until it is dropped.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held, not read")] Option<UnixListener>);

impl Claim {
    /// Takes the name of `sole`.
    ///
    /// # Errors
    /// `AddrInUse`: another daemon has it here; the text names its process.
    pub fn take(sole: Sole) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(sole.name())?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Self(Some(listener))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Self::taken(sole, &address),
            Err(error) => Err(error),
        }
    }

    fn taken(sole: Sole, address: &SocketAddr) -> io::Result<Self> {
        let holder = UnixStream::connect_addr(address);
        let holder = holder.and_then(|stream| Ok(socket_peercred(&stream)?));
        let who = match holder {
            // Anybody may take a name; only who may also change the table is another daemon.
            // This process has no second one; what it was once given is void.
            Ok(holder) if holder.pid == rustix::process::getpid() => return Ok(Self(None)),
            Ok(holder) if !holder.uid.is_root() && holder.uid != rustix::process::geteuid() => {
                return Ok(Self(None));
            }
            Ok(holder) => format!(" (process {})", holder.pid.as_raw_nonzero()),
            Err(_) => String::new(),
        };
        Err(io::Error::new(io::ErrorKind::AddrInUse, sole.fault(&who)))
    }
}
