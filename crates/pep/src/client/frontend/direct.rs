//! Connections of proxies that a rule sends past the tunnel or refuses, and the account of all rules.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
#[cfg(target_os = "linux")]
use std::rc::Weak;
use std::time::Duration;

use bentpipe_proto::tunnel::{Destination, Host, ReplyCode};
use bentpipe_tunnel::dial::{Found, Network, dial as connect};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::flow::{Answer, tell};
use super::names::{Lesson, Names};
#[cfg(target_os = "linux")]
use super::tproxy::Front;
use crate::config::{Action, Asked, FrontEnds, TCP};
use crate::net::dial;
use crate::net::names::{LookupPermits, look_up_by_system};
use crate::process;
use crate::relay::Outcome;
use crate::relay::split::{Far, Split, Splits};
use crate::status::RuleStatus;

/// Time that connecting may take, the lookup included.
const PATIENCE: Duration = Duration::from_secs(30);

/// Decisions of the rules with an action.
pub(super) struct Decisions {
    /// Place in the file, and what it says.
    rules: Vec<(usize, Action)>,
    /// Packets and bytes that the kernel has counted.
    kernel: RefCell<Vec<(u64, u64)>>,
    /// Connections of proxies.
    connections: Vec<Cell<u64>>,
    /// For connections past the tunnel.
    splits: OnceCell<Rc<Splits>>,
    mark: Option<u32>,
    lookups: LookupPermits,
    names: Names,
    /// Front end to tell of names' addresses, where anything is taken in.
    #[cfg(target_os = "linux")]
    front: OnceCell<Weak<Front>>,
}

impl Decisions {
    pub(super) fn new(config: &FrontEnds) -> Self {
        let rules: Vec<_> = config
            .actions()
            .map(|(place, _, action)| (place, action))
            .collect();
        Self {
            kernel: RefCell::new(vec![(0, 0); rules.len()]),
            connections: rules.iter().map(|_| Cell::new(0)).collect(),
            rules,
            splits: OnceCell::new(),
            mark: super::own_mark(config),
            lookups: LookupPermits::default(),
            names: Names::new(config),
            #[cfg(target_os = "linux")]
            front: OnceCell::new(),
        }
    }

    /// Knowledge of the rules that go by names.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// Place of the rule of this number among the `[[rule]]` of the file, from 1.
    pub(super) fn place(&self, rule: usize) -> usize {
        self.rules.get(rule).map_or(0, |(place, _)| place + 1)
    }

    /// From now on `front` is told of names' addresses.
    #[cfg(target_os = "linux")]
    pub(super) fn tell(&self, front: &Rc<Front>) {
        let _ = self.front.set(Rc::downgrade(front));
    }

    /// Has addresses count as their rules' names; true once they do.
    pub(super) async fn teach(&self, lessons: Vec<Lesson>) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(front) = self.front.get().and_then(Weak::upgrade)
            && !front.learn(&lessons).await
        {
            return false;
        }
        self.names.told(process::now(), &lessons);
        true
    }

    /// True if there is anything to count.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Takes what the kernel has counted.
    pub(super) fn set_kernel(&self, counts: Vec<(u64, u64)>) {
        *self.kernel.borrow_mut() = counts;
    }

    pub(super) fn report(&self) -> Vec<RuleStatus> {
        let kernel = self.kernel.borrow();
        let rules = self.rules.iter().zip(&self.connections).enumerate();
        rules
            .map(|(index, ((_, action), connections))| {
                let (packets, bytes) = kernel.get(index).copied().unwrap_or_default();
                RuleStatus {
                    rule: self.place(index),
                    action: *action,
                    packets,
                    bytes,
                    connections: connections.get(),
                }
            })
            .collect()
    }

    /// Decides where a proxy's connection goes; counted.
    pub(super) fn decide(
        &self,
        config: &FrontEnds,
        destination: &Destination,
        source: SocketAddr,
    ) -> Option<Action> {
        let source = source.ip().to_canonical();
        let (index, action) = self.ask(config, None, source, destination, TCP)?;
        let count = &self.connections[index];
        count.set(count.get() + 1);
        Some(action)
    }

    /// Asks where a connection or a datagram goes that came in by `interface`, or to a proxy, and which rule says so.
    pub(super) fn ask(
        &self,
        config: &FrontEnds,
        interface: Option<&str>,
        source: IpAddr,
        destination: &Destination,
        protocol: u8,
    ) -> Option<(usize, Action)> {
        let asked = Asked {
            interface,
            source: Some(source),
            host: &destination.host,
            port: destination.port,
            protocol,
        };
        let now = process::now();
        config.decide(&asked, |rule| match &destination.host {
            Host::Ip(address) => self.names.know(now, rule, address.to_canonical()),
            Host::Name(_) => false,
        })
    }

    /// Connects past the tunnel and relays to the end.
    pub(super) async fn carry(
        &self,
        socket: TcpStream,
        destination: &Destination,
        first: Bytes,
        answer: Answer,
    ) -> Outcome {
        let past = Past {
            mark: self.mark,
            lookups: &self.lookups,
        };
        let far = match connect(&past, destination, PATIENCE).await {
            Ok((far, _)) => far,
            Err(code) => return tell(socket, answer, code).await,
        };
        let mut socket = socket;
        let bound = far.local_addr().ok();
        if answer.accept(&mut socket, bound).await.is_err() {
            return Outcome::LanReset;
        }
        let split = Split {
            near: socket,
            far: Far {
                open: self.splits.get_or_init(Splits::new).begin(),
                socket: far,
                owed: first,
                read: Bytes::new(),
                replies: false,
            },
        };
        Box::pin(split.run()).await
    }
}

/// Network past the tunnel, where each address may be dialled.
struct Past<'a> {
    mark: Option<u32>,
    lookups: &'a LookupPermits,
}

impl Network for Past<'_> {
    type Connection = TcpStream;
    type Failure = ReplyCode;

    /// By this machine's own resolver: what goes past the tunnel is looked up there as well.
    async fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Found<'a> {
        let found = look_up_by_system(name, Some(self.lookups)).await;
        found.routed().at(port)
    }

    async fn check(&self, _: SocketAddr) -> Result<(), ReplyCode> {
        Ok(())
    }

    async fn open(&self, address: SocketAddr) -> Result<TcpStream, ReplyCode> {
        let opened = dial::open(address, self.mark).await;
        opened.map_err(|error| dial::code_of(&error))
    }

    async fn pause(&self, time: Duration) {
        sleep(time).await;
    }
}
