//! Whether a client may reach an address: its policy, and what the kernel and the network say of the address.
//!
//! One for each shard. An address of which nothing is known may not be reached.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;

use thiserror::Error;

use super::nat64::{self, Translation, Translations};
use super::policy::{Denied, Policy};
use crate::config::Service;
use crate::process;
use crate::throttle::Throttle;

/// Reason why a destination may not be reached.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    /// The client has no right to.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The kernel did not say whether the address is this machine's own.
    #[error("whose address it is cannot be found out: {0}")]
    Unknown(#[from] io::Error),
    /// The resolvers were not asked yet whether a translator makes an IPv4 address of it; they are now.
    #[error("whether the network's NAT64 translates it is being found out")]
    Unsettled,
}

/// Decides for one shard.
pub(crate) struct Judge {
    own: RefCell<Own>,
    /// Counts changes of what is this machine's own.
    generation: Cell<u64>,
    translations: Translations,
    /// Throttle of the line that the kernel does not answer.
    told: Throttle,
}

impl Judge {
    pub(crate) fn new(translations: Translations) -> Self {
        Self {
            own: RefCell::new(Own::new()),
            generation: Cell::new(0),
            translations,
            told: Throttle::new(),
        }
    }

    /// Checks that a client with this `policy` may reach `service` of `address` now.
    pub(crate) fn check(
        &self,
        policy: &Policy,
        address: IpAddr,
        service: Service,
    ) -> Result<(), Refusal> {
        if let Some(known) = self.translations.known() {
            return self.check_as(policy, address, service, &known);
        }
        // Before anybody is asked: no query is sent for an address that is denied anyway.
        self.check_as(policy, address, service, &[])?;
        if !policy.may_be_translated(address) {
            return Ok(());
        }
        self.translations.want();
        // What is permitted whichever prefix there is need not wait for a resolver, which may be silent.
        match self.check_as(policy, address, service, &nat64::readings(address)) {
            Err(Refusal::Denied(_)) => Err(Refusal::Unsettled),
            verdict => verdict,
        }
    }

    /// Checks that a client may reach `address` where `translations` are those of the network.
    fn check_as(
        &self,
        policy: &Policy,
        address: IpAddr,
        service: Service,
        translations: &[Translation],
    ) -> Result<(), Refusal> {
        policy.check(address, service, translations)?;
        // The server's own addresses may be public, and are denied like private ones, by whatever name.
        let embedded = translations
            .iter()
            .filter_map(|known| known.embedded(address));
        for address in std::iter::once(address).chain(embedded.map(IpAddr::V4)) {
            if !policy.allows_own(address, service) && self.is_own(address)? {
                return Err(Denied::Own.into());
            }
        }
        Ok(())
    }

    /// Waits for what [`Refusal::Unsettled`] says is being found out.
    pub(crate) async fn settled(&self) {
        self.translations.settled().await;
    }

    fn is_own(&self, address: IpAddr) -> io::Result<bool> {
        let asked = self.own.borrow_mut().is_own(address);
        asked.inspect_err(|error| {
            if self.told.is_due(process::now()) {
                tracing::warn!(
                    "the kernel does not say whose {address} is ({error}): nothing is dialled until it does; \
                     this process needs AF_NETLINK and a free descriptor"
                );
            }
        })
    }

    /// A number that changes when what was found out earlier may have become wrong.
    pub(crate) fn generation(&self) -> u64 {
        if self.own.borrow_mut().has_changed() {
            self.generation.set(self.generation.get() + 1);
        }
        self.generation.get()
    }
}

/// Addresses that are this machine's, by the kernel's routing tables.
#[cfg(target_os = "linux")]
struct Own {
    query: Option<bentpipe_sys::reach::RouteQuery>,
    changes: Option<bentpipe_sys::reach::RouteChanges>,
}

#[cfg(target_os = "linux")]
impl Own {
    fn new() -> Self {
        use bentpipe_sys::reach::{RouteChanges, RouteQuery};

        Self {
            query: RouteQuery::open().ok(),
            changes: RouteChanges::open().ok(),
        }
    }

