//! The gate as quinn sees it: a congestion controller that hears of packets, and answers with a window that is open or shut.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_congestion::{LossSample, RateSampler};
use bentpipe_proto::fec::LossMeter;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller as QuicController, ControllerFactory, ControllerMetrics};

use super::path_controller::Change;
use super::{AllowedBatch, Delivery, Gate, LEAST_MTU, OPEN, SHUT};

impl QuicController for Gate {
    fn on_sent(&mut self, _now: Instant, bytes: u64, _last_packet_number: u64) {
        let mut flight = self.flight();
        if flight.open {
            flight.uncharged += bytes;
        }
    }

    fn on_ack(
        &mut self,
        _now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let mut flight = self.flight();
        flight.sampler.on_ack(sent, bytes);
        flight.newest_acked = bytes;
        if bytes > u64::from(LEAST_MTU) {
            flight.unproven = None;
        }
        // RFC 9002 §6.2.1 adds four times the variation, which quinn does not show; half the RTT
        // covers what an idle satellite path varies.
        flight.progress.pto = rtt.conservative().mul_f32(1.5);
        let batch = flight.batch.get_or_insert(AllowedBatch {
            bytes: 0,
            newest_sent: sent,
        });
        batch.bytes += bytes;
        batch.newest_sent = batch.newest_sent.max(sent);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        self.flight().end_acks(now, in_flight);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        lost_bytes: u64,
    ) {
        let mut flight = self.flight();
        flight.in_flight = flight.in_flight.saturating_sub(lost_bytes);
        flight.lost += lost_bytes;
        flight.newly_lost += lost_bytes;
        // quinn's word for an ACK that reports marks. The receiver sent it for the newest packet in it.
        let ecn = lost_bytes == 0;
        if ecn {
            let packet = flight.packets(flight.newest_acked);
            flight.meter.on_marked(packet);
        }
        let at_send = flight.sampler.on_loss(sent, lost_bytes);
        let sample = LossSample {
            now,
            lost: lost_bytes,
            newest_sent: sent,
            in_flight: flight.in_flight,
            persistent,
            ecn,
            at_send,
        };
        flight.controller_mut().on_loss(&sample);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        let mut flight = self.flight();
        flight.path.on_mtu(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.flight().open { OPEN } else { SHUT }
    }

    fn metrics(&self) -> ControllerMetrics {
        let flight = self.flight();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = flight.controller().window();
        metrics.pacing_rate = Some(flight.controller().pacing_rate().as_u64());
        metrics
    }

    fn clone_box(&self) -> Box<dyn QuicController> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        OPEN
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// quinn builds a controller for a connection's first path, again when the peer's address changes to another network (RFC 9000
/// §9.4), where what was learned of the old path is dropped, and when it is to look for the MTU anew.
impl ControllerFactory for Gate {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn QuicController> {
        let mut flight = self.flight();
        if flight.path.change_path(now, mtu) == Change::Mtu {
            drop(flight);
            return Box::new((*self).clone());
        }
        flight.sampler = RateSampler::new(now);
        flight.in_flight = 0;
        flight.batch = None;
        flight.meter = LossMeter::default();
        flight.delivery = Delivery::default();
        drop(flight);
        Box::new((*self).clone())
    }
}
