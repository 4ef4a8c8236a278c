//! Initiator: end A, which begins every association of its tunnel.

mod asked;
mod peps;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use bentpipe_proto::tunnel::LesKind;
use zeroize::Zeroizing;

use super::super::{EndToken, MAX_NUMBER, Roots, SpiPair};
use super::granting::{Granting, Plan, REKEY};
use super::message::{Answer, AnswerCode, Handshake, PepKey, Proof, Proposal};
use super::{Live, Material, Step, Violation, send};
use crate::Exporter;
use asked::{Asked, Progress};

/// Packets of either direction after which an association is renewed; 2^20 numbers are left for the
/// time that takes.
pub const RENEW_AT: u32 = MAX_NUMBER - (1 << 20);

/// Associations of one tunnel. After the last, the tunnel has to be renewed.
pub const MAX_ASSOCIATIONS: u32 = 65_536;

/// Time until A asks again after B has refused, 60 s.
const RETRY: Duration = Duration::from_secs(60);

/// Time until Q1 of the PSK flow, which nothing else repeats, is sent again, 1 s.
const AGAIN: Duration = Duration::from_secs(1);

/// Refusals in a row after which A waits even where another count, or fewer PEPs, may help at once.
const PATIENCE: u32 = 8;

/// Association that B has accepted.
struct Current {
    since: Instant,
    /// PEPs that B has accepted in it.
    peps: Vec<PepKey>,
    granting: Granting,
    /// Token with which A ends it, and those before.
    token: EndToken,
}

/// End A of the associations of one tunnel.
pub struct Initiator {
    plan: Plan,
    live: Live,
    next: u32,
    asked: Option<Asked>,
    current: Option<Current>,
    /// The plan is not that of the current association.
    changed: bool,
    /// Earlier associations end with the next one at once.
    at_once: bool,
    /// Token of the last association that A has sent with and retired.
    retired: Option<EndToken>,
    /// Refusals in a row.
    refused: u32,
    not_before: Option<Instant>,
    steps: VecDeque<Step>,
}

