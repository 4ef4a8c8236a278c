//! Origins of flows, as the server's dialler finds them: addresses that answer, refuse, say nothing or are forbidden. What
//! dialling must come to, and by when, follows from what was planned for it.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug, Formatter};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::{Destination, ReplyCode};
use bentpipe_tunnel::dial::{Found, Network, dial};

use super::dice::Dice;

/// Time that dialling may take.
const PATIENCE: Duration = Duration::from_secs(4);

/// Head start of each address before the next is tried beside it (RFC 8305 §5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Time that the model's turns add to all steps of one dialling.
const SLACK: Duration = Duration::from_millis(400);

/// Most addresses that a name has here.
const MOST: u64 = 6;

const NAME: &str = "origin.example";

/// Conduct of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Connects(Duration),
    Refuses(Duration),
    Silent,
    Forbidden,
}

/// Plan of one dialling.
#[derive(Debug)]
struct Plan {
    destination: Destination,
    /// Time that the name takes to be resolved.
    resolves: Duration,
    addresses: Vec<(SocketAddr, Fate)>,
}

impl Plan {
    /// One address that connects at once.
    fn prompt() -> Self {
        Self::alone(443, Fate::Connects(Duration::ZERO))
    }

    fn alone(port: u16, fate: Fate) -> Self {
        let address = SocketAddr::new(address(0, false), port);
        Self {
            destination: Destination {
                host: address.ip().to_string().parse().expect("an address"),
                port,
            },
            resolves: Duration::ZERO,
            addresses: vec![(address, fate)],
        }
    }

    /// Mostly an address that answers, at times one that does not, or a name with several.
    fn random(dice: &mut Dice) -> Self {
        let port = 443;
        match dice.below(20) {
            0 => Self::alone(port, Fate::Refuses(brief(dice, 3_000))),
            1..5 => Self::alone(port, Fate::Connects(brief(dice, 3_000))),
            5 if dice.one_in(4) => Self::alone(0, Fate::Refuses(Duration::ZERO)),
            5..9 => Self::named(dice, port),
            _ => Self::alone(port, Fate::Connects(Duration::ZERO)),
        }
    }

    fn named(dice: &mut Dice, port: u16) -> Self {
        let resolves = brief(dice, 500);
        let addresses = (0..dice.below(MOST + 1)).map(|number| {
            let six = dice.one_in(2);
            let fate = match dice.below(8) {
                0..4 => Fate::Connects(brief(dice, 3_000)),
                4..6 => Fate::Refuses(brief(dice, 500)),
                6 => Fate::Silent,
                _ => Fate::Forbidden,
            };
            (SocketAddr::new(address(number, six), port), fate)
        });
        Self {
            addresses: addresses.collect(),
            destination: Destination {
                host: NAME.parse().expect("a name"),
                port,
            },
            resolves,
        }
    }

    fn fate(&self, address: SocketAddr) -> Fate {
        let mut known = self.addresses.iter();
        let known = known.find(|(known, _)| *known == address);
        known
            .unwrap_or_else(|| panic!("{address} is nobody's: {self:?}"))
            .1
    }

    /// Time after which an address that takes `own` is through, whichever of all it is.
    fn by(&self, own: Duration) -> Duration {
        let others = self.addresses.len().saturating_sub(1);
        self.resolves + HEAD_START * u32::try_from(others).expect("few") + own + SLACK
    }

    /// Holds an outcome, `took` after dialling began, to the plan.
    fn check(&self, took: Duration, outcome: Result<SocketAddr, ReplyCode>) {
        let fates = || self.addresses.iter().map(|(_, fate)| *fate);
        let connects = fates().filter_map(|fate| match fate {
            Fate::Connects(after) => Some(after),
            _ => None,
        });
        let fails = fates().filter_map(|fate| match fate {
            Fate::Refuses(after) | Fate::Connects(after) => Some(after),
            Fate::Forbidden => Some(Duration::ZERO),
            Fate::Silent => None,
        });
        let latest = match connects.min() {
            Some(first) => self.by(first),
            None if fates().all(|fate| fate != Fate::Silent) => {
                self.by(fails.max().unwrap_or_default())
            }
            None => PATIENCE + SLACK,
        };
        assert!(
            took <= latest.min(PATIENCE + SLACK),
            "dialled for {took:?}, {latest:?} at most: {self:?}"
        );
        let code = match outcome {
            Ok(address) => {
                let connects = matches!(self.fate(address), Fate::Connects(_));
                assert!(connects, "connected to {address}: {self:?}");
                return;
            }
            Err(code) => code,
        };
        let may_connect = fates().any(|fate| match fate {
            Fate::Connects(after) => self.by(after) < PATIENCE,
            _ => false,
        });
        assert!(!may_connect, "{code:?} although one connects: {self:?}");
        let said = match code {
            ReplyCode::Refused => fates().any(|fate| matches!(fate, Fate::Refuses(_))),
            ReplyCode::Denied => fates().any(|fate| fate == Fate::Forbidden),
            ReplyCode::NameNotFound => self.addresses.is_empty(),
            ReplyCode::TimedOut => took >= PATIENCE,
            _ => false,
        };
        assert!(said, "{code:?} after {took:?} that nobody said: {self:?}");
    }
}

