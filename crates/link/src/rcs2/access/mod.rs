//! Who may send when: logon, requests on their way to the gateway, grants on their way back, timeslots.
//!
//! Two clocks drive it. At each superframe's beginning the gateway shares the superframe that comes `lead` later, with what it
//! has been asked until then; once a period each terminal has a control burst for its request. A grant is known to the
//! terminal before its timeslots begin, or it is void. Slots are taken in the order of their beginnings.

mod slots;

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_units::{BitRate, Decibel, Seed};

use super::agent::Agent;
use super::controller::{Contract, Controller, Grant, Request, payload};
use super::model::AccessModel;
use super::plan::Superframe;
use super::waveform::Waveform;
use crate::event::EventKind;
use crate::ids::Way;
use crate::propagation::Propagation;
use crate::random::Random;

pub(crate) use slots::Slot;

/// Below this the terminal does not hear the gateway: QPSK 1/4, the most robust MODCOD of DVB-S2.
const DEAF: Decibel = Decibel::new(-2.35);
/// Es/N0 where no link budget says anything.
const NOISELESS: Decibel = Decibel::new(100.0);
/// A terminal that was not heard, or did not hear, for so long has lost the network's clock and logs on anew.
const SILENCE: Duration = Duration::from_secs(5);
/// A logon that got lost is tried again after the answer should have come and up to so many superframes more.
const BACKOFF: f64 = 8.0;

/// Event that somebody may want to know of: time, terminal, kind.
pub(crate) type Note = (Duration, usize, EventKind);

#[derive(Debug, Clone, Copy, PartialEq)]
enum LogonState {
    /// The terminal's next control burst asks for admission.
    Off,
    /// The gateway answers at the beginning of this superframe.
    Asked(u64),
    /// The terminal knows so since this instant.
    On(Duration),
}

#[derive(Debug, Clone)]
struct Requester {
    agent: Agent,
    logon: LogonState,
    /// The superframe of its next control burst.
    control: u64,
    /// Since when it has no waveform.
    silent: Option<Duration>,
    latest: Grant,
    /// The next slot to look at: superframe, and place among its slots there.
    cursor: (u64, usize),
    /// Request on its way: counts from this superframe on.
    asked: VecDeque<(u64, Request)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Access {
    model: AccessModel,
    controller: Controller,
    terminals: Vec<Requester>,
    /// The superframe at whose beginning the gateway decides next.
    now: u64,
    superframes: VecDeque<Superframe>,
    random: Random,
}

impl Access {
    pub(crate) fn new(model: &AccessModel, propagation: &Propagation, seed: Seed) -> Self {
        // The first control burst that can be received at all.
        let first = |index| {
            let delay = propagation.one_way_delay(Duration::ZERO, index, Way::Return);
            let superframes = delay
                .as_nanos()
                .div_ceil(model.sharing.superframe.as_nanos().max(1));
            u64::try_from(superframes).unwrap_or(0)
        };
        let terminal = |(index, contract): (usize, &Contract)| Requester {
            agent: Agent::new(*contract),
            logon: if model.cold {
                LogonState::Off
            } else {
                LogonState::On(Duration::ZERO)
            },
            control: first(index) + u64::try_from(index).unwrap_or(0) % model.period.max(1),
            silent: None,
            latest: Grant::default(),
            cursor: (0, 0),
            asked: VecDeque::new(),
        };
        let mut access = Self {
            controller: Controller::new(model.sharing.clone(), &model.contracts),
            terminals: model.contracts.iter().enumerate().map(terminal).collect(),
            model: model.clone(),
            now: 0,
            superframes: VecDeque::new(),
            random: Random::new(seed.stream("requests")),
        };
        if !model.cold {
            for index in 0..access.terminals.len() {
                access.controller.set_logged_on(index, true);
            }
            // Terminals that have been there before have what they need no request for.
            for index in 0..model.lead() {
                let grants = access
                    .controller
                    .allocate(0, |terminal| level(propagation, Duration::ZERO, terminal));
                access.superframes.push_back(Superframe::new(index, grants));
            }
        }
        access
    }

    /// Counts a packet that will take so many bytes of bursts.
    pub(crate) fn arrived(&mut self, terminal: usize, bytes: u64) {
        self.terminals[terminal].agent.arrived(bytes);
    }

