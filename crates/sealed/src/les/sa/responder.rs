//! Responder: end B, which accepts associations or says why not.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use ipnet::IpNet;
use zeroize::Zeroizing;

use bentpipe_proto::tunnel::LesKind;

use super::super::{Delivered, EndToken, HeaderReader, Roots, Spi, SpiPair, Toward, spi_of};
use super::message::{Answer, AnswerCode, Handshake, PepKey, Proof, Proposal, Random};
use super::{Live, MAX_ASSOCIATIONS, Material, Step, Unopened, Violation, send};
use crate::Exporter;

/// Associations that B begins for one tunnel in any minute.
pub const BEGUN_PER_MINUTE: usize = 32;

const MINUTE: Duration = Duration::from_secs(60);

/// Associations of the PSK flow that wait for their first packet: as many as begin in a minute, so that nobody's Q1 displaces one sooner.
const WAITING: usize = BEGUN_PER_MINUTE;

/// Q1 of the PSK flow that are remembered, so that none begins anything twice; of an hour each, those of weeks.
const REMEMBERED: usize = 1024;

/// First bytes of SHA-256 of Q1.
type Fingerprint = [u8; 16];

/// Associations as the operator of B allows them to one client.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Destinations that are served by LES.
    pub prefixes: &'a [IpNet],
    /// PEPs that B knows.
    pub peps: &'a [PepKey],
    /// Says whether another tunnel of B receives by this name.
    pub taken: &'a dyn Fn(Spi) -> bool,
    /// True where no tunnel stands, and the PSK flow is the only one.
    pub psk: bool,
}

/// Association that waits until A has shown that it has the keys: by Q3, or in the PSK flow by its
/// first packet.
struct Proposed {
    count: u32,
    roots: Roots,
    proof: [u8; 32],
    selectors: Vec<IpNet>,
    /// Q1 and Q2 of the PSK flow, where either may be lost.
    messages: Option<(Proposal, Zeroizing<Vec<u8>>)>,
    /// A has begun to count anew: it is another process.
    restarted: bool,
}

/// End B of the associations of one tunnel.
#[derive(Default)]
pub struct Responder {
    live: Live,
    /// Lowest count that may come.
    next: u32,
    proposed: Option<Proposed>,
    /// Associations of the PSK flow that wait, the oldest first.
    waiting: VecDeque<Proposed>,
    /// Q1 of the PSK flow so far, the oldest first.
    had: VecDeque<Fingerprint>,
    /// Token with which A ends the newest association, and those before.
    token: Option<EndToken>,
    /// PEPs were accepted in the last association that was.
    peps: bool,
    /// Beginnings in the last minute.
    begun: VecDeque<Instant>,
    steps: VecDeque<Step>,
}

impl Responder {
    /// Says whether PEPs may read headers of what is sent.
    #[must_use]
    pub fn has_peps(&self) -> bool {
        self.peps
    }

    /// Takes Q1, with material for its count.
    ///
    /// # Errors
    /// [`Violation`]: the tunnel is to be closed.
    pub fn on_q1(
        &mut self,
        now: Instant,
        proposal: &Proposal,
        material: &Material,
        rules: &Rules<'_>,
    ) -> Result<(), Violation> {
        let (count, psk) = (proposal.count, proposal.handshake == Handshake::Psk);
        if psk != rules.psk {
            return Err(Violation::Flow);
        }
        if psk && (self.answer_again(proposal) || !self.is_first(proposal)) {
            return Ok(());
        }
        // A replay would end nothing: without a tunnel, Q1 alone is no proof that A is there.
        let restarted = psk && count < self.next;
        if count >= MAX_ASSOCIATIONS || count < self.next && !restarted {
            return Err(Violation::Count(count));
        }
        if !psk {
            self.next = count + 1;
        }
        if proposal.at_once && (!psk || self.ends(proposal.ended.as_ref())) {
            self.live.retire(now);
        }
        self.proposed = None;
        let (answer, spis) = self.judge(now, proposal, material, rules);
        let body = answer.encode();
        if let Some(spis) = spis {
            let random_b = answer.own.as_ref().map(|(random, _)| random);
            let roots = roots(&material.exporter, proposal, random_b, spis);
            if proposal.handshake == Handshake::Short {
                self.establish(now, count, &roots, &proposal.selectors);
            } else {
                self.wait(Proposed {
                    count,
                    proof: roots.prove(&proposal.encode(), &body),
                    roots,
                    selectors: proposal.selectors.clone(),
                    messages: psk.then(|| (proposal.clone(), body.clone())),
                    restarted,
                });
            }
        }
        self.steps.push_back(send(LesKind::Q2, body));
        Ok(())
    }

