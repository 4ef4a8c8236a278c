//! Segments of a TLS wire that came behind a missing one: what they carry waits until that is repaired.

use tokio::net::TcpStream;

/// Counts of one TCP connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LateSegments {
    /// Counters of the kernel at the last look: all segments, and the late ones. They wrap around.
    seen: [u32; 2],
    total: [u64; 2],
}

impl LateSegments {
    /// Looks at the counters of `tcp`; `None` if the kernel has none.
    #[cfg(target_os = "linux")]
    pub(super) fn count(&mut self, tcp: &TcpStream) -> Option<()> {
        let arrivals = bentpipe_sys::tcp_arrivals::TcpArrivals::of(tcp).ok()?;
        self.add([arrivals.segments, arrivals.out_of_order]);
        Some(())
    }

    /// Other kernels do not tell.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn count(&mut self, _tcp: &TcpStream) -> Option<()> {
        None
    }

    fn add(&mut self, counters: [u32; 2]) {
        for (index, counter) in counters.into_iter().enumerate() {
            let grown = counter.wrapping_sub(self.seen[index]);
            self.total[index] += u64::from(grown);
        }
        self.seen = counters;
    }

    /// Share of late segments in all of them, 0 to 1.
    pub(super) fn ratio(self) -> f64 {
        let [all, late] = self.total;
        late as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_wrap_around_go_on() {
        let mut late = LateSegments::default();
        assert_eq!(late.ratio(), 0.0);
        late.add([u32::MAX - 99, 100]);
        late.add([100, 1 << 31]);
        assert_eq!(late.total, [(1 << 32) + 100, 1 << 31]);
        assert!((late.ratio() - 0.5).abs() < 1e-6);
    }
}