    fn is_own(&mut self, address: IpAddr) -> io::Result<bool> {
        use bentpipe_sys::reach::{Reach, RouteQuery};

        if let Some(query) = &mut self.query
            && let Ok(reach) = query.ask(address)
        {
            return Ok(reach == Reach::Own);
        }
        // The old socket is given up only for a new one: there may be no descriptor left.
        let query = self.query.insert(RouteQuery::open()?);
        Ok(query.ask(address)? == Reach::Own)
    }

    /// Without notices everything may have changed.
    fn has_changed(&mut self) -> bool {
        if self.changes.is_none() {
            self.changes = bentpipe_sys::reach::RouteChanges::open().ok();
            return true;
        }
        self.changes.as_ref().is_none_or(|changes| changes.take())
    }
}

/// Addresses that are this machine's: only to those can a socket be bound.
#[cfg(not(target_os = "linux"))]
struct Own;

#[cfg(not(target_os = "linux"))]
impl Own {
    const fn new() -> Self {
        Self
    }

    fn is_own(&mut self, address: IpAddr) -> io::Result<bool> {
        match std::net::UdpSocket::bind((address.to_canonical(), 0)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
            Err(error) => Err(error),
        }
    }

    const fn has_changed(&mut self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Nat64;

    #[test]
    fn what_the_networks_translator_makes_of_an_address_is_judged() {
        let translations = Translations::new(&Nat64::Discovered);
        let judge = Judge::new(translations.clone());
        let probe = ["2600:64::c000:aa".parse().expect("an address")];
        translations.learn(Some(&nat64::discover(&probe)));
        let check = |address: &str| {
            let address = address.parse().expect("an address");
            judge.check(&Policy::default(), address, Service::Port(443))
        };
        for inside in ["2600:64::7f00:1", "2600:64::a00:1", "2600:64::a9fe:a9fe"] {
            assert!(matches!(check(inside), Err(Refusal::Denied(_))), "{inside}");
        }
        // 8.8.8.8 by that prefix, and an address of another network.
        for outside in ["2600:64::808:808", "2600:65::7f00:1"] {
            assert!(check(outside).is_ok(), "{outside}");
        }
    }

    #[test]
    fn only_what_a_translator_might_lead_inside_waits_for_the_resolver() {
        let translations = Translations::new(&Nat64::Discovered);
        let judge = Judge::new(translations.clone());
        let check = |address: &str| {
            let address = address.parse().expect("an address");
            judge.check(&Policy::default(), address, Service::Port(443))
        };
        // 10.0.0.1 by a prefix of 96 bits, and 127.0.0.1 by one of 32.
        let doubtful = ["2600:64::a00:1", "2600:64:7f00:1::5"];
        for address in ["8.8.8.8", "2606:2800:220::34", "2a00:1450:4001:82a::200e"] {
            assert!(check(address).is_ok(), "{address}");
        }
        for address in doubtful {
            assert!(
                matches!(check(address), Err(Refusal::Unsettled)),
                "{address}"
            );
        }
        assert!(matches!(check("fd00::1"), Err(Refusal::Denied(_))));
        // The resolvers are silent.
        translations.learn(None);
        for address in doubtful {
            assert!(check(address).is_ok(), "{address}");
        }
    }

    /// Runs in a process of its own: the limit on open files holds for all threads of one.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_address_of_which_the_kernel_says_nothing_is_closed() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        if !bentpipe_testbed::in_own_process() {
            return;
        }
        let judge = Judge::new(Translations::new(&Nat64::Discovered));
        judge.own.borrow_mut().query = None;
        let none = Rlimit {
            current: Some(0),
            ..getrlimit(Resource::Nofile)
        };
        setrlimit(Resource::Nofile, none).expect("a limit may be lowered");
        let verdict = judge.check(&Policy::default(), [8, 8, 8, 8].into(), Service::Port(443));
        assert!(matches!(verdict, Err(Refusal::Unknown(_))), "{verdict:?}");
    }
}
