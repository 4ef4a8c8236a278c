//! Addresses of one name, tried abreast (RFC 8305): an address family that leads nowhere delays a connection by 250 ms.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use super::found::{Found, Later};

/// Head start of each attempt before the next one begins beside it (RFC 8305 §5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Addresses tried for one name: more would only prolong a failure, and be more sockets at a time.
const MAX_ADDRESSES: usize = 6;

/// Opens the first of `addresses` that answers. Families take turns; each attempt begins when the one before has failed, or has
/// been silent for a quarter of a second by `pause`, and those under way then go on. Addresses that come later are next. If
/// none succeeds, the failure is that of the last one to fail; `none` is the outcome without addresses.
///
/// # Errors
/// No address has answered.
pub async fn first<T, E, F, P>(
    addresses: impl Into<Found<'_>>,
    none: E,
    open: impl Fn(SocketAddr) -> F,
    pause: impl Fn(Duration) -> P,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
    P: Future<Output = ()>,
{
    let Found { known, mut later } = addresses.into();
    let mut waiting = by_turns(known, MAX_ADDRESSES);
    let (mut trying, mut begun) = (Vec::new(), 0);
    let mut outcome = Err(none);
    loop {
        if let Some(address) = waiting.pop_front() {
            begun += 1;
            trying.push(Box::pin(open(address)));
        }
        let (mut pause, mut silent) = (pin!(pause(HEAD_START)), false);
        loop {
            let head_start = (pause.as_mut(), &mut silent);
            match next(&mut trying, &mut later, head_start, waiting.is_empty()).await {
                Next::Ended(Ok(opened)) => return Ok(opened),
                Next::Ended(failed) => outcome = failed,
                Next::Came(found) => {
                    // However many have been tried, one of the other family is.
                    let places = MAX_ADDRESSES.saturating_sub(begun).max(1);
                    waiting = by_turns([found, waiting.into()].concat(), places);
                    if !trying.is_empty() {
                        continue;
                    }
                }
                Next::Silent => {}
                Next::Nothing => return outcome,
            }
            break;
        }
    }
}

/// What happens while addresses are tried.
enum Next<R> {
    /// An attempt ended.
    Ended(R),
    /// Addresses came that were late.
    Came(Vec<SocketAddr>),
    /// Nobody answered for the whole head start.
    Silent,
    /// Nothing is left that could happen.
    Nothing,
}

/// What happens next, of attempts, addresses that are late, and the end of a head start, unless it is the `last` of the addresses that
/// has it. The head start passes in any case.
async fn next<F: Future>(
    trying: &mut Vec<Pin<Box<F>>>,
    later: &mut Option<Later<'_>>,
    (mut pause, silent): (Pin<&mut impl Future<Output = ()>>, &mut bool),
    last: bool,
) -> Next<F::Output> {
    poll_fn(|context| {
        if let Poll::Ready(output) = settle(trying, context) {
            return Poll::Ready(Next::Ended(output));
        }
        if let Some(late) = later
            && let Poll::Ready(found) = late.as_mut().poll(context)
        {
            *later = None;
            return Poll::Ready(Next::Came(found));
        }
        *silent = *silent || pause.as_mut().poll(context).is_ready();
        match last {
            false if *silent => Poll::Ready(Next::Silent),
            true if trying.is_empty() && later.is_none() => Poll::Ready(Next::Nothing),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Output of `future`, or `None` if `pause` ends before it.
pub(super) async fn within<F: Future>(
    pause: impl Future<Output = ()>,
    future: F,
) -> Option<F::Output> {
    let (mut pause, mut future) = (pin!(pause), pin!(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => pause.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Takes out one attempt that has ended.
fn settle<F: Future>(trying: &mut Vec<Pin<Box<F>>>, context: &mut Context<'_>) -> Poll<F::Output> {
    for place in 0..trying.len() {
        if let Poll::Ready(output) = trying[place].as_mut().poll(context) {
            drop(trying.swap_remove(place));
            return Poll::Ready(output);
        }
    }
    Poll::Pending
}

/// At most `most` of `addresses`, with the families by turns, each in its own order; the first stays the first.
fn by_turns(addresses: Vec<SocketAddr>, most: usize) -> VecDeque<SocketAddr> {
    let leads = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (own, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == leads);
    let (mut own, mut other) = (own.into_iter(), other.into_iter());
    let mut turns = VecDeque::new();
    loop {
        let pair = [own.next(), other.next()];
        if pair == [None, None] || turns.len() >= most {
            turns.truncate(most);
            return turns;
        }
        turns.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{pending, ready};
    use std::task::Waker;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        let parse = |text: &&str| SocketAddr::new(text.parse().expect("an address"), 80);
        texts.iter().map(parse).collect()
    }

    #[test]
    fn families_take_turns_and_the_first_stays_first() {
        for (given, taken) in [
            (
                &["::1", "::2", "::3", "10.0.0.1"][..],
                &["::1", "10.0.0.1", "::2", "::3"][..],
            ),
            (
                &["10.0.0.1", "10.0.0.2", "::1"],
                &["10.0.0.1", "::1", "10.0.0.2"],
            ),
            (&["10.0.0.1"], &["10.0.0.1"]),
            (
                &["::1", "::2", "::3", "::4", "::5", "::6", "::7", "10.0.0.1"],
                &["::1", "10.0.0.1", "::2", "::3", "::4", "::5"],
            ),
            (&[], &[]),
        ] {
            assert_eq!(by_turns(addresses(given), MAX_ADDRESSES), addresses(taken));
        }
    }

    /// Runs `first` over `given`, of which those with `::` never answer, `fails` fail at once, and the others open.
    fn race(given: &[&str], fails: &[&str]) -> (Result<SocketAddr, String>, Vec<SocketAddr>) {
        race_with(addresses(given).into(), fails)
    }

    fn race_with(
        given: Found<'_>,
        fails: &[&str],
    ) -> (Result<SocketAddr, String>, Vec<SocketAddr>) {
        let (fails, begun) = (addresses(fails), RefCell::new(Vec::new()));
        let open = async |address: SocketAddr| {
            begun.borrow_mut().push(address);
            if fails.contains(&address) {
                return Err(address.to_string());
            }
            match address.is_ipv6() {
                true => pending().await,
                false => Ok(address),
            }
        };
        // Time passes at once: whoever is silent has been so for the whole head start.
        let outcome = {
            let none = "none".to_owned();
            let racing = pin!(first(given, none, open, |_| ready(())));
            match racing.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("nobody is left to answer"),
            }
        };
        (outcome, begun.into_inner())
    }

    #[test]
    fn what_comes_later_is_tried_next() {
        let later = |texts: &'static [&'static str]| -> Option<Later<'static>> {
            Some(Box::pin(async { addresses(texts) }))
        };
        let given = |known: &[&str], later| Found::new(addresses(known), later);
        let one = |text| addresses(&[text])[0];
        let (four, five) = ("10.0.0.1", "10.0.0.2");
        // Of another family, before the next one of the first.
        let (opened, begun) = race_with(given(&["::1", "::2"], later(&["10.0.0.1"])), &[]);
        assert_eq!((opened, begun.len()), (Ok(one(four)), 2));
        // All that was known has failed.
        let (opened, begun) = race_with(given(&[four], later(&["10.0.0.2"])), &[four]);
        assert_eq!((opened, begun.len()), (Ok(one(five)), 2));
        let (failed, _) = race_with(given(&[four], later(&[])), &[four]);
        assert_eq!(failed, Err("10.0.0.1:80".to_owned()));
        // Nobody waits for it.
        let (opened, _) = race_with(given(&[four], Some(Box::pin(pending()))), &[]);
        assert_eq!(opened, Ok(one(four)));
    }

    #[test]
    fn whoever_is_silent_or_fails_is_passed() {
        let [four, five] = ["10.0.0.1", "10.0.0.2"];
        let one = |text| addresses(&[text])[0];
        // Silent, so that the next begins beside it.
        let (opened, begun) = race(&["::1", "::2", four], &[]);
        assert_eq!((opened, begun.len()), (Ok(one(four)), 2));
        let (opened, _) = race(&["::1", four, five], &[four]);
        assert_eq!(opened, Ok(one(five)));
        // Nobody else is bothered once one has answered.
        let (opened, begun) = race(&[four, "::1"], &[]);
        assert_eq!((opened, begun.len()), (Ok(one(four)), 1));
        let (failed, begun) = race(&["::1", four], &["::1", four]);
        assert_eq!((failed, begun.len()), (Err("10.0.0.1:80".to_owned()), 2));
        assert_eq!(race(&[], &[]).0, Err("none".to_owned()));
    }
}
