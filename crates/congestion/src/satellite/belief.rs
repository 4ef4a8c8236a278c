//! Belief: what limits this tunnel, decided in one place from what the detectors have seen.
//!
//! Detectors (`share.rs`, `ceiling.rs`, `company.rs`, `long_queue.rs`, `cruise/policed.rs`) bring evidence and decide nothing. The
//! laws of cruise go by [`Cruise::bottleneck`](super::cruise::Cruise), which is what is usual here; the verdict, weighed at the end of every
//! round of cruise, adds `Filled` and `Longer`. The order of evidence is that of how sure it is.

use super::long_queue::Verdict;

/// Bottleneck of this tunnel: the reason why its rate is no higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bottleneck {
    /// The path: nobody else's packets wait there.
    Alone,
    /// Other tunnels of this kind, behind a queue that all hold in common.
    Shared,
    /// A policer, which drops what exceeds its rate and queues nothing.
    Policed,
    /// A sender that fills the queue whatever its length; to be met with `window` bytes in flight.
    Filled { window: u64 },
    /// The path, which became longer: what looks like a queue is its length.
    Longer,
}

/// Evidence of a round about a queue that may be another sender's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Bottleneck that the laws of cruise go by until another is shown: one of `Alone`, `Shared` and `Policed`.
    pub(super) usual: Bottleneck,
    /// The queue was long, and never empty, for longer than tunnels of this kind keep one: bytes that this tunnel had in flight
    /// before.
    pub(super) never_empty: Option<u64>,
    /// That queue neither grew nor shrank.
    pub(super) still: bool,
    /// Packets are lost at the longest round-trip time alone.
    pub(super) overflows: bool,
    /// Dips leave a long queue, and most of the rate is gone.
    pub(super) pushed_out: bool,
    /// Round trips are long, and the path stays where it is.
    pub(super) far: bool,
    /// True if others of this kind are known to be there, or round trips are long: a queue that answers too little is no evidence.
    pub(super) patient: bool,
    /// Bytes in flight at the end of the round, and at most since the queue is long.
    pub(super) in_flight: u64,
    pub(super) most_in_flight: u64,
}

impl Evidence {
    /// The verdict. The watch over a queue that is `standing` is asked if nothing else tells, for asking ends its round.
    pub(super) fn weigh(&self, standing: impl FnOnce() -> Option<Verdict>) -> Bottleneck {
        let window = self.in_flight;
        match self.never_empty {
            // A queue moves with whoever fills it.
            Some(_) if self.still => return Bottleneck::Longer,
            Some(had) => {
                let window = had.max(window);
                return Bottleneck::Filled { window };
            }
            None => {}
        }
        if self.overflows || self.pushed_out {
            return Bottleneck::Filled { window };
        }
        match standing() {
            Some(Verdict::Longer) if !self.far => Bottleneck::Longer,
            Some(Verdict::Shared) if !self.patient => {
                let window = self.most_in_flight;
                Bottleneck::Filled { window }
            }
            _ => self.usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Evidence = Evidence {
        usual: Bottleneck::Alone,
        never_empty: None,
        still: false,
        overflows: false,
        pushed_out: false,
        far: false,
        patient: false,
        in_flight: 10,
        most_in_flight: 20,
    };

    fn filled(window: u64) -> Bottleneck {
        Bottleneck::Filled { window }
    }

    #[test]
    fn a_queue_that_is_never_empty_is_somebodys_unless_it_is_still() {
        let crowd = Evidence {
            never_empty: Some(30),
            overflows: true,
            ..NOTHING
        };
        assert_eq!(crowd.weigh(|| Some(Verdict::Longer)), filled(30));
        let still = Evidence {
            still: true,
            ..crowd
        };
        assert_eq!(still.weigh(|| None), Bottleneck::Longer);
        let alone = Evidence {
            still: true,
            ..NOTHING
        };
        assert_eq!(alone.weigh(|| None), Bottleneck::Alone, "no queue");
    }

    #[test]
    fn a_queue_that_overflows_or_pushes_out_is_met_with_what_is_in_flight() {
        for (overflows, pushed_out) in [(true, false), (false, true)] {
            let evidence = Evidence {
                overflows,
                pushed_out,
                ..NOTHING
            };
            let asked = || panic!("the watch is asked last");
            assert_eq!(evidence.weigh(asked), filled(10));
        }
    }

    #[test]
    fn a_queue_that_stands_is_judged_last_and_not_where_that_tells_too_little() {
        let longer = || Some(Verdict::Longer);
        let shared = || Some(Verdict::Shared);
        assert_eq!(NOTHING.weigh(longer), Bottleneck::Longer);
        assert_eq!(NOTHING.weigh(shared), filled(20));
        let far = Evidence {
            far: true,
            patient: true,
            usual: Bottleneck::Shared,
            ..NOTHING
        };
        assert_eq!(far.weigh(longer), Bottleneck::Shared);
        assert_eq!(far.weigh(shared), Bottleneck::Shared);
    }
}