impl Initiator {
    /// End A of a tunnel that has just been made.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            live: Live::default(),
            next: 0,
            asked: None,
            current: None,
            changed: false,
            at_once: false,
            retired: None,
            refused: 0,
            not_before: None,
            steps: VecDeque::new(),
        }
    }

    /// Count of the association that is due, for which [`begin`](Self::begin) needs material.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<u32> {
        let waits = self.asked.is_some() || self.not_before.is_some_and(|at| now < at);
        if waits || self.is_spent() {
            return None;
        }
        let renews = self.current.as_ref().is_none_or(|current| {
            let old = now >= current.since + REKEY;
            old || self.live.newest_number() >= RENEW_AT
        });
        (renews || self.changed).then_some(self.next)
    }

    /// Begins the association that is due, with material for its count.
    pub fn begin(&mut self, now: Instant, material: Material) {
        let Some(count) = self.due(now) else { return };
        self.next += 1;
        let handshake = self.plan.handshake;
        let short = handshake == Handshake::Short;
        let psk = handshake == Handshake::Psk;
        // Without a tunnel B ends nothing on the word of Q1 alone, which may be a copy.
        let ended = self.retired.clone().filter(|_| psk && self.at_once);
        let proposal = Proposal {
            count,
            handshake,
            at_once: self.at_once && (!psk || ended.is_some()),
            random: material.random,
            to_a: (!short).then_some(material.spi),
            ended,
            selectors: self.plan.selectors.clone(),
            peps: self.plan.peps.clone(),
        };
        let begun = if short {
            self.begin_short(now, &proposal, &material.exporter)
        } else {
            self.begin_exchange(now, proposal, material.exporter)
        };
        // Else a name has been used: the next count is due, for the same reasons.
        if begun {
            (self.changed, self.at_once) = (false, false);
        }
    }

    fn begin_short(&mut self, now: Instant, proposal: &Proposal, exporter: &Exporter) -> bool {
        let is_new = |spis: &SpiPair| self.live.is_new(spis.to_a) && self.live.is_new(spis.to_b);
        let Some(spis) = Roots::short_spis(exporter).filter(is_new) else {
            return false;
        };
        let (count, random) = (proposal.count, proposal.random.bytes());
        let roots = Roots::derive(exporter, count, random, None, spis);
        let (sender, receiver) = roots.end_a();
        self.live
            .receive(count, receiver, spis.to_b, &proposal.selectors);
        self.steps.push_back(send(LesKind::Q1, proposal.encode()));
        self.steps.push_back(Step::Listen(spis.to_a));
        let mut granting = Granting::new(&roots);
        // Others have K2 once B has accepted them.
        for pep in &proposal.peps {
            if self.accepts(*pep) {
                self.grant(*pep, &mut granting);
            }
        }
        // Make before break: the association before goes on until B has answered.
        let mut sender = Some(sender);
        if !self.live.stands() {
            sender
                .take()
                .into_iter()
                .for_each(|sender| self.live.send(now, count, sender));
        }
        self.asked = Some(Asked {
            count,
            peps: proposal.peps.clone(),
            progress: Progress::Short {
                granting,
                sender,
                token: roots.end_token(),
            },
        });
        true
    }

    fn begin_exchange(&mut self, now: Instant, proposal: Proposal, exporter: Exporter) -> bool {
        if !proposal.to_a.is_some_and(|spi| self.live.is_new(spi)) {
            return false;
        }
        self.steps.push_back(send(LesKind::Q1, proposal.encode()));
        self.asked = Some(Asked {
            count: proposal.count,
            peps: proposal.peps.clone(),
            progress: Progress::Exchange {
                again: (proposal.handshake == Handshake::Psk).then_some(now + AGAIN),
                proposal,
                exporter,
            },
        });
        true
    }

    /// Takes Q2.
    ///
    /// # Errors
    /// [`Violation`]: the tunnel is to be closed.
    pub fn on_q2(&mut self, now: Instant, body: &[u8]) -> Result<(), Violation> {
        let answer = Answer::parse(body)?;
        let unasked = Violation::Unasked("Q2", answer.count);
        let Some(asked) = self.asked.take_if(|asked| asked.count == answer.count) else {
            // The answer to one that was given up meanwhile is nothing to complain about.
            let given_up = answer.count < self.next;
            return given_up.then_some(()).ok_or(unasked);
        };
        let exchange = matches!(asked.progress, Progress::Exchange { .. });
        let accepted = answer.code == AnswerCode::Accepted;
        let form = asked.peps.len() == answer.known.len()
            && answer.own.is_some() == (exchange && accepted)
            && (!accepted || answer.known.iter().all(|known| *known));
        if !form {
            return Err(unasked);
        }
        if !accepted {
            self.on_refused(now, &asked, &answer);
            return Ok(());
        }
        let (granting, token) = match asked.progress {
            Progress::Short {
                mut granting,
                sender,
                token,
            } => {
                for pep in &asked.peps {
                    if !self.accepts(*pep) {
                        self.grant(*pep, &mut granting);
                    }
                }
                let waits = sender.into_iter();
                waits.for_each(|sender| self.live.send(now, asked.count, sender));
                (granting, token)
            }
            Progress::Exchange {
                proposal, exporter, ..
            } => self
                .finish_exchange(now, &proposal, &exporter, &answer)
                .ok_or(unasked)?,
        };
        self.plan.accepted.extend(&asked.peps);
        self.current = Some(Current {
            since: now,
            peps: asked.peps,
            granting,
            token,
        });
        self.refused = 0;
        self.steps.push_back(Step::Established(asked.count));
        Ok(())
    }

    /// Keys and grants, and in the paper's flow Q3. `None`: B has named an SPI that was used.
    fn finish_exchange(
        &mut self,
        now: Instant,
        proposal: &Proposal,
        exporter: &Exporter,
        answer: &Answer,
    ) -> Option<(Granting, EndToken)> {
        let ((random_b, to_b), to_a) = (answer.own.as_ref()?, proposal.to_a?);
        let spis = SpiPair { to_b: *to_b, to_a };
        if spis.to_b == spis.to_a || !self.live.is_new(spis.to_b) {
            return None;
        }
        let count = proposal.count;
        let (random_a, random_b) = (proposal.random.bytes(), Some(random_b.bytes()));
        let roots = Roots::derive(exporter, count, random_a, random_b, spis);
        if proposal.handshake == Handshake::Paper {
            let code = roots.prove(&proposal.encode(), &answer.encode());
            let proof = Proof { count, code };
            self.steps.push_back(send(LesKind::Q3, proof.encode()));
        }
        let (sender, receiver) = roots.end_a();
        self.live
            .receive(count, receiver, spis.to_b, &proposal.selectors);
        self.steps.push_back(Step::Listen(spis.to_a));
        let mut granting = Granting::new(&roots);
        for pep in &proposal.peps {
            self.grant(*pep, &mut granting);
        }
        self.live.send(now, count, sender);
        Some((granting, roots.end_token()))
    }

    fn on_refused(&mut self, now: Instant, asked: &Asked, answer: &Answer) {
        self.live.forget(asked.count);
        if let Progress::Short { sender: None, .. } = asked.progress {
            self.live.stop_sending();
        }
        let known: BTreeSet<_> = asked.peps.iter().zip(&answer.known).collect();
        let refused = |pep: &PepKey| known.contains(&(pep, &false));
        self.plan.peps.retain(|pep| !refused(pep));
        self.plan.accepted.retain(|pep| !refused(pep));
        self.refused += 1;
        let helps = matches!(answer.code, AnswerCode::SpiInUse | AnswerCode::PepUnknown);
        if !helps || self.refused >= PATIENCE {
            self.not_before = Some(now + RETRY);
        }
        // Whatever asked for this one asks for the next.
        self.changed = true;
        self.steps.push_back(Step::Refused(answer.code));
    }

    /// Q1 that B has not answered yet, if one is repeated until it is: that of the PSK flow, which
    /// its answer is bound to.
    #[must_use]
    pub fn question(&self) -> Option<Zeroizing<Vec<u8>>> {
        match &self.asked.as_ref()?.progress {
            Progress::Exchange {
                proposal,
                again: Some(_),
                ..
            } => Some(proposal.encode()),
            Progress::Exchange { .. } | Progress::Short { .. } => None,
        }
    }

    /// Step that is to be taken next.
    pub fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Associations that packets go by.
    pub fn live(&mut self) -> &mut Live {
        &mut self.live
    }

    /// Plan, without PEPs that B does not know, and with those that have had K2.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Says whether the tunnel has had as many associations as it may: it is to be renewed.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.next >= MAX_ASSOCIATIONS
    }

    /// Moment at which an association is due or ends.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let renewal = self.current.as_ref().map(|current| current.since + REKEY);
        let begins = renewal.filter(|_| self.asked.is_none() && !self.is_spent());
        let begins = self.not_before.or(begins);
        let again = self.asked.as_ref().and_then(|asked| asked.again());
        let all = [begins, again, self.live.deadline()];
        all.into_iter().flatten().min()
    }

    /// Erases associations whose time has come, and repeats what may have been lost;
    /// [`due`](Self::due) says whether one is to begin.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.live.handle_timeout(now);
        if self.not_before.is_some_and(|at| now >= at) {
            self.not_before = None;
        }
        if let Some(asked) = &mut self.asked
            && let Progress::Exchange {
                proposal,
                again: Some(at),
                ..
            } = &mut asked.progress
            && now >= *at
        {
            *at = now + AGAIN;
            self.steps.push_back(send(LesKind::Q1, proposal.encode()));
        }
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator")
            .field("next", &self.next)
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}