fn brief(dice: &mut Dice, most_ms: u64) -> Duration {
    Duration::from_millis(dice.below(most_ms))
}

/// Address `number`, of IPv6 or not.
fn address(number: u64, six: bool) -> IpAddr {
    let last = u8::try_from(number + 1).expect("a small number");
    match six {
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into(),
        false => Ipv4Addr::new(192, 0, 2, last).into(),
    }
}

/// Origins of one plan, at the model's time.
struct Origins {
    plan: Plan,
    now: Cell<Instant>,
    /// Addresses that were permitted, and when last.
    permitted: RefCell<Vec<(SocketAddr, Instant)>>,
    opened: RefCell<Vec<SocketAddr>>,
}

impl Origins {
    async fn until(&self, time: Duration) {
        let due = self.now.get() + time;
        poll_fn(|_| match self.now.get() >= due {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl Network for Origins {
    type Connection = SocketAddr;
    type Failure = ReplyCode;

    async fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Found<'a> {
        assert_eq!((name, port), (NAME, self.plan.destination.port));
        self.until(self.plan.resolves).await;
        let addresses = self.plan.addresses.iter();
        let addresses: Vec<_> = addresses.map(|(address, _)| *address).collect();
        addresses.into()
    }

    async fn check(&self, address: SocketAddr) -> Result<(), ReplyCode> {
        if self.plan.fate(address) == Fate::Forbidden {
            return Err(ReplyCode::Denied);
        }
        let now = self.now.get();
        self.permitted.borrow_mut().push((address, now));
        Ok(())
    }

    async fn open(&self, address: SocketAddr) -> Result<SocketAddr, ReplyCode> {
        let checked = self.permitted.borrow().contains(&(address, self.now.get()));
        assert!(checked, "{address} is dialled and was not checked just now");
        let again = self.opened.borrow().contains(&address);
        assert!(!again, "{address} is dialled twice");
        self.opened.borrow_mut().push(address);
        match self.plan.fate(address) {
            Fate::Connects(after) => {
                self.until(after).await;
                Ok(address)
            }
            Fate::Refuses(after) => {
                self.until(after).await;
                Err(ReplyCode::Refused)
            }
            Fate::Silent | Fate::Forbidden => std::future::pending().await,
        }
    }

    async fn pause(&self, time: Duration) {
        self.until(time).await;
    }
}

type Dialled = Result<(SocketAddr, SocketAddr), ReplyCode>;

/// Dialling of one flow's origin, under way.
pub(super) struct Dialling {
    origins: Rc<Origins>,
    begun: Instant,
    future: Pin<Box<dyn Future<Output = Dialled>>>,
}

impl Debug for Dialling {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let of = (&self.origins.plan, self.begun);
        f.debug_tuple("Dialling").field(&of).finish()
    }
}

impl Dialling {
    /// Begins; an origin that is `prompt` is there at once.
    pub(super) fn begin(dice: &mut Dice, now: Instant, prompt: bool) -> Self {
        let plan = match prompt {
            true => Plan::prompt(),
            false => Plan::random(dice),
        };
        let origins = Rc::new(Origins {
            plan,
            now: Cell::new(now),
            permitted: RefCell::default(),
            opened: RefCell::default(),
        });
        let network = Rc::clone(&origins);
        Self {
            origins,
            begun: now,
            future: Box::pin(
                async move { dial(&*network, &network.plan.destination, PATIENCE).await },
            ),
        }
    }

    /// Code to answer the flow with, once there is one.
    pub(super) fn poll(&mut self, now: Instant) -> Option<ReplyCode> {
        self.origins.now.set(now);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(dialled) = self.future.as_mut().poll(&mut context) else {
            return None;
        };
        let took = now.saturating_duration_since(self.begun);
        let outcome = dialled.map(|(connection, address)| {
            assert_eq!(connection, address, "told to be connected elsewhere");
            address
        });
        self.origins.plan.check(took, outcome);
        Some(outcome.err().unwrap_or(ReplyCode::Ok))
    }
}
