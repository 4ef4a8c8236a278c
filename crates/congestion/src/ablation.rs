//! Ablation: parts of `satellite` that the harness of `make limits` switches off, one at a time, to see what each is for.
//!
//! A part passes what it decides through `Part::or`, together with what would be so without it. In the program that returns the
//! decision, and nothing of this page is left; the switch is compiled with the feature `ablation` alone.

/// A part of `satellite`. Its description says what is so without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Short paths are sent over as all others are, without BBR.
    Nearby,
    /// Small packets at rest tell of nobody who fills the path.
    Rest,
    /// A silence is never an outage's.
    Outage,
    /// The losses of a silent flight do not show an outage.
    LateOutage,
    /// No step of a long path is seen.
    JumpsFar,
    /// No step of a short path is seen.
    JumpsNear,
    /// A queue that does not answer to what is sent is no longer path.
    Stuck,
    /// A queue that stands is never somebody else's.
    StandingShared,
    /// A queue that stands is never a longer path.
    StandingLonger,
    /// A path that becomes longer twice in a row is believed.
    LongerTwice,
    /// A long queue that does not change is no longer path.
    Still,
    /// A long queue that is never empty is nobody's.
    Crowded,
    /// Losses at the longest round-trip time are nobody's.
    Ceiling,
    /// A lost rate behind dips that leave a queue is nobody's.
    PushedOut,
    /// Without trains a queue that stays is nobody's.
    Foreign,
    /// A sender that filled the queue is not expected back.
    ExpectedBack,
    /// A round behind a queue longer than the round trip counts once.
    HugeQueue,
    /// Where there is no room for a common queue it is tried all the same.
    Hopeless,
    /// Losses in company do not bound the common queue.
    CommonRoom,
    /// Patience with a long queue is on short paths that of long ones.
    CrowdedNear,
    /// Patience with a long queue is in company that of one who is alone.
    CrowdedFamiliar,
    /// No train of start-up is believed.
    FirstTrain,
    /// No train is asked for in cruise.
    LaterTrains,
    /// A sudden fall is not put off until a train tells.
    TrainDoubt,
    /// A train that finds the path full does not save pulses.
    TrainFull,
    /// No train raises the rate.
    TrainRecovery,
    /// No earlier connection is remembered.
    Memory,
    /// A remembered share of a path is doubled in start-up.
    Return,
    /// A queue that stood before the first flight is not noticed.
    MetQueue,
    /// A first flight that arrives slowly has no company.
    CrowdedFlight,
    /// Behind a queue that was expected start-up grows at once.
    StartupDoubt,
    /// A measured rate that is exceeded stays the limit.
    Refuted,
    /// No plateau ends start-up.
    Plateau,
    /// No losses end start-up.
    StartupLoss,
    /// No queue ends start-up.
    StartupQueue,
    /// Start-up ends on a queue that a slow source's packets met, too.
    SlowSource,
    /// Start-up grows over long paths as over short ones.
    LongGrowth,
    /// A flight at a free rate is judged by its first packets.
    Answered,
    /// A flight at a free rate does not show its rate by itself.
    Shown,
    /// After a jump that met losses the rate is kept as after others.
    Retreat,
    /// The drain after a measured rate is as deep as others.
    ShallowDrain,
    /// The drain of a thin path looks at busy ACKs alone.
    ThinDrain,
    /// The drain does not correct the rate.
    DrainFollows,
    /// The caution of long paths is that of short ones.
    FarCaution,
    /// The window is not bounded where somebody is expected.
    WaryWindow,
    /// A long queue waits for the end of the round.
    Alarm,
    /// A sudden queue is answered once a round trip.
    AlarmAgain,
    /// A path that became slower still counts as yielded.
    ForgetPeak,
    /// A policer is never found.
    Policed,
    /// A queue that drops packets early is not shortened.
    ManagedQueue,
    /// A mark does not shorten the queue.
    MarkedRoom,
    /// Losses in company are not answered beyond delivery.
    Overflow,
    /// Losses beyond the path's own do not lower the rate of one who is alone.
    Excess,
    /// One round of excess lowers the rate on lossy paths, too.
    OverloadedTwice,
    /// Short paths have no noise of their own.
    NearNoise,
    /// Long paths have no noise of their own.
    FarNoise,
    /// On noisy paths a few ACKs tell the queue.
    LastQueue,
    /// A short path's length before a rest is not taken up again.
    BeforeRest,
    /// Nothing keeps the round-trip time while others fill the queue.
    Held,
    /// In company the round-trip time is forgotten as soon as alone.
    SharedSpan,
    /// A short path's round-trip time is forgotten as late as a long one's.
    ShortSpan,
    /// The window has no room for a path's steps.
    StepRoom,
    /// A path that moved is not expected to move again.
    Moves,
    /// A few ACKs tell no rate of arrival.
    FewAcks,
    /// No loss is the path's own.
    PathLoss,
    /// A quiet span never tells of congestion.
    QuietCongestion,
    /// The burstiness of losses is not measured.
    Bursts,
    /// A loss rate learned from few packets is believed in full.
    FewPackets,
    /// Rounds without losses do not show a clean path.
    CleanPath,
    /// No pulse is sent.
    Pulses,
    /// No pulse is taken back at once.
    BalancedPulse,
    /// A pulse into a full path is as strong as others.
    DiscreetPulse,
    /// A pulse that passed does not make the next one stronger.
    GrowingPulse,
    /// A rate that a pulse finds is believed within its error.
    PulseDoubt,
    /// A path that became slower is not expected to become faster again.
    Eager,
    /// No dip is sent.
    Dips,
    /// A dip is not deeper where losses are to be told apart.
    DeepDips,
    /// A dip is not repeated sooner in company.
    RepeatedDips,
    /// Dips are not brought into step by an empty queue.
    CommonDips,
    /// The target does not fall with the rate.
    LowerTarget,
    /// A rate that is steady falls as fast as others.
    SteadyRate,
    /// Rounds after a cut count.
    StaleRounds,
    /// A queue twice the target is drained as gently as others.
    FirmLaw,
    /// Pacing has no floor.
    LeastPace,
    /// The common queue is mended no faster when far off.
    StrongCommon,
    /// In company all yield as much.
    YieldByShare,
    /// An empty common queue leaves its mean.
    RestartMean,
    /// No other sender is competed with.
    Compete,
    /// A competition that loses is gone on with.
    Losing,
    /// A competition is not checked after a cut.
    CheckAfterCut,
}