    /// Has an association wait for the proof that A has its keys.
    fn wait(&mut self, association: Proposed) {
        if association.messages.is_none() {
            self.proposed = Some(association);
            return;
        }
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(association);
    }

    /// Says whether this Q1 of the PSK flow has not been here before: whoever repeats one that was recorded is heard no more.
    fn is_first(&mut self, proposal: &Proposal) -> bool {
        let hash = digest(&SHA256, &proposal.encode());
        let mut fingerprint = Fingerprint::default();
        let length = fingerprint.len();
        fingerprint.copy_from_slice(&hash.as_ref()[..length]);
        if self.had.contains(&fingerprint) {
            return false;
        }
        if self.had.len() >= REMEMBERED {
            self.had.pop_front();
        }
        self.had.push_back(fingerprint);
        true
    }

    /// Says whether `token` is that of the association that A has sent with last: of the newest, or
    /// of the one that was to be.
    fn ends(&self, token: Option<&EndToken>) -> bool {
        let is_own = |token: &EndToken| {
            let mut waiting = self.waiting.iter().map(|own| own.roots.end_token());
            self.token.as_ref() == Some(token) || waiting.any(|own| own == *token)
        };
        token.is_some_and(is_own)
    }

    /// Q2, and the names of the association if it begins.
    fn judge(
        &mut self,
        now: Instant,
        proposal: &Proposal,
        material: &Material,
        rules: &Rules<'_>,
    ) -> (Answer, Option<SpiPair>) {
        let known = proposal.peps.iter().map(|pep| rules.peps.contains(pep));
        let known: Vec<bool> = known.collect();
        let spis = self.names(proposal, material, rules);
        let (code, spis) = match (self.refusal(now, proposal, &known, rules), spis) {
            (Some(code), _) => (code, None),
            (None, None) => (AnswerCode::SpiInUse, None),
            (None, spis) => (AnswerCode::Accepted, spis),
        };
        if spis.is_some() {
            self.peps = known.contains(&true);
        }
        let own = spis.filter(|_| proposal.handshake != Handshake::Short);
        let answer = Answer {
            count: proposal.count,
            code,
            known,
            own: own.map(|spis| (material.random.clone(), spis.to_b)),
        };
        (answer, spis)
    }

    /// Sends Q2 of the PSK flow again, if `proposal` is the one that it has answered.
    fn answer_again(&mut self, proposal: &Proposal) -> bool {
        let mut messages = self.waiting.iter().filter_map(|own| own.messages.as_ref());
        let own = messages.find(|(asked, _)| asked == proposal);
        let answer = own.map(|(_, answer)| send(LesKind::Q2, answer.clone()));
        let again = answer.is_some();
        self.steps.extend(answer);
        again
    }