    /// The waveform and capacity that a terminal was granted last.
    pub(crate) fn latest(&self, terminal: usize) -> (Option<&'static Waveform>, BitRate) {
        let grant = self.terminals[terminal].latest;
        (grant.waveform, self.rate(grant))
    }

    /// The bytes of a burst with the waveform that a terminal was granted last, or may hope for.
    pub(crate) fn payload(&self, terminal: usize) -> u32 {
        let waveform = self.terminals[terminal].latest.waveform;
        self.payload_of(waveform.unwrap_or(self.model.sharing.waveforms.fastest()))
    }

    /// True if it is OpenSAND's way that is shown.
    pub(crate) const fn in_ticks(&self) -> bool {
        self.model.sharing.opensand
    }

    pub(crate) const fn payload_of(&self, waveform: &Waveform) -> u32 {
        payload(waveform, self.model.sharing.opensand)
    }

    fn rate(&self, grant: Grant) -> BitRate {
        let payload = grant
            .waveform
            .map_or(0, |waveform| self.payload_of(waveform));
        let bits = f64::from(grant.slots) * f64::from(payload) * 8.0;
        let rate = bits / self.model.sharing.superframe.as_secs_f64();
        BitRate::bits_per_second(rate as u64)
    }

    /// Time at which anything but a timeslot comes next.
    pub(crate) fn next_control(&self, propagation: &Propagation) -> Duration {
        let gateway = self.model.beginning(self.now);
        let bursts = (0..self.terminals.len()).map(|index| self.control_burst(index, propagation));
        bursts.fold(gateway, Duration::min)
    }

    /// Time at which the terminal sends its next control burst.
    fn control_burst(&self, terminal: usize, propagation: &Propagation) -> Duration {
        let received = self.model.beginning(self.terminals[terminal].control);
        received.saturating_sub(propagation.one_way_delay(received, terminal, Way::Return))
    }

    /// Does what comes at `next_control`. `backlog` is what a terminal's queue takes in bytes of bursts.
    pub(crate) fn control(
        &mut self,
        propagation: &Propagation,
        backlog: impl Fn(usize) -> u64,
        notes: &mut Vec<Note>,
    ) {
        let gateway = self.model.beginning(self.now);
        let bursts =
            (0..self.terminals.len()).map(|index| (self.control_burst(index, propagation), index));
        match bursts.min() {
            Some((at, terminal)) if at < gateway => {
                self.burst(at, terminal, propagation, backlog(terminal), notes);
            }
            _ => self.decide(gateway, propagation, notes),
        }
    }

    /// A terminal's control burst: logs on, or asks for capacity.
    fn burst(
        &mut self,
        at: Duration,
        index: usize,
        propagation: &Propagation,
        backlog: u64,
        notes: &mut Vec<Note>,
    ) {
        let superframe = self.terminals[index].control;
        let received = self.model.beginning(superframe);
        let latency =
            self.model.sharing.superframe * u32::try_from(self.model.msl).unwrap_or(u32::MAX);
        let period =
            self.model.sharing.superframe * u32::try_from(self.model.period).unwrap_or(u32::MAX);
        let terminal = &mut self.terminals[index];
        match terminal.logon {
            LogonState::Off => {
                let wait = self.random.between(0.0, BACKOFF) as u64;
                let lost = self.lost(received, index, propagation);
                let terminal = &mut self.terminals[index];
                if !lost {
                    terminal.logon = LogonState::Asked(superframe + 1);
                }
                terminal.control = superframe + self.model.msl + 1 + wait;
            }
            LogonState::Asked(_) => terminal.control = superframe + self.model.period,
            LogonState::On(since) => {
                terminal.control = superframe + self.model.period;
                // Whoever has just been admitted counts on, but does not know yet that it may ask.
                if self.model.sharing.dedicated || at < since {
                    return;
                }
                let Some(request) = terminal.agent.request(at, period, latency, backlog) else {
                    return;
                };
                let lost = self.lost(received, index, propagation);
                if !lost {
                    self.terminals[index]
                        .asked
                        .push_back((superframe + 1, request));
                }
                let Request { rbdc, vbdc } = request;
                notes.push((at, index, EventKind::Requested { rbdc, vbdc, lost }));
            }
        }
    }