impl Part {
    /// Returns what is `decided`, unless the part is switched off: then what is so `without` it.
    #[cfg(not(feature = "ablation"))]
    #[inline]
    pub(crate) fn or<T: PartialEq>(self, decided: T, _without: T) -> T {
        decided
    }

    /// Returns what is `decided`, unless the part is switched off: then what is so `without` it.
    #[cfg(feature = "ablation")]
    pub(crate) fn or<T: PartialEq>(self, decided: T, without: T) -> T {
        if decided == without {
            return decided;
        }
        switch::used(self);
        if switch::is_off(self) {
            without
        } else {
            decided
        }
    }
}

#[cfg(feature = "ablation")]
pub use switch::run;

/// The switch, one for each thread.
#[cfg(feature = "ablation")]
mod switch {
    use std::cell::Cell;

    use super::Part;

    thread_local! {
        static OFF: Cell<Option<Part>> = const { Cell::new(None) };
        static USED: Cell<u128> = const { Cell::new(0) };
    }

    pub(super) fn used(part: Part) {
        USED.set(USED.get() | 1 << part as u8);
    }

    pub(super) fn is_off(part: Part) -> bool {
        OFF.get() == Some(part)
    }

    /// Runs `experiment` without the part `off`; returns what it measured and the parts that decided anything in it. Without any
    /// other part the same would be measured.
    pub fn run<T>(off: Option<Part>, experiment: impl FnOnce() -> T) -> (T, Vec<Part>) {
        OFF.set(off);
        USED.set(0);
        let measured = experiment();
        OFF.set(None);
        let used = Part::NAMES.into_iter().map(|(part, _)| part);
        let used = used.filter(|part| USED.get() & 1 << *part as u8 != 0);
        (measured, used.collect())
    }
}

