//! The seam between quinn's idea of congestion control (a window) and ours (a window and a rate).
//!
//! quinn-proto asks a `Controller` how large the window is before every datagram. We answer "very
//! large" while our own loop permits sending and "one byte" while it does not: with the gate shut,
//! `poll_transmit` still yields what must never wait (pure ACKs, probes, path challenges). Bytes in
//! flight, delivery-rate samples and the real controller live behind the same handle. Not here: when
//! the gate opens (`connection/sending.rs`) and how the window moves (crate `congestion`).

mod path_controller;
mod quic;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bentpipe_congestion::{
    AckSample, Config, Controller, Kind as ControllerKind, RateSample, RateSampler, Saved,
};
use bentpipe_proto::fec::{Loss, LossMeter};
use bentpipe_units::BitRate;

use path_controller::PathController;

/// Above 2^32 quinn's own pacer is off as well.
const OPEN: u64 = 1 << 40;
const SHUT: u64 = 1;

/// Bytes of UDP payload that every path carries which QUIC can use (RFC 9000 §14); a connection sends no larger ones until more is known.
pub const LEAST_MTU: u16 = 1200;

/// State that the loop and quinn share for one connection. quinn wants `Send + Sync`; both sides run on
/// the shard's thread, so the lock is never contended.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Mutex<Flight>>);

/// The controller and the bytes in flight of one connection.
pub(crate) struct Flight {
    open: bool,
    path: PathController,
    sampler: RateSampler,
    in_flight: u64,
    /// Bytes that left through the open gate and are not charged yet.
    uncharged: u64,
    /// The batch of acknowledgements being processed: bytes, send time of the newest, RTT estimate.
    batch: Option<AllowedBatch>,
    /// Set by `connection/sending.rs`: nothing to send although the gate was open.
    app_limited: bool,
    /// Bytes declared lost since the loop last asked: quinn will send their content again.
    lost: u64,
    pub(crate) progress: Progress,
    /// Meter of the losses of the path.
    meter: LossMeter,
    /// Bytes declared lost since the last batch of acknowledgements.
    newly_lost: u64,
    /// Bytes of the packet that was acknowledged last.
    newest_acked: u64,
    /// Time for which the receiver may hold acknowledgements back beyond what controllers count with.
    ack_delay: Duration,
    delivery: Delivery,
    /// Instant at which the first datagram above [`LEAST_MTU`] left after which none of such was acknowledged.
    unproven: Option<Instant>,
}

/// Rate at which the path has delivered lately: the highest of the last samples, and a little more, so
/// that a window that follows it grows where nothing but the window holds the rate down.
#[derive(Default)]
struct Delivery {
    rate: BitRate,
}

impl Delivery {
    /// Samples after which a higher one is forgotten, about.
    const MEMORY: u64 = 8;

    fn on_sample(&mut self, sample: &RateSample) {
        let before = self.rate.as_u64();
        // A sender with little to send says nothing of the path.
        let kept = if sample.app_limited {
            before
        } else {
            before - before / Self::MEMORY
        };
        let seen = sample.rate.as_u64();
        self.rate = BitRate::bits_per_second(kept.max(seen.saturating_add(seen / 4)));
    }
}

struct AllowedBatch {
    bytes: u64,
    newest_sent: Instant,
}

/// Progress of acknowledgements, for the outage prober.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// Instant at which something ack-eliciting was last acknowledged, or first sent after a silence.
    pub(crate) since: Instant,
    /// About one PTO without backoff.
    pub(crate) pto: Duration,
    /// Instant at which the newest of what was acknowledged had been sent.
    pub(crate) newest_sent: Option<Instant>,
}

impl Gate {
    pub(crate) fn new(kind: ControllerKind, config: Config, now: Instant) -> Self {
        let pto = config.initial_rtt * 3;
        Self(Arc::new(Mutex::new(Flight {
            open: false,
            path: PathController::new(kind, config, now),
            sampler: RateSampler::new(now),
            in_flight: 0,
            uncharged: 0,
            batch: None,
            app_limited: true,
            lost: 0,
            progress: Progress {
                since: now,
                pto,
                newest_sent: None,
            },
            meter: LossMeter::default(),
            newly_lost: 0,
            newest_acked: 0,
            ack_delay: Duration::ZERO,
            delivery: Delivery::default(),
            unproven: None,
        })))
    }

    pub(crate) fn flight(&self) -> MutexGuard<'_, Flight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other settings for a live connection. What is in flight stays so, and its acknowledgements go to the new controller,
    /// which is told what the old one has learned.
    pub(crate) fn reconfigure(&self, now: Instant, kind: ControllerKind, config: Config) {
        self.flight().path.reconfigure(now, kind, config);
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.flight().open = open;
    }
}

impl Flight {
    /// Congestion controller at work.
    pub(crate) fn controller(&self) -> &Controller {
        self.path.get()
    }

