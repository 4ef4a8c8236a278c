//! Addresses of one name, tried abreast (RFC 8305): an address family that leads nowhere delays a connection by 250 ms.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::select;
use tokio::time::sleep;

use super::names::{Later, NameAddresses};

/// Head start of each attempt before the next one begins beside it (RFC 8305 §5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Addresses tried for one name: more would only prolong a failure, and be more sockets at a time.
const MAX_ADDRESSES: usize = 6;

/// Opens the first of `addresses` that answers, at `port`. Families take turns; each attempt begins when the one before has failed, or
/// has been silent for [`HEAD_START`], and those under way then go on. What comes later is next. If none succeeds, the failure is that of
/// the last one to fail; `none` is the outcome without addresses.
pub(crate) async fn first<T, E, F>(
    addresses: NameAddresses<'_>,
    port: u16,
    none: E,
    open: impl Fn(SocketAddr) -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let NameAddresses {
        known, mut later, ..
    } = addresses;
    let mut waiting = by_turns(known, MAX_ADDRESSES);
    let (mut trying, mut begun) = (Vec::new(), 0);
    let mut outcome = Err(none);
    loop {
        if let Some(address) = waiting.pop_front() {
            begun += 1;
            trying.push(Box::pin(open(SocketAddr::new(address, port))));
        }
        let mut pause = pin!(sleep(HEAD_START));
        loop {
            select! {
                biased;
                ended = poll_fn(|context| settle(&mut trying, context)), if !trying.is_empty() => match ended {
                    Ok(opened) => return Ok(opened),
                    failed => {
                        outcome = failed;
                        break;
                    }
                },
                found = come(&mut later), if later.is_some() => {
                    later = None;
                    let next = [found.unwrap_or_default(), waiting.into()].concat();
                    waiting = by_turns(next, MAX_ADDRESSES - begun);
                    if trying.is_empty() {
                        break;
                    }
                }
                () = &mut pause, if !waiting.is_empty() => break,
                else => return outcome,
            }
        }
    }
}

/// Answer that was late.
async fn come(later: &mut Option<Later<'_>>) -> io::Result<Vec<IpAddr>> {
    match later {
        Some(later) => later.await,
        None => pending().await,
    }
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
fn by_turns(addresses: Vec<IpAddr>, most: usize) -> VecDeque<IpAddr> {
    let leads = addresses.first().is_some_and(IpAddr::is_ipv6);
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

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        let parse = |text: &&str| text.parse().expect("an address");
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
    fn race(given: &[&str], fails: &[&str]) -> (Result<IpAddr, String>, Vec<IpAddr>) {
        race_with(addresses(given).into(), fails)
    }

    fn race_with(
        given: NameAddresses<'_>,
        fails: &[&str],
    ) -> (Result<IpAddr, String>, Vec<IpAddr>) {
        let (fails, begun) = (addresses(fails), RefCell::new(Vec::new()));
        let open = async |address: SocketAddr| {
            let address = address.ip();
            begun.borrow_mut().push(address);
            if fails.contains(&address) {
                return Err(address.to_string());
            }
            match address.is_ipv6() {
                true => pending().await,
                false => Ok(address),
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let outcome =
            runtime
                .expect("a runtime")
                .block_on(first(given, 80, "none".to_owned(), open));
        (outcome, begun.into_inner())
    }

    #[test]
    fn what_comes_later_is_tried_next() {
        let later = |texts: &'static [&'static str]| -> Option<Later<'static>> {
            Some(Box::pin(async { Ok(addresses(texts)) }))
        };
        let given = |known: &[&str], later| NameAddresses {
            known: addresses(known),
            later,
            fault: None,
        };
        let one = |text| addresses(&[text])[0];
        let (four, five) = ("10.0.0.1", "10.0.0.2");
        // Of another family, before the next one of the first.
        let (opened, begun) = race_with(given(&["::1", "::2"], later(&["10.0.0.1"])), &[]);
        assert_eq!((opened, begun.len()), (Ok(one(four)), 2));
        // All that was known has failed.
        let (opened, begun) = race_with(given(&[four], later(&["10.0.0.2"])), &[four]);
        assert_eq!((opened, begun.len()), (Ok(one(five)), 2));
        let (failed, _) = race_with(given(&[four], later(&[])), &[four]);
        assert_eq!(failed, Err(four.to_owned()));
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
        assert_eq!((failed, begun.len()), (Err(four.to_owned()), 2));
        assert_eq!(race(&[], &[]).0, Err("none".to_owned()));
    }
}