    /// Opens `datagram` into `out`, by an association that stands, or by one of the PSK flow that
    /// stands from its first packet on.
    ///
    /// # Errors
    /// [`Unopened`]: no association has it, or it is to be discarded.
    pub fn open(
        &mut self,
        now: Instant,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Delivered, Unopened> {
        let spi = spi_of(datagram);
        let proves = |own: &Proposed| {
            let (root, name) = (own.roots.header().clone(), own.roots.spis().to_b);
            spi == Some(name)
                && HeaderReader::new(root, name, Toward::B)
                    .open(datagram)
                    .is_ok()
        };
        if let Some(place) = self.waiting.iter().position(proves) {
            // A sends with its newest: those before are not used any more. One behind may be newer still.
            let own = self.waiting.drain(..=place).next_back();
            let own = own.expect("it is there");
            if own.restarted {
                // Counts of the process before say nothing about those of this one.
                self.live = Live::default();
            }
            self.next = own.count + 1;
            self.establish(now, own.count, &own.roots, &own.selectors);
        }
        self.live.open(now, datagram, out)
    }

    /// Names of both directions. `None`: one is in use, or was used in this tunnel.
    fn names(
        &self,
        proposal: &Proposal,
        material: &Material,
        rules: &Rules<'_>,
    ) -> Option<SpiPair> {
        let spis = match proposal.to_a {
            Some(to_a) => SpiPair {
                to_b: material.spi,
                to_a,
            },
            None => Roots::short_spis(&material.exporter)?,
        };
        let waits = |own: &Proposed| own.roots.spis().to_b == spis.to_b;
        let is_new = self.live.is_new(spis.to_b)
            && self.live.is_new(spis.to_a)
            && !self.waiting.iter().any(waits);
        let free = is_new && spis.to_b != spis.to_a && !(rules.taken)(spis.to_b);
        free.then_some(spis)
    }

    /// Reason why the association does not begin, but for its names.
    fn refusal(
        &mut self,
        now: Instant,
        proposal: &Proposal,
        known: &[bool],
        rules: &Rules<'_>,
    ) -> Option<AnswerCode> {
        let old = |begun: &Instant| now.saturating_duration_since(*begun) >= MINUTE;
        while self.begun.front().is_some_and(old) {
            self.begun.pop_front();
        }
        if self.begun.len() >= BEGUN_PER_MINUTE {
            return Some(AnswerCode::TooMany);
        }
        self.begun.push_back(now);
        let served = |own: &IpNet| rules.prefixes.iter().any(|prefix| prefix.contains(own));
        if !proposal.selectors.iter().all(served) {
            return Some(AnswerCode::SelectorRefused);
        }
        let all = known.iter().all(|known| *known);
        (!all).then_some(AnswerCode::PepUnknown)
    }

    /// Takes Q3.
    ///
    /// # Errors
    /// [`Violation`]: the tunnel is to be closed.
    pub fn on_q3(&mut self, now: Instant, body: &[u8]) -> Result<(), Violation> {
        let proof = Proof::parse(body)?;
        let own = self.proposed.take_if(|own| own.count == proof.count);
        let own = own.ok_or(Violation::Unasked("Q3", proof.count))?;
        verify_slices_are_equal(&own.proof, &proof.code)
            .map_err(|_| Violation::Proof(proof.count))?;
        self.establish(now, own.count, &own.roots, &own.selectors);
        Ok(())
    }

    fn establish(&mut self, now: Instant, count: u32, roots: &Roots, selectors: &[IpNet]) {
        let (sender, receiver) = roots.end_b();
        let spis = roots.spis();
        self.token = Some(roots.end_token());
        self.live.receive(count, receiver, spis.to_a, selectors);
        self.live.send(now, count, sender);
        self.steps.push_back(Step::Listen(spis.to_b));
        self.steps.push_back(Step::Established(count));
    }

    /// Step that is to be taken next.
    pub fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Associations that packets go by; those that come, [`open`](Self::open) takes.
    pub fn live(&mut self) -> &mut Live {
        &mut self.live
    }

    /// Says whether an association of this tunnel receives by `spi`.
    #[must_use]
    pub fn receives(&self, spi: Spi) -> bool {
        self.live.receives().any(|own| own == spi)
    }

    /// Moment at which an association ends, if one is to.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.live.deadline()
    }

    /// Erases associations whose time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.live.handle_timeout(now);
    }
}

/// Keys that both ends derive.
fn roots(
    exporter: &Exporter,
    proposal: &Proposal,
    random_b: Option<&Random>,
    spis: SpiPair,
) -> Roots {
    let random_b = random_b.map(Random::bytes);
    Roots::derive(
        exporter,
        proposal.count,
        proposal.random.bytes(),
        random_b,
        spis,
    )
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("next", &self.next)
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}
