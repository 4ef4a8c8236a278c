//! Addresses of a name, of both families asked for side by side (RFC 8305 §3): a family whose answer is late holds nobody up.
//!
//! ```text
//!   AAAA ─┐            ┌─ known ──► dialled at once
//!         ├─► either ──┤
//!   A ────┘            └─ later ──► dialled after these, if none of them has answered by then
//! ```

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_tunnel::dial::{self, Found};
use dns_lookup::{AddrFamily, AddrInfoHints, SockType, getaddrinfo};
use tokio::select;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::process;

/// Time for which IPv4 addresses wait for IPv6 ones (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Questions about each address family that may be under way for one client, or past one tunnel. They occupy threads that all
/// clients share, some for many seconds.
const MAX_LOOKUPS: usize = 32;

/// Answer about one family: addresses at port 0, of which one of a link alone has the interface of that as its scope.
type FamilyAnswer = io::Result<Vec<SocketAddr>>;

/// Answer that may still come.
pub(crate) type Later<'a> = Pin<Box<dyn Future<Output = FamilyAnswer> + 'a>>;

/// Addresses of one name.
#[derive(Default)]
pub(crate) struct NameAddresses<'a> {
    /// Addresses to begin with, at port 0.
    pub(crate) known: Vec<SocketAddr>,
    /// Answer about the family that is late.
    pub(crate) later: Option<Later<'a>>,
    /// Reason why there are none.
    pub(crate) fault: Option<io::Error>,
}

impl From<Vec<IpAddr>> for NameAddresses<'_> {
    fn from(known: Vec<IpAddr>) -> Self {
        Self {
            known: at_no_port(known),
            ..Self::default()
        }
    }
}

impl<'a> NameAddresses<'a> {
    /// Addresses to dial at `port`.
    pub(crate) fn at(self, port: u16) -> Found<'a> {
        let later = self.later.map(|later| -> dial::Later<'a> {
            Box::pin(async move { at_port(later.await.unwrap_or_default(), port) })
        });
        Found::new(at_port(self.known, port), later)
    }

    /// Addresses that this machine has a route to.
    pub(crate) fn routed(mut self) -> Self {
        self.known.retain(|address| is_routed(*address));
        self.later = self.later.map(|later| -> Later<'a> {
            Box::pin(async move {
                let mut found = later.await?;
                found.retain(|address| is_routed(*address));
                Ok(found)
            })
        });
        self
    }
}

/// Addresses `found` for a name, each at `port`.
pub(super) fn at_port(mut found: Vec<SocketAddr>, port: u16) -> Vec<SocketAddr> {
    for address in &mut found {
        address.set_port(port);
    }
    found
}

/// Addresses `found` for a name, each at port 0.
pub(super) fn at_no_port(found: impl IntoIterator<Item = IpAddr>) -> Vec<SocketAddr> {
    let found = found.into_iter();
    found.map(|ip| SocketAddr::new(ip, 0)).collect()
}

/// True if this machine has a route to `address`, whatever its port.
pub(super) fn is_routed(mut address: SocketAddr) -> bool {
    // Any port will do but 0.
    address.set_port(9);
    process::source_towards(address).is_some()
}

/// Addresses of the first family that has any: IPv6 at once, IPv4 after [`RESOLUTION_DELAY`], and of both those of IPv6 first. Where the
/// first IPv6 address is not `usable`, they come last, and IPv4 is waited for.
pub(crate) async fn either<'a>(
    mut v6: Later<'a>,
    mut v4: Later<'a>,
    usable: impl Fn(SocketAddr) -> bool,
) -> NameAddresses<'a> {
    let first = |found: &FamilyAnswer| found.as_ref().ok()?.first().copied();
    let leads = |found: &FamilyAnswer| first(found).is_some_and(&usable);
    let begun = |found: FamilyAnswer, later: Later<'a>| NameAddresses {
        known: found.unwrap_or_default(),
        later: Some(later),
        fault: None,
    };
    select! {
        biased;
        found = &mut v6 => match leads(&found) {
            true => begun(found, v4),
            false => joined(v4.await, found),
        },
        found = &mut v4 => match first(&found) {
            None => joined(v6.await, found),
            Some(_) => match timeout(RESOLUTION_DELAY, &mut v6).await {
                Ok(other) if leads(&other) => joined(other, found),
                Ok(other) => joined(found, other),
                Err(_) => begun(found, v6),
            },
        },
    }
}

/// Both answers in this order.
fn joined<'a>(one: FamilyAnswer, other: FamilyAnswer) -> NameAddresses<'a> {
    let (mut known, mut fault) = (Vec::new(), None);
    for answer in [one, other] {
        match answer {
            Ok(found) => known.extend(found),
            Err(error) => fault = Some(error),
        }
    }
    fault = fault.filter(|_| known.is_empty());
    NameAddresses {
        known,
        later: None,
        fault,
    }
}

