//! One TCP connection inside the tunnel: the bytes between its LAN socket and its QUIC stream.
//!
//! Each direction is a machine of its own: [`Sender`] holds what the LAN side wrote until the
//! scheduler lets it into the stream, [`Receiver`] puts back in order what the stream delivered.
//! [`CreditWindow`] and [`Budget`] decide how much the peer may send before the LAN side has taken
//! it; [`Scheduler`] decides whose turn it is, [`Outstanding`] what is said again after an outage.
//! Nothing here knows sockets, QUIC or the wall clock.

mod budget;
mod outstanding;
mod receiver;
mod scheduler;
mod sender;

pub use budget::{Budget, CreditWindow, Product};
pub use outstanding::Outstanding;
pub use receiver::{CreditExceeded, End, MAX_HEADER, Receiver};
pub use scheduler::{Scheduler, Ticket};
pub use sender::{SEND_BUFFER, Sender};
