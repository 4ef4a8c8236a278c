//! Outer connections that name a tunnel and have not said what they are for: each tunnel vouches for some, so that one address, which
//! may be that of a proxy, can stand for many clients.
//!
//! The name is no proof, for it crosses in clear. So a share of it is all that somebody can use up who has heard it; beyond, connections
//! are strangers of their host.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Connections of one tunnel at one time.
const OF_TUNNEL: usize = 4096;

/// Connections of all tunnels at one time.
const MOST: usize = 16_384;

/// Connections of one tunnel that may come to nothing at once; each of them is forgiven after [`EACH`].
const FAILURES: u32 = 4096;

/// Time after which a connection that has come to nothing is forgiven: 100 in a second.
const EACH: Duration = Duration::from_millis(10);

/// Connections that tunnels vouch for.
#[derive(Default)]
pub(super) struct Vouchers {
    known: RefCell<VoucherTable>,
}

#[derive(Default)]
struct VoucherTable {
    under_way: usize,
    of_tunnel: HashMap<u32, TunnelShare>,
}

/// Share that a tunnel has taken.
#[derive(Default)]
struct TunnelShare {
    under_way: usize,
    /// Moment at which all that have failed are forgiven (GCRA); `None`: none has.
    forgiven: Option<Instant>,
}

/// Word of one tunnel for one connection; dropped when it is known what the connection is for, or over.
pub(super) struct Voucher {
    all: Rc<Vouchers>,
    id: u32,
}

impl Vouchers {
    /// Word of the tunnel `id`, which has to be one; `None`: its share is used up.
    pub(super) fn vouch(self: &Rc<Self>, now: Instant, id: u32) -> Option<Voucher> {
        let mut known = self.known.borrow_mut();
        if known.under_way >= MOST {
            return None;
        }
        let is_used = |share: &TunnelShare| {
            share.under_way > 0 || share.forgiven.is_some_and(|forgiven| forgiven > now)
        };
        if known.of_tunnel.len() >= MOST {
            known.of_tunnel.retain(|_, share| is_used(share));
        }
        let share = known.of_tunnel.entry(id).or_default();
        let forgiven = share.forgiven.map_or(now, |forgiven| forgiven.max(now)) + EACH;
        if share.under_way >= OF_TUNNEL || forgiven > now + EACH * FAILURES {
            return None;
        }
        share.forgiven = Some(forgiven);
        share.under_way += 1;
        known.under_way += 1;
        Some(Voucher {
            all: self.clone(),
            id,
        })
    }
}

impl Voucher {
    /// The connection is that tunnel's.
    pub(super) fn prove(self) {
        let mut known = self.all.known.borrow_mut();
        let share = known.of_tunnel.get_mut(&self.id);
        if let Some(forgiven) = share.and_then(|share| share.forgiven.as_mut()) {
            *forgiven -= EACH;
        }
    }
}

impl Drop for Voucher {
    fn drop(&mut self) {
        let mut known = self.all.known.borrow_mut();
        known.under_way -= 1;
        if let Some(share) = known.of_tunnel.get_mut(&self.id) {
            share.under_way -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    fn given(vouchers: &Rc<Vouchers>, now: Instant, id: u32) -> Vec<Voucher> {
        let each = (0..2 * OF_TUNNEL).map_while(|_| vouchers.vouch(now, id));
        each.collect()
    }

    #[test]
    fn a_tunnel_vouches_for_many_and_takes_no_place_of_another() {
        let (now, vouchers) = (process::now(), Rc::<Vouchers>::default());
        let first = given(&vouchers, now, 1);
        assert_eq!(first.len(), OF_TUNNEL);
        assert!(vouchers.vouch(now, 2).is_some());
        let others: Vec<_> = (3..9).flat_map(|id| given(&vouchers, now, id)).collect();
        assert_eq!(first.len() + others.len(), MOST);
        // Those that have proven are forgotten at once.
        first.into_iter().for_each(Voucher::prove);
        assert_eq!(given(&vouchers, now, 1).len(), OF_TUNNEL);
    }

    #[test]
    fn who_makes_up_connections_with_a_tunnels_name_is_a_stranger_soon() {
        let (now, vouchers) = (process::now(), Rc::<Vouchers>::default());
        drop(given(&vouchers, now, 1));
        assert!(vouchers.vouch(now, 1).is_none());
        assert_eq!(given(&vouchers, now + Duration::from_secs(1), 1).len(), 100);
        let later = now + Duration::from_secs(60);
        assert_eq!(given(&vouchers, later, 1).len(), OF_TUNNEL);
    }
}
