//! The server's TCP port for sealed flows: who is there is found out on the main thread, before anything is dialled.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bentpipe_sealed::sle::{Acceptor, MAX_RECORD, PREFACE, Refusal};
use bytes::{Buf as _, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::sleep_until;

use super::{FreshFlow, SealedTunnels, shard_of};
use crate::config::SleListening;
use crate::net::listen::{accept, listen_each};
use crate::net::strangers::{Stranger, Strangers};
use crate::process::{self, RunError};
use crate::relay::prepare;

/// Flows that may wait for a shard to take them in.
const QUEUE: usize = 4096;

/// Bytes that are read before it is known who is there: preface and first record.
const FIRST_BYTES: usize = PREFACE + MAX_RECORD;

/// Listeners for outer connections, and the shards that they lead to.
pub(in crate::server) struct SleDoor {
    listeners: RefCell<Vec<TcpListener>>,
    tunnels: Arc<SealedTunnels>,
    shards: Vec<mpsc::Sender<FreshFlow>>,
    strangers: Rc<Strangers>,
}

/// Reason why there is no flow.
enum NotMet {
    Refused(Refusal),
    Lost(io::Error),
}

impl From<io::Error> for NotMet {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Has the kernel keep connections until they have said something: a client says all that is waited for right behind its SYN, so
/// that hundreds which begin at once take no place of a stranger.
fn defer(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = bentpipe_sys::socket::defer_accept(listener, bentpipe_sealed::sle::OPENING)
    {
        tracing::debug!("outer connections are taken in before they say anything: {error}");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}

impl SleDoor {
    /// Binds the addresses of `sle` for so many `shards`, which get what comes by the receivers; to be called inside a runtime.
    ///
    /// # Errors
    /// An address cannot be had.
    pub(in crate::server) fn open(
        sle: &SleListening,
        tunnels: &Arc<SealedTunnels>,
        shards: usize,
    ) -> Result<(Rc<Self>, Vec<mpsc::Receiver<FreshFlow>>), RunError> {
        let listeners = listen_each(&sle.addresses)?;
        for listener in &listeners {
            defer(listener);
        }
        let (shards, inboxes) = (0..shards).map(|_| mpsc::channel(QUEUE)).unzip();
        let door = Self {
            listeners: RefCell::new(listeners),
            tunnels: tunnels.clone(),
            shards,
            strangers: Strangers::new(),
        };
        Ok((Rc::new(door), inboxes))
    }

    /// Takes in connections; to be called inside a set of local tasks.
    pub(in crate::server) fn serve(self: &Rc<Self>) {
        for listener in self.listeners.take() {
            let door = self.clone();
            accept(listener, move |outer, peer| {
                door.admit(outer, peer);
                // Before the next one those that are in are heard: of a client's thousand connections at once each would else
                // be a stranger, and have its host's share used up.
                yield_now()
            });
        }
    }

    /// Finds out who is there, unless the host or its network has had its share.
    fn admit(self: &Rc<Self>, outer: TcpStream, peer: SocketAddr) {
        // Also a refusal is a reset.
        if prepare(&outer).is_err() {
            return;
        }
        let door = self.clone();
        let met = self.strangers.meet(peer, |stranger| async move {
            door.welcome(outer, peer, stranger).await;
        });
        if !met {
            self.tunnels.count_crowded();
            tracing::debug!(%peer, "too many outer connections of strangers");
        }
    }

    async fn welcome(&self, outer: TcpStream, peer: SocketAddr, stranger: Stranger) {
        match self.meet(outer).await {
            Ok(fresh) => {
                stranger.prove();
                let shard = self.shards.get(shard_of(fresh.accepted.id));
                if shard.is_none_or(|shard| shard.try_send(fresh).is_err()) {
                    self.tunnels.count_crowded();
                    tracing::debug!(%peer, "the shard takes in no sealed flow now");
                }
            }
            Err(NotMet::Refused(refusal)) => {
                self.tunnels.count(refusal);
                tracing::debug!(%peer, "outer connection refused: {refusal}");
            }
            Err(NotMet::Lost(error)) => {
                self.tunnels.count(Refusal::Late);
                tracing::debug!(%peer, "outer connection lost before its request: {error}");
            }
        }
    }

    /// Reads until the first record is open.
    async fn meet(&self, mut outer: TcpStream) -> Result<FreshFlow, NotMet> {
        let mut acceptor = Acceptor::new(process::now());
        let (mut unread, mut read) = (BytesMut::with_capacity(FIRST_BYTES), 0);
        loop {
            // From here on: what changes before this one waits is not missed.
            let changed = self.tunnels.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = process::now();
            let mut input = &unread[..];
            let pushed = acceptor.push(now, &mut input, &mut self.tunnels.associations());
            let left = input.len();
            unread.advance(unread.len() - left);
            if let Some(accepted) = pushed.map_err(NotMet::Refused)? {
                return Ok(FreshFlow {
                    outer: outer.into_std()?,
                    unread: unread.freeze(),
                    read,
                    accepted,
                });
            }
            let due = acceptor.deadline().unwrap_or(now);
            let room = FIRST_BYTES - left;
            let mut more = (&mut outer).take(room as u64);
            tokio::select! {
                count = more.read_buf(&mut unread), if room > 0 => match count? {
                    0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    count => read += count,
                },
                () = &mut changed => {}
                () = sleep_until(due.into()) => {
                    let due = acceptor.handle_timeout(process::now());
                    due.map_err(NotMet::Refused)?;
                }
            }
        }
    }
}
