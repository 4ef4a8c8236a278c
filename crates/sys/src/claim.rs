//! One interception in a network namespace: who takes it holds a name that the kernel gives back when the process ends.
//!
//! The name is an abstract unix socket, which belongs to the network namespace as the table does. A file would bar clients
//! of other namespaces, and outlive a kill.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;

const NAME: &str = "bentpipe-client-interception";

/// The right of one client to intercept in its network namespace, held until it is dropped.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held, not read")] Option<UnixListener>);

impl Claim {
    /// Takes the name.
    ///
    /// # Errors
    /// `AddrInUse`: another client intercepts here; the text names its process.
    pub fn take() -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(NAME)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Self(Some(listener))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Self::taken(&address),
            Err(error) => Err(error),
        }
    }

    fn taken(address: &SocketAddr) -> io::Result<Self> {
        let holder = UnixStream::connect_addr(address);
        let holder = holder.and_then(|stream| Ok(socket_peercred(&stream)?));
        let who = match holder {
            // Anybody may take a name; only who may also change the table is another client.
            // This process has no second interception; what it was once given is void.
            Ok(holder) if holder.pid == rustix::process::getpid() => return Ok(Self(None)),
            Ok(holder) if !holder.uid.is_root() && holder.uid != rustix::process::geteuid() => {
                return Ok(Self(None));
            }
            Ok(holder) => format!(" (process {})", holder.pid.as_raw_nonzero()),
            Err(_) => String::new(),
        };
        let text = format!(
            "another bentpipe client{who} intercepts in this network namespace; stop it, or take its interfaces into one \
             configuration"
        );
        Err(io::Error::new(io::ErrorKind::AddrInUse, text))
    }
}
