//! The link budget: carrier to noise of what a receiver hears, from both hops through a transparent satellite.
//!
//! Noise of the uplink is amplified with the carrier and adds to that of the downlink, so the two ratios combine as
//! `1 / total = 1 / up + 1 / down` (linear). Attenuation lowers a hop's ratio; the receiver's implementation loss comes
//! off the total. Interference and power control are not modelled.

use std::time::Duration;

use bentpipe_units::Decibel;

use crate::attenuation::Attenuation;

/// One hop, up to the satellite or down from it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hop {
    /// C/N without attenuation.
    pub(crate) clear_sky: Decibel,
    pub(crate) attenuation: Attenuation,
}

impl Hop {
    fn cn(&self, at: Duration) -> Decibel {
        self.clear_sky - Decibel::new(self.attenuation.at(at))
    }
}

/// One direction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Budget {
    pub(crate) uplink: Hop,
    pub(crate) downlink: Hop,
    pub(crate) implementation_loss: Decibel,
}

impl Budget {
    /// C/N of what is received at `at`, `extra` decibels of the terminal's hop missing besides.
    pub(crate) fn cn(&self, at: Duration, up_extra: Decibel, down_extra: Decibel) -> Decibel {
        let up = self.uplink.cn(at) - up_extra;
        let down = self.downlink.cn(at) - down_extra;
        combined(up, down) - self.implementation_loss
    }
}

/// C/N after two hops.
pub(crate) fn combined(up: Decibel, down: Decibel) -> Decibel {
    -Decibel::from_power_ratio((-up).power_ratio() + (-down).power_ratio())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(clear_sky: f64, attenuation: f64) -> Hop {
        Hop {
            clear_sky: Decibel::new(clear_sky),
            attenuation: Attenuation::Constant(attenuation),
        }
    }

    #[test]
    fn twenty_and_twenty_are_seventeen() {
        let total = |fade| {
            let budget = Budget {
                uplink: hop(20.0, 0.0),
                downlink: hop(20.0, fade),
                implementation_loss: Decibel::ZERO,
            };
            budget
                .cn(Duration::ZERO, Decibel::ZERO, Decibel::ZERO)
                .as_f64()
        };
        // As recorded in OpenSAND's own probes: 16.99 dB in clear sky, 13.03 dB after 6 dB on the downlink.
        assert!((total(0.0) - 16.99).abs() < 0.005);
        assert!((total(6.0) - 13.03).abs() < 0.005);
        assert!((total(5.0) - 13.81).abs() < 0.005);
    }

    #[test]
    fn losses_come_off() {
        let budget = Budget {
            uplink: hop(1000.0, 0.0),
            downlink: hop(10.0, 2.0),
            implementation_loss: Decibel::new(0.5),
        };
        let cn = budget.cn(Duration::ZERO, Decibel::ZERO, Decibel::new(1.0));
        assert!((cn.as_f64() - 6.5).abs() < 1e-9, "{cn}");
    }
}
