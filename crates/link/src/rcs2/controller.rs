//! The network control centre's part: who gets how many timeslots of a superframe, with which waveform.
//!
//! In the order of EN 301 545-2 §8.3: continuous assignment (CRA), rate-based requests (RBDC) in proportion to what was asked
//! where they exceed what is left, volume-based requests (VBDC), and what then remains, free (FCA). Timeslots are whole, the
//! rates are not: what rounding gave or took is settled in the next superframes, so that a terminal has in the mean what
//! it was granted. OpenSAND's way, rounding up each time, can be had for comparison.

use std::time::Duration;

use bentpipe_units::{BitRate, ByteCount, Decibel};

use super::waveform::{Waveform, WaveformSet};

/// Slots that a terminal may be owed at most: what a busy carrier could not settle at once.
const MOST_CREDIT: f64 = 8.0;

/// Contract of a terminal: the capacity that it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Contract {
    /// Always, asked for or not.
    pub(crate) cra: BitRate,
    /// At most this by rate-based requests.
    pub(crate) rbdc_max: BitRate,
    /// At most this per volume-based request.
    pub(crate) vbdc_max: ByteCount,
    /// The terminal gets a part of what nobody asked for.
    pub(crate) fca: bool,
}

/// Request of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Request {
    /// A rate, until it times out or another request replaces it.
    pub(crate) rbdc: BitRate,
    /// A volume, besides what was asked before.
    pub(crate) vbdc: ByteCount,
}

/// Way in which timeslots are shared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sharing {
    pub(crate) superframe: Duration,
    /// Timeslots of a superframe.
    pub(crate) slots: u32,
    pub(crate) waveforms: WaveformSet,
    pub(crate) margin: Decibel,
    pub(crate) hysteresis: Decibel,
    /// After so many superframes a rate is no longer granted.
    pub(crate) rbdc_timeout: u64,
    /// Slots of each superframe that terminals ask for which are not modelled one by one.
    pub(crate) background: f64,
    /// Every terminal has the same part of the carrier, always.
    pub(crate) dedicated: bool,
    /// OpenSAND's payloads, and each grant rounded up.
    pub(crate) opensand: bool,
}

/// One terminal's part of a superframe.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Grant {
    pub(crate) slots: u32,
    pub(crate) waveform: Option<&'static Waveform>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    contract: Contract,
    rbdc: BitRate,
    /// The superframe from which on `rbdc` no longer counts.
    expires: u64,
    /// Bytes asked for and not granted yet.
    vbdc: u64,
    /// Slots owed to the terminal; below zero where it has had more than its rate.
    credit: f64,
    waveform: Option<&'static Waveform>,
    logged_on: bool,
}

/// Requests and credits of all terminals.
#[derive(Debug, Clone)]
pub(crate) struct Controller {
    sharing: Sharing,
    accounts: Vec<Account>,
    background_credit: f64,
}

impl Controller {
    pub(crate) fn new(sharing: Sharing, contracts: &[Contract]) -> Self {
        let account = |contract: &Contract| Account {
            contract: *contract,
            ..Account::default()
        };
        Self {
            sharing,
            accounts: contracts.iter().map(account).collect(),
            background_credit: 0.0,
        }
    }

    /// Admits a terminal, or forgets it and all that it asked for.
    pub(crate) fn set_logged_on(&mut self, terminal: usize, logged_on: bool) {
        let account = &mut self.accounts[terminal];
        *account = Account {
            contract: account.contract,
            logged_on,
            ..Account::default()
        };
    }

    /// Takes a request that counts from superframe `now` on.
    pub(crate) fn receive(&mut self, now: u64, terminal: usize, request: Request) {
        let timeout = self.sharing.rbdc_timeout;
        let account = &mut self.accounts[terminal];
        if !account.logged_on {
            return;
        }
        account.rbdc = request.rbdc.min(account.contract.rbdc_max);
        account.expires = now + timeout;
        let volume = request.vbdc.min(account.contract.vbdc_max);
        account.vbdc = account.vbdc.saturating_add(volume.as_u64());
    }

    /// Shares superframe `now`; `es_n0` is how well each terminal is heard, or `None` if it does not hear the gateway.
    pub(crate) fn allocate(
        &mut self,
        now: u64,
        es_n0: impl Fn(usize) -> Option<Decibel>,
    ) -> Vec<Grant> {
        for (terminal, account) in self.accounts.iter_mut().enumerate() {
            let Sharing {
                waveforms,
                margin,
                hysteresis,
                ..
            } = &self.sharing;
            account.waveform = es_n0(terminal)
                .filter(|_| account.logged_on)
                .and_then(|level| waveforms.select(level, *margin, *hysteresis, account.waveform));
            if account.expires <= now {
                account.rbdc = BitRate::default();
            }
        }
        let mut slots = vec![0; self.accounts.len()];
        let mut left = self.sharing.slots;
        if self.sharing.dedicated {
            self.share_free(now, &mut left, &mut slots, |_| true);
        } else {
            self.grant_rates(now, &mut left, &mut slots);
            self.grant_volumes(now, &mut left, &mut slots);
            self.share_free(now, &mut left, &mut slots, |contract| contract.fca);
        }
        let grants = self.accounts.iter().zip(slots);
        let grants = grants.map(|(account, slots)| Grant {
            slots,
            waveform: account.waveform,
        });
        grants.collect()
    }