#[cfg(feature = "ablation")]
impl Part {
    /// Every part, with the name that the harness prints.
    pub const NAMES: [(Self, &'static str); 90] = [
        (Self::Nearby, "nearby"),
        (Self::Rest, "rest"),
        (Self::Outage, "outage"),
        (Self::LateOutage, "late-outage"),
        (Self::JumpsFar, "jumps-far"),
        (Self::JumpsNear, "jumps-near"),
        (Self::Stuck, "stuck"),
        (Self::StandingShared, "standing-shared"),
        (Self::StandingLonger, "standing-longer"),
        (Self::LongerTwice, "longer-twice"),
        (Self::Still, "still"),
        (Self::Crowded, "crowded"),
        (Self::Ceiling, "ceiling"),
        (Self::PushedOut, "pushed-out"),
        (Self::Foreign, "foreign"),
        (Self::ExpectedBack, "expected-back"),
        (Self::HugeQueue, "huge-queue"),
        (Self::Hopeless, "hopeless"),
        (Self::CommonRoom, "common-room"),
        (Self::CrowdedNear, "crowded-near"),
        (Self::CrowdedFamiliar, "crowded-familiar"),
        (Self::FirstTrain, "first-train"),
        (Self::LaterTrains, "later-trains"),
        (Self::TrainDoubt, "train-doubt"),
        (Self::TrainFull, "train-full"),
        (Self::TrainRecovery, "train-recovery"),
        (Self::Memory, "memory"),
        (Self::Return, "return"),
        (Self::MetQueue, "met-queue"),
        (Self::CrowdedFlight, "crowded-flight"),
        (Self::StartupDoubt, "startup-doubt"),
        (Self::Refuted, "refuted"),
        (Self::Plateau, "plateau"),
        (Self::StartupLoss, "startup-loss"),
        (Self::StartupQueue, "startup-queue"),
        (Self::SlowSource, "slow-source"),
        (Self::LongGrowth, "long-growth"),
        (Self::Answered, "answered"),
        (Self::Shown, "shown"),
        (Self::Retreat, "retreat"),
        (Self::ShallowDrain, "shallow-drain"),
        (Self::ThinDrain, "thin-drain"),
        (Self::DrainFollows, "drain-follows"),
        (Self::FarCaution, "far-caution"),
        (Self::WaryWindow, "wary-window"),
        (Self::Alarm, "alarm"),
        (Self::AlarmAgain, "alarm-again"),
        (Self::ForgetPeak, "forget-peak"),
        (Self::Policed, "policed"),
        (Self::ManagedQueue, "managed-queue"),
        (Self::MarkedRoom, "marked-room"),
        (Self::Overflow, "overflow"),
        (Self::Excess, "excess"),
        (Self::OverloadedTwice, "overloaded-twice"),
        (Self::NearNoise, "near-noise"),
        (Self::FarNoise, "far-noise"),
        (Self::LastQueue, "last-queue"),
        (Self::BeforeRest, "before-rest"),
        (Self::Held, "held"),
        (Self::SharedSpan, "shared-span"),
        (Self::ShortSpan, "short-span"),
        (Self::StepRoom, "step-room"),
        (Self::Moves, "moves"),
        (Self::FewAcks, "few-acks"),
        (Self::PathLoss, "path-loss"),
        (Self::QuietCongestion, "quiet-congestion"),
        (Self::Bursts, "bursts"),
        (Self::FewPackets, "few-packets"),
        (Self::CleanPath, "clean-path"),
        (Self::Pulses, "pulses"),
        (Self::BalancedPulse, "balanced-pulse"),
        (Self::DiscreetPulse, "discreet-pulse"),
        (Self::GrowingPulse, "growing-pulse"),
        (Self::PulseDoubt, "pulse-doubt"),
        (Self::Eager, "eager"),
        (Self::Dips, "dips"),
        (Self::DeepDips, "deep-dips"),
        (Self::RepeatedDips, "repeated-dips"),
        (Self::CommonDips, "common-dips"),
        (Self::LowerTarget, "lower-target"),
        (Self::SteadyRate, "steady-rate"),
        (Self::StaleRounds, "stale-rounds"),
        (Self::FirmLaw, "firm-law"),
        (Self::LeastPace, "least-pace"),
        (Self::StrongCommon, "strong-common"),
        (Self::YieldByShare, "yield-by-share"),
        (Self::RestartMean, "restart-mean"),
        (Self::Compete, "compete"),
        (Self::Losing, "losing"),
        (Self::CheckAfterCut, "check-after-cut"),
    ];

    /// The name that the harness prints.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}
