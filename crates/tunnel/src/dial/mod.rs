//! From a destination to a connection: resolve, check each address, connect. Decisions alone: sockets, resolvers and clocks are
//! those of a [`Network`], so that dialling runs in virtual time as well.
//!
//! ```text
//!   destination ─► resolve ─► addresses ─► abreast.rs: check, open ─► connection
//! ```
//!
//! Every address is checked after resolution and just before it is dialled, so a name that changes
//! its mind between two lookups gains nothing.

pub mod abreast;
mod found;

pub use found::{Found, Later};

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};

/// Network as a dialler uses it, with the rights of whoever it dials for.
pub trait Network {
    /// Connection with a host.
    type Connection;
    /// Reason why there is none.
    type Failure: From<ReplyCode>;

    /// Addresses of `name`, each with the port to dial for `port`; none if it has none.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> impl Future<Output = Found<'a>>;

    /// Checks that `address` may be dialled now.
    fn check(&self, address: SocketAddr) -> impl Future<Output = Result<(), Self::Failure>>;

    /// Connects to `address`, which has just been checked.
    fn open(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = Result<Self::Connection, ReplyCode>>;

    /// Lets `time` pass.
    fn pause(&self, time: Duration) -> impl Future<Output = ()>;
}

/// Connects to `destination` within `patience`, name lookup included; says what it has connected to.
///
/// # Errors
/// The reason why the last of its addresses to fail has failed; [`ReplyCode::TimedOut`] if `patience` is over before that.
pub async fn dial<N: Network>(
    network: &N,
    destination: &Destination,
    patience: Duration,
) -> Result<(N::Connection, SocketAddr), N::Failure> {
    let connecting = connect(network, destination);
    let connected = abreast::within(network.pause(patience), connecting).await;
    connected.unwrap_or(Err(ReplyCode::TimedOut.into()))
}

async fn connect<N: Network>(
    network: &N,
    destination: &Destination,
) -> Result<(N::Connection, SocketAddr), N::Failure> {
    let port = destination.port;
    if port == 0 {
        return Err(ReplyCode::Refused.into());
    }
    let addresses = match &destination.host {
        Host::Ip(address) => vec![SocketAddr::new(*address, port)].into(),
        Host::Name(name) => network.resolve(name.as_str(), port).await,
    };
    abreast::first(
        addresses,
        ReplyCode::NameNotFound.into(),
        async |address| {
            network.check(address).await?;
            let opened = network.open(address).await;
            Ok((opened?, address))
        },
        |time| network.pause(time),
    )
    .await
}
