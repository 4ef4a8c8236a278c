//! Looks names of servers up, one lookup of a name at a time: a resolver without a network holds each for many seconds.
//!
//! A client that intercepts its own machine would take in the questions that the system's library asks, and answer them by the
//! tunnel that waits for the answer. So it asks the resolvers itself, with a mark.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::select;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_local};

use super::names::{self, NameAddresses};
use super::resolver::Resolver;
use crate::process;

/// Time that a caller waits for an answer; the lookup itself goes on.
const LOOKUP: Duration = Duration::from_secs(2);

/// Age from which on the answer of a lookup that nobody has waited for is old.
const OLD: Duration = Duration::from_secs(10);

/// Lookup that may have been begun for another caller.
struct UnderWay {
    began: Instant,
    /// Addresses of one family, while the other's answer is late.
    early: oneshot::Receiver<Vec<SocketAddr>>,
    /// Addresses that `early` has told.
    known: Vec<SocketAddr>,
    all: JoinHandle<io::Result<Vec<SocketAddr>>>,
}

impl UnderWay {
    /// True if the lookup has ended, and not just now.
    fn is_old(&self) -> bool {
        let age = process::now().saturating_duration_since(self.began);
        self.all.is_finished() && age > OLD
    }
}

/// Lookups of names.
#[derive(Default)]
pub(crate) struct Lookups {
    /// Lookups under way, by name.
    under_way: RefCell<BTreeMap<String, UnderWay>>,
    /// Asked before the system's library, whose questions are intercepted.
    resolver: Option<Rc<Resolver>>,
}

impl Lookups {
    /// Lookups of a client whose machine's questions are taken in, but for those with this mark; `None`: they are not.
    pub(crate) fn marked(mark: Option<u32>) -> Self {
        let resolver = |mark| Rc::new(Resolver::new(&[]).marked(Some(mark)));
        Self {
            resolver: mark.map(resolver),
            ..Self::default()
        }
    }

    /// The addresses of `host`, in the resolver's order; of one family alone where the other's answer is late. Whoever asks again then
    /// waits for that.
    pub(crate) async fn find(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.look_up(host, port, true).await
    }

    /// The addresses of `host`, of both families.
    pub(crate) async fn find_all(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.look_up(host, port, false).await
    }

    async fn look_up(&self, host: &str, port: u16, early: bool) -> io::Result<Vec<SocketAddr>> {
        let under_way = self.under_way.borrow_mut().remove(host);
        let under_way = under_way.filter(|lookup| !lookup.is_old());
        let mut lookup = under_way.unwrap_or_else(|| {
            let (tell, early) = oneshot::channel();
            let all = spawn_local(look_up(self.resolver.clone(), host.to_owned(), tell));
            UnderWay {
                began: process::now(),
                early,
                known: Vec::new(),
                all,
            }
        });
        let (found, ended) = select! {
            biased;
            all = &mut lookup.all => (all.map_err(io::Error::other)?, true),
            Ok(found) = &mut lookup.early, if early && !lookup.early.is_terminated() => {
                lookup.known.clone_from(&found);
                (Ok(found), false)
            }
            () = tokio::time::sleep(LOOKUP) => match early && !lookup.known.is_empty() {
                // Whoever asks again is not told less than before.
                true => (Ok(lookup.known.clone()), false),
                false => (Err(io::ErrorKind::TimedOut.into()), false),
            },
        };
        if !ended {
            self.under_way.borrow_mut().insert(host.to_owned(), lookup);
        }
        let found = names::at_port(found?, port);
        match found.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(found),
        }
    }
}

/// All addresses of `host`; `early` is told those of one family if the other's answer is late.
async fn look_up(
    resolver: Option<Rc<Resolver>>,
    host: String,
    early: oneshot::Sender<Vec<SocketAddr>>,
) -> io::Result<Vec<SocketAddr>> {
    let marked = match &resolver {
        Some(resolver) => resolver.find(&host).await,
        None => NameAddresses::default(),
    };
    let NameAddresses {
        mut known,
        later,
        fault,
    } = match marked.known.is_empty() {
        true => names::look_up_by_system(&host, None).await,
        false => marked,
    };
    if let Some(later) = later {
        // Nobody may be waiting any more.
        let _ = early.send(known.clone());
        known.extend(later.await.unwrap_or_default());
    }
    match fault {
        Some(fault) => Err(fault),
        None => Ok(known),
    }
}