    /// Congestion controller at work, to tell it something.
    pub(crate) fn controller_mut(&mut self) -> &mut Controller {
        self.path.get_mut()
    }

    /// Bytes that may be in flight: the controller's window, and what the receiver may have and not acknowledge yet.
    pub(crate) fn window(&self) -> u64 {
        let rate = self.controller().pacing_rate().min(self.delivery.rate);
        self.controller().window() + rate.bytes_in(self.ack_delay).as_u64()
    }

    /// Rate at which the path has delivered lately, or a little more.
    pub(crate) fn delivery_rate(&self) -> BitRate {
        self.delivery.rate
    }

    /// Bytes that may still be sent before the window is full.
    pub(crate) fn room(&self) -> u64 {
        self.window().saturating_sub(self.in_flight)
    }

    /// The receiver may hold acknowledgements back for so long, and windows are to allow for that.
    pub(crate) fn set_ack_delay(&mut self, delay: Duration) {
        self.ack_delay = delay;
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The gate was open and there was nothing to send: rate samples up to here say nothing about
    /// the path.
    pub(crate) fn set_app_limited(&mut self) {
        self.app_limited = true;
        self.sampler.set_app_limited(self.in_flight);
    }

    /// Notes that what leaves now is as little a sign of the path's rate as what left before.
    pub(crate) fn keep_app_limited(&mut self) {
        if self.app_limited {
            self.set_app_limited();
        }
    }

    pub(crate) fn clear_app_limited(&mut self) {
        self.app_limited = false;
    }

    /// Notes that datagrams of `size` bytes leave, which the path is believed to take.
    pub(crate) fn on_datagrams(&mut self, now: Instant, size: usize) {
        if size > usize::from(LEAST_MTU) {
            self.unproven.get_or_insert(now);
        }
    }

    /// Instant at which the first datagram left that is larger than every path takes and after which none of such was
    /// acknowledged.
    pub(crate) fn unproven(&self) -> Option<Instant> {
        self.unproven
    }

    /// Announces that quinn is to look for the MTU anew, on the present path: what was learned of that is kept.
    pub(crate) fn keep_path(&mut self) {
        self.unproven = None;
        self.path.keep();
    }

    /// Shuts the gate and charges what left through it, if it is to be acknowledged: quinn reports
    /// pure ACKs as sent too, and would never report them as gone.
    pub(crate) fn close_gate(&mut self, now: Instant, ack_eliciting: bool) {
        self.open = false;
        let bytes = std::mem::take(&mut self.uncharged);
        if bytes == 0 || !ack_eliciting {
            return;
        }
        if self.in_flight == 0 {
            self.progress.since = now;
        }
        self.in_flight += bytes;
        self.sampler.on_sent(now, bytes, self.in_flight);
        self.path.get_mut().on_sent(now, bytes, self.in_flight);
    }

    /// Knowledge of the path, for the next connection.
    pub(crate) fn saved(&self, now: Instant) -> Option<Saved> {
        self.controller().saved(now)
    }

    /// The path is known from an earlier connection; false if the controller makes no use of that.
    pub(crate) fn resume(&mut self, now: Instant, saved: Saved) -> bool {
        self.meter.expect(saved.loss.as_f64());
        self.path.resume(now, saved)
    }

    /// The peer saw a train arrive at `rate`, in UDP payload.
    pub(crate) fn hint(&mut self, now: Instant, rate: BitRate) {
        self.path.hint(now, rate);
    }

    pub(crate) fn resumed(&self) -> Option<Saved> {
        self.path.resumed()
    }

    /// Takes the share that is probably lost from somebody who should know.
    pub(crate) fn expect_loss(&mut self, share: f64) {
        self.meter.expect(share);
    }

    /// Loss of the path, if that is worth a remedy.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.meter.loss()
    }

    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Length of `bytes` in full packets.
    fn packets(&self, bytes: u64) -> f64 {
        bytes as f64 / f64::from(self.path.mtu().unwrap_or(LEAST_MTU))
    }

    fn end_acks(&mut self, now: Instant, in_flight: u64) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        self.in_flight = in_flight;
        let lost = std::mem::take(&mut self.newly_lost);
        let (acked, lost) = (self.packets(batch.bytes), self.packets(lost));
        self.meter.on_ack(acked, lost);
        let rate = self.sampler.end_acks(now);
        if let Some(sample) = &rate {
            self.delivery.on_sample(sample);
        }
        self.path.get_mut().on_ack(&AckSample {
            now,
            newly_acked: batch.bytes,
            rtt: Some(now.saturating_duration_since(batch.newest_sent)),
            newest_sent: batch.newest_sent,
            in_flight,
            app_limited: self.app_limited,
            rate,
        });
        self.progress.since = now;
        self.progress.newest_sent = self.progress.newest_sent.max(Some(batch.newest_sent));
    }
}
