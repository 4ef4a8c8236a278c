//! What the kernel's TCP sends with, of the sockets of `transport = "plain"`.

use std::net::{Ipv4Addr, TcpListener};

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::config::{self, Placed};
use crate::process::RunError;

/// One that this kernel has and that we may use.
#[derive(Debug, Clone)]
pub(crate) struct CongestionControl(String);

impl CongestionControl {
    /// The one that the configuration names, if it names one.
    ///
    /// # Errors
    /// The kernel does not have it, or does not let us have it.
    pub(crate) fn find(
        wanted: Option<&Placed<config::CongestionControlName>>,
    ) -> Result<Option<Self>, RunError> {
        let Some(wanted) = wanted else {
            return Ok(None);
        };
        let name = wanted.0.as_str();
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        set(&SockRef::from(&socket), name).map_err(|error| RunError::Privilege {
            place: wanted.place.clone(),
            fault: format!(
                "TCP cannot send with `{name}`: {error}; `sysctl net.ipv4.tcp_available_congestion_control` lists what there \
                 is, `modprobe tcp_{name}` may load it, and what `tcp_allowed_congestion_control` lacks needs CAP_NET_ADMIN"
            ),
        })?;
        Ok(Some(Self(name.to_owned())))
    }

    /// Has a connected socket send with it.
    pub(crate) fn apply(&self, socket: &TcpStream) {
        if let Err(error) = set(&SockRef::from(socket), &self.0) {
            tracing::debug!("cannot send with {}: {error}", self.0);
        }
    }
}

#[cfg(target_os = "linux")]
fn set(socket: &SockRef<'_>, name: &str) -> std::io::Result<()> {
    socket.set_tcp_congestion(name.as_bytes())
}

#[cfg(not(target_os = "linux"))]
fn set(_socket: &SockRef<'_>, _name: &str) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
