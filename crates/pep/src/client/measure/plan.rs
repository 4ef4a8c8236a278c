//! Plan of a measurement: what is transferred, in which order, and how many bytes that is at most.
//!
//! Pure. Bytes are those of bodies; heads, headers of packets, encryption and what is sent again come on top.

use bentpipe_units::ByteCount;
use serde::Serialize;

/// Bytes of a small request's answer.
pub(super) const REQUEST: u64 = 1000;
/// Bytes of a page's document.
pub(super) const DOCUMENT: u64 = 20_000;
/// Bytes of each object of a page.
pub(super) const OBJECT: u64 = 10_000;
/// Objects of a page.
pub(super) const OBJECTS: u64 = 10;
/// Connections that a page is loaded over at once, as browsers do.
pub(super) const PARALLEL: u64 = 6;
/// Downloaded bytes for each uploaded one: return links are slower.
const DOWN_TO_UP: u64 = 4;

/// Kind of transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// A small answer over a new connection.
    Request,
    /// A document, then its objects over six connections at a time.
    Page,
    /// A download.
    Down,
    /// An upload.
    Up,
}

/// Way that a transfer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Past the tunnel.
    Direct,
    /// Through the tunnel.
    Tunnel,
}

/// Wishes of who measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// Bytes of a download.
    pub size: ByteCount,
    /// Pairs of each kind.
    pub rounds: u32,
    /// Bytes that all transfers together may take.
    pub max_bytes: ByteCount,
}

/// Transfers of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    kinds: &'static [TaskKind],
    size: ByteCount,
    wished: u32,
    rounds: u32,
}

/// The reason why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    /// Not even one round fits.
    #[error(
        "one round takes {needed} and --max-bytes is {most}; allow more, or transfer less with --size"
    )]
    TooLarge {
        /// Bytes of a round.
        needed: ByteCount,
        /// Bytes that there may be.
        most: ByteCount,
    },
    /// Nothing was asked for.
    #[error("nothing is measured: --rounds and --size must be above 0")]
    Nothing,
}

impl Plan {
    /// As many rounds of `kinds` as `wishes` allows.
    ///
    /// # Errors
    /// [`NoPlan`]: not one.
    pub(super) fn new(kinds: &'static [TaskKind], wishes: &Wishes) -> Result<Self, NoPlan> {
        if wishes.rounds == 0 || wishes.size == ByteCount::ZERO {
            return Err(NoPlan::Nothing);
        }
        let plan = |rounds| Self {
            kinds,
            size: wishes.size,
            wished: wishes.rounds,
            rounds,
        };
        let most = wishes.max_bytes;
        let each_way = (most.as_u64() / 2).saturating_sub(REQUEST);
        let fit = each_way / plan(1).round_each_way();
        match wishes.rounds.min(u32::try_from(fit).unwrap_or(u32::MAX)) {
            0 => Err(NoPlan::TooLarge {
                needed: plan(1).bytes(),
                most,
            }),
            rounds => Ok(plan(rounds)),
        }
    }

    /// Pairs of each kind.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Pairs of each kind that were asked for, where there are fewer.
    #[must_use]
    pub fn curtailed(&self) -> Option<u32> {
        (self.rounds < self.wished).then_some(self.wished)
    }

    /// Bytes of all transfers, at most; first of all is a request each way, which shows that both are open.
    #[must_use]
    pub fn bytes(&self) -> ByteCount {
        let rounds = self.round_each_way().saturating_mul(self.rounds.into());
        ByteCount::new(rounds.saturating_add(REQUEST).saturating_mul(2))
    }

    /// Bytes of one round in one of the two ways.
    pub(super) fn round_each_way(&self) -> u64 {
        let each = self.kinds.iter().map(|kind| self.bytes_of(*kind));
        each.fold(0, u64::saturating_add)
    }

    /// Bytes of one transfer.
    #[must_use]
    pub fn bytes_of(&self, kind: TaskKind) -> u64 {
        let size = self.size.as_u64();
        match kind {
            TaskKind::Request => REQUEST,
            TaskKind::Page => DOCUMENT + OBJECTS * OBJECT,
            TaskKind::Down => size,
            TaskKind::Up => size.div_ceil(DOWN_TO_UP),
        }
    }

    /// Kinds, in the order of a round.
    #[must_use]
    pub fn kinds(&self) -> &'static [TaskKind] {
        self.kinds
    }

    /// Connections that one way opens in a round.
    pub(super) fn connections(&self) -> u64 {
        let of = |kind: &TaskKind| match kind {
            TaskKind::Page => 1 + OBJECTS,
            _ => 1,
        };
        self.kinds.iter().map(of).sum()
    }

    /// Both ways, in the order of `round`: direct, tunnel, then tunnel, direct, so that neither always comes first.
    pub(super) fn order(round: u32) -> [Way; 2] {
        match round % 2 {
            0 => [Way::Direct, Way::Tunnel],
            _ => [Way::Tunnel, Way::Direct],
        }
    }
}

impl TaskKind {
    /// All that a responder serves.
    pub(super) const ALL: &'static [Self] = &[Self::Request, Self::Page, Self::Down, Self::Up];

    /// Kinds that any web server serves.
    pub(super) const OF_URL: &'static [Self] = &[Self::Request, Self::Down];

    /// Name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Page => "page",
            Self::Down => "download",
            Self::Up => "upload",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(size: u64, rounds: u32, max_bytes: u64) -> Wishes {
        Wishes {
            size: ByteCount::new(size),
            rounds,
            max_bytes: ByteCount::new(max_bytes),
        }
    }

    #[test]
    fn a_plan_is_as_large_as_it_says() {
        let plan = Plan::new(TaskKind::ALL, &wishes(2_000_000, 8, 1 << 40)).unwrap();
        // 1 kB, 120 kB, 2 MB and 500 kB, twice in each of eight rounds.
        assert_eq!(plan.bytes(), ByteCount::new(16 * 2_621_000 + 2000));
        assert_eq!((plan.rounds(), plan.curtailed()), (8, None));
        assert_eq!(plan.connections(), 14);
    }

    #[test]
    fn rounds_are_fewer_where_bytes_are_and_none_are_refused() {
        let round = 2 * 2_621_000;
        let plan = |most| Plan::new(TaskKind::ALL, &wishes(2_000_000, 8, most + 2000));
        let three = plan(4 * round - 1).unwrap();
        assert_eq!((three.rounds(), three.curtailed()), (3, Some(8)));
        assert_eq!(three.bytes(), ByteCount::new(3 * round + 2000));
        let refused = plan(round - 1).unwrap_err();
        assert!(refused.to_string().contains("--max-bytes"), "{refused}");
        for nothing in [wishes(0, 8, round), wishes(1, 0, round)] {
            assert_eq!(Plan::new(TaskKind::ALL, &nothing), Err(NoPlan::Nothing));
        }
        // A size at the end of what there is.
        assert!(Plan::new(TaskKind::ALL, &wishes(u64::MAX / 2, 8, 1)).is_err());
    }

    #[test]
    fn neither_way_is_always_the_first() {
        let orders: Vec<Way> = (0..4).flat_map(Plan::order).collect();
        let [d, t] = [Way::Direct, Way::Tunnel];
        assert_eq!(orders, [d, t, t, d, d, t, t, d]);
    }
}