/// Questions to the system's library that may be under way for somebody, of each family apart: those about one that is never answered
/// keep nobody from asking about the other.
#[derive(Debug)]
pub(crate) struct LookupPermits {
    v6: Arc<Semaphore>,
    v4: Arc<Semaphore>,
}

impl Default for LookupPermits {
    fn default() -> Self {
        let [v6, v4] = [0, 1].map(|_| Arc::new(Semaphore::new(MAX_LOOKUPS)));
        Self { v6, v4 }
    }
}

/// Addresses of `name` as any program of this machine finds them. Each of the two questions occupies a thread for as long as the system's
/// library takes, which may be longer than anybody waits, and has one of the `permits` so long.
pub(crate) async fn look_up_by_system<'a>(
    name: &str,
    permits: Option<&LookupPermits>,
) -> NameAddresses<'a> {
    let one = |family: AddrFamily, permits: Option<&Arc<Semaphore>>| -> Later<'a> {
        let (name, permits) = (name.to_owned(), permits.cloned());
        Box::pin(async move {
            let permit = match permits {
                Some(permits) => permits.acquire_owned().await.ok(),
                None => None,
            };
            let found = spawn_blocking(move || {
                let _permit = permit;
                ask_system(&name, family)
            });
            found.await.map_err(io::Error::other)?
        })
    };
    let v6 = one(AddrFamily::Inet6, permits.map(|permits| &permits.v6));
    let v4 = one(AddrFamily::Inet, permits.map(|permits| &permits.v4));
    either(v6, v4, is_routed).await
}

fn ask_system(name: &str, family: AddrFamily) -> FamilyAnswer {
    let hints = AddrInfoHints {
        socktype: SockType::Stream.into(),
        address: family.into(),
        ..AddrInfoHints::default()
    };
    let found = getaddrinfo(Some(name), None, Some(hints))?;
    found.map(|one| Ok(one?.sockaddr)).collect()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::yield_now;

    use super::*;

    const NEVER: Option<u32> = None;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Answer with `texts` after it was asked for so many times in vain.
    fn answer(texts: &'static [&'static str], after: Option<u32>) -> Later<'static> {
        Box::pin(async move {
            match after {
                Some(times) => {
                    for _ in 0..times {
                        yield_now().await;
                    }
                }
                None => pending().await,
            }
            match texts.is_empty() {
                true => Err(io::ErrorKind::NotFound.into()),
                false => Ok(at_no_port(texts.iter().map(|text| address(text)))),
            }
        })
    }

    /// Addresses to begin with, and true if more may come.
    fn race(v6: Later<'static>, v4: Later<'static>, usable: bool) -> (Vec<IpAddr>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let raced = runtime.block_on(async {
            // What waits for ever fails here.
            let raced = either(v6, v4, |_| usable);
            timeout(Duration::from_secs(20), raced).await
        });
        let NameAddresses { known, later, .. } = raced.expect("an answer that is there is used");
        let known = known.iter().map(SocketAddr::ip);
        (known.collect(), later.is_some())
    }

    #[test]
    fn the_family_whose_answer_is_late_holds_nobody_up() {
        let [six, four] = [&["2001:db8::1"], &["192.0.2.1"]];
        let [one6, one4] = [six, four].map(|texts| address(texts[0]));
        let race = |v6, v4| race(answer(six, v6), answer(four, v4), true);
        assert_eq!(race(NEVER, Some(0)), (vec![one4], true));
        assert_eq!(race(Some(0), NEVER), (vec![one6], true));
        // IPv4 gives IPv6 a moment.
        assert_eq!(race(Some(1), Some(0)), (vec![one6, one4], false));
    }

    #[test]
    fn a_family_that_leads_nowhere_or_has_none_is_no_answer() {
        let [six, four]: [&[&str]; 2] = [&["2001:db8::1"], &["192.0.2.1"]];
        let [one6, one4] = [six, four].map(|texts| address(texts[0]));
        let at = |texts, after| answer(texts, Some(after));
        let unrouted = race(at(six, 0), at(four, 5), false);
        assert_eq!(unrouted, (vec![one4, one6], false));
        assert_eq!(race(at(&[], 0), at(four, 5), true), (vec![one4], false));
        assert_eq!(race(at(six, 100), at(&[], 0), true), (vec![one6], false));
        assert_eq!(race(at(&[], 0), at(&[], 0), true), (vec![], false));
    }

    #[test]
    fn the_systems_library_answers_for_each_family() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let found = runtime.block_on(look_up_by_system("127.0.0.1", None));
        assert_eq!(found.known, at_no_port([address("127.0.0.1")]));
        // As a name of one link is answered, such as those below `local`.
        let found = runtime.block_on(look_up_by_system("fe80::1%lo", None));
        let known: Vec<_> = found.known.iter().map(SocketAddr::to_string).collect();
        assert_eq!(known, ["[fe80::1%1]:0"]);
        let found = runtime.block_on(look_up_by_system("nobody.invalid", None));
        assert!(found.known.is_empty() && found.fault.is_some());
    }
}