    /// Bytes in a slot of this terminal; `None` if it has no waveform.
    fn payload(&self, terminal: usize) -> Option<f64> {
        let waveform = self.accounts[terminal].waveform?;
        Some(f64::from(payload(waveform, self.sharing.opensand)))
    }

    /// A rate in slots per superframe.
    fn slots_of(&self, terminal: usize, rate: BitRate) -> f64 {
        let bytes = rate.as_u64() as f64 * self.sharing.superframe.as_secs_f64() / 8.0;
        self.payload(terminal)
            .map_or(0.0, |payload| bytes / payload)
    }

    /// CRA, and of RBDC what fits beside it.
    fn grant_rates(&mut self, now: u64, left: &mut u32, slots: &mut [u32]) {
        let terminals = 0..self.accounts.len();
        let rates = |rate: fn(&Account) -> BitRate| -> Vec<f64> {
            let slots = terminals
                .clone()
                .map(|terminal| self.slots_of(terminal, rate(&self.accounts[terminal])));
            slots.collect()
        };
        let cra = rates(|account| account.contract.cra);
        let rbdc = rates(|account| account.rbdc);
        let total = f64::from(self.sharing.slots);
        let fixed: f64 = cra.iter().sum();
        let background = self.sharing.background;
        let asked = rbdc.iter().sum::<f64>() + background;
        let cra_share = share(total, fixed);
        let rbdc_share = share((total - fixed).max(0.0), asked);
        for terminal in rotation(now, self.accounts.len()) {
            let [cra, rbdc] = [cra[terminal] * cra_share, rbdc[terminal] * rbdc_share];
            let account = &mut self.accounts[terminal];
            let wanted = if self.sharing.opensand {
                (cra.ceil() + rbdc.ceil()) as u32
            } else {
                account.credit = (account.credit + cra + rbdc).min(MOST_CREDIT.max(cra + rbdc));
                // Who asks for a rate gets something in every superframe, however small the rate.
                whole(account.credit).max(u32::from(rbdc > 0.0))
            };
            let granted = wanted.min(*left);
            account.credit = (account.credit - f64::from(granted)).max(-1.0);
            slots[terminal] = granted;
            *left -= granted;
        }
        self.background_credit = (self.background_credit + background * rbdc_share).min(total);
        let taken = (self.background_credit.floor() as u32).min(*left);
        self.background_credit -= f64::from(taken);
        *left -= taken;
    }

    fn grant_volumes(&mut self, now: u64, left: &mut u32, slots: &mut [u32]) {
        let wants: Vec<f64> = (0..self.accounts.len())
            .map(|terminal| {
                let payload = self.payload(terminal);
                payload.map_or(0.0, |payload| self.accounts[terminal].vbdc as f64 / payload)
            })
            .collect();
        let part = share(f64::from(*left), wants.iter().sum());
        for terminal in rotation(now, self.accounts.len()) {
            let Some(payload) = self.payload(terminal).filter(|_| wants[terminal] > 0.0) else {
                continue;
            };
            let granted = ((wants[terminal] * part).ceil() as u32).min(*left);
            slots[terminal] += granted;
            *left -= granted;
            let account = &mut self.accounts[terminal];
            let served = (f64::from(granted) * payload) as u64;
            account.vbdc = account.vbdc.saturating_sub(served);
        }
    }

    /// Shares what is left, in equal parts, among all terminals that may have some.
    fn share_free(
        &self,
        now: u64,
        left: &mut u32,
        slots: &mut [u32],
        may: impl Fn(&Contract) -> bool,
    ) {
        let candidates: Vec<_> = rotation(now, self.accounts.len())
            .filter(|terminal| {
                let account = &self.accounts[*terminal];
                may(&account.contract) && account.waveform.is_some()
            })
            .collect();
        for (index, terminal) in candidates.iter().enumerate() {
            let others = u32::try_from(candidates.len() - index).unwrap_or(u32::MAX);
            let granted = left.div_ceil(others);
            slots[*terminal] += granted;
            *left -= granted;
        }
    }
}

/// Bytes of a burst.
pub(crate) const fn payload(waveform: &Waveform, opensand: bool) -> u32 {
    if opensand {
        waveform.opensand_payload()
    } else {
        waveform.payload
    }
}

/// By how much wishes must shrink to fit.
fn share(available: f64, wanted: f64) -> f64 {
    if wanted > available {
        available / wanted
    } else {
        1.0
    }
}

/// Whole slots that settle a credit, rounded up; a billionth over a whole number is an error of addition.
fn whole(credit: f64) -> u32 {
    (credit - 1e-9).ceil().max(0.0) as u32
}

/// All terminals, each superframe beginning with another one.
fn rotation(now: u64, count: usize) -> impl Iterator<Item = usize> {
    let first = usize::try_from(now % u64::try_from(count.max(1)).unwrap_or(1)).unwrap_or(0);
    (0..count).map(move |index| (first + index) % count)
}