    /// True if a control burst that the gateway receives at `received` gets lost.
    fn lost(&mut self, received: Duration, terminal: usize, propagation: &Propagation) -> bool {
        let cn = propagation
            .cn_total(received, terminal, Way::Return)
            .unwrap_or(NOISELESS);
        let errors = self.model.sharing.waveforms.most_robust().code().loss(cn);
        let outage = propagation.state(received, terminal).outage;
        let [bad_luck, noise] =
            [self.model.request_loss.as_f64(), errors].map(|p| self.random.chance(p));
        bad_luck || noise || outage
    }

    /// The gateway shares a superframe.
    fn decide(&mut self, at: Duration, propagation: &Propagation, notes: &mut Vec<Note>) {
        let now = self.now;
        self.now += 1;
        self.superframes
            .pop_front_if(|superframe| superframe.index < now);
        for index in 0..self.terminals.len() {
            self.admit(index, at, propagation, notes);
            let terminal = &mut self.terminals[index];
            while let Some((_, request)) = terminal.asked.pop_front_if(|(from, _)| *from <= now) {
                self.controller.receive(now, index, request);
            }
        }
        let mut grants = self
            .controller
            .allocate(now, |terminal| level(propagation, at, terminal));
        let target = now + self.model.lead();
        for (index, grant) in grants.iter_mut().enumerate() {
            self.watch(index, at, *grant, propagation, notes);
            let delay = |at| propagation.one_way_delay(at, index, Way::Return);
            let known = at + delay(at);
            let begins = self.model.beginning(target);
            if known > begins.saturating_sub(delay(begins)) {
                *grant = Grant::default();
            }
        }
        self.superframes.push_back(Superframe::new(target, grants));
    }

    /// Answers a logon.
    fn admit(
        &mut self,
        index: usize,
        at: Duration,
        propagation: &Propagation,
        notes: &mut Vec<Note>,
    ) {
        let terminal = &mut self.terminals[index];
        if terminal.logon == LogonState::Asked(self.now - 1) {
            let known = at + propagation.one_way_delay(at, index, Way::Forward);
            terminal.logon = LogonState::On(known);
            self.controller.set_logged_on(index, true);
            notes.push((known, index, EventKind::LoggedOn));
        }
    }

    /// Notes what changes for a terminal, and that it is gone.
    fn watch(
        &mut self,
        index: usize,
        at: Duration,
        grant: Grant,
        propagation: &Propagation,
        notes: &mut Vec<Note>,
    ) {
        let rate = self.rate(grant);
        let terminal = &mut self.terminals[index];
        let before = std::mem::replace(&mut terminal.latest, grant);
        if !matches!(terminal.logon, LogonState::On(_)) {
            return;
        }
        let [old, new] =
            [before.waveform, grant.waveform].map(|waveform| waveform.map(|waveform| waveform.id));
        if old != new {
            notes.push((at, index, EventKind::Waveform { waveform: new }));
        }
        // One slot more or less is rounding.
        if grant.slots.abs_diff(before.slots) > 1 || (grant.slots == 0) != (before.slots == 0) {
            notes.push((at, index, EventKind::Granted { bit_rate: rate }));
        }
        if grant.waveform.is_some() {
            terminal.silent = None;
        } else if at.saturating_sub(*terminal.silent.get_or_insert(at)) > SILENCE {
            terminal.logon = LogonState::Off;
            terminal.silent = None;
            terminal.asked.clear();
            // Its next burst is at the earliest one that it has not begun.
            let delay = propagation.one_way_delay(at, index, Way::Return);
            let superframes = delay.as_nanos() / self.model.sharing.superframe.as_nanos().max(1);
            terminal.control = self.now + u64::try_from(superframes).unwrap_or(0) + 1;
            self.controller.set_logged_on(index, false);
            notes.push((at, index, EventKind::LoggedOff));
        }
    }
}

/// Level at which the gateway hears a terminal; `None` if that one does not hear the gateway, or nobody anybody.
fn level(propagation: &Propagation, at: Duration, terminal: usize) -> Option<Decibel> {
    let hears = propagation
        .cn_total(at, terminal, Way::Forward)
        .is_none_or(|cn| cn >= DEAF);
    let reachable = hears && !propagation.state(at, terminal).outage;
    reachable.then(|| {
        propagation
            .cn_total(at, terminal, Way::Return)
            .unwrap_or(NOISELESS)
    })
}
