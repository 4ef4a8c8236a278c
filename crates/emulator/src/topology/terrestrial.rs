//! The way between gateway and web where it takes time, has a rate or loses: a namespace between them, through which frames
//! pass and leave later.
//!
//! ```text
//!  gateway  wan0 ─veth─ gateway0 ── link ── web0 ─veth─ eth0  web
//! ```
//!
//! Where it only takes time, frames that an offload has merged stay in one piece, as they do where nothing is between gateway
//! and web. A rate and losses count packets: there both devices are kept from merging them.

use std::path::Path;

use anyhow::{Context as _, Result};
use bentpipe_config::Source;
use bentpipe_link::{Counters, Scenario};
use bentpipe_sys::netns::{NetNs, NetNsGuard};
use bentpipe_units::{BitRate, Seed};

use super::{Behind, setup};
use crate::emulator::{Emulator, Health, Running, Verdict, bring_up};

const TO_GATEWAY: &str = "gateway0";
const TO_WEB: &str = "web0";

/// Rate of a direction that has none: as fast as makes no difference.
const UNBOUNDED: BitRate = BitRate::megabits_per_second(10_000);
/// Queue in front of a rate, in bytes: what a cable modem of 2004 held.
const MODEM_QUEUE: u64 = 64_000;
const UNBOUNDED_QUEUE: u64 = 64_000_000;

/// The link between gateway and web. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Terrestrial {
    frames: Running,
    namespace: NetNsGuard,
    by_packet: bool,
}

impl Terrestrial {
    /// Connects `wan0` of the gateway with `eth0` of the web through `namespace`, which is as `behind` says.
    /// Losses follow from `seed`.
    pub(super) fn connect(
        namespace: NetNsGuard,
        [gateway, web]: [&NetNs; 2],
        behind: &Behind,
        seed: Seed,
    ) -> Result<Self> {
        setup::veth((gateway, "wan0"), (&namespace, TO_GATEWAY))?;
        setup::veth((web, "eth0"), (&namespace, TO_WEB))?;
        for device in [TO_GATEWAY, TO_WEB] {
            bring_up(&namespace, device)?;
        }
        if behind.is_by_packet() {
            for (node, device) in [(gateway, "wan0"), (web, "eth0")] {
                node.run("ip", &["link", "set", device, "gso_max_segs", "1"])?;
            }
        }
        let scenario = scenario(behind, seed)?.into();
        let emulator = namespace
            .enter(|| Emulator::between_interfaces(&scenario, TO_GATEWAY, TO_WEB))?
            .context("between gateway and web")?;
        Ok(Self {
            frames: emulator.spawn()?,
            namespace,
            by_packet: behind.is_by_packet(),
        })
    }

    pub(super) fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// Ends the way; says whether what was measured over it may be believed, and which packets it carried and dropped, from the web
    /// and to it.
    pub(super) fn stop(self) -> Result<(Verdict, [Counters; 2])> {
        let stats = self.frames.stop().context("between gateway and web")?;
        let health = Health {
            // Without rate and losses nothing mistakes them for one packet.
            merged_frames: match self.by_packet {
                true => stats.emulator.merged_frames,
                false => 0,
            },
            ..stats.emulator
        };
        Ok((health.verdict(), [stats.forward_link, stats.return_link]))
    }
}

/// The link as a scenario: forward is from web to gateway.
fn scenario(behind: &Behind, seed: Seed) -> Result<Scenario> {
    let queue = |rate: Option<BitRate>| rate.map_or(UNBOUNDED_QUEUE, |_| MODEM_QUEUE);
    let loss = behind
        .loss
        .map(|loss| format!("[errors]\nmodel = \"iid\"\nrate = \"{loss}\"\n"));
    let table = |name, rate: Option<BitRate>| {
        let bit_rate = rate.unwrap_or(UNBOUNDED).as_u64();
        format!(
            "[{name}]\nstandard = \"cbr\"\nbit_rate = \"{bit_rate} bit/s\"\n\
             [[queue]]\nname = \"{name}\"\npriority = 0\ndirection = \"{name}\"\nlimit = \"{} B\"\n",
            queue(rate)
        )
    };
    let text = format!(
        "[scenario]\nname = \"terrestrial\"\nseed = {}\n\
         [orbit]\nmodel = \"constant\"\none_way_delay = \"{} ns\"\n{}{}{}",
        // TOML's integers have a sign.
        seed.as_u64() >> 1,
        behind.delay.as_nanos(),
        table("forward", behind.uplink),
        table("return", behind.downlink),
        loss.unwrap_or_default(),
    );
    Ok(Source::new(Path::new("terrestrial"), text).parse()?)
}

#[cfg(test)]
mod tests {
    use bentpipe_link::{Errors, Files};
    use bentpipe_units::Ratio;

    use super::*;

    #[test]
    fn rates_and_losses_are_those_behind_the_gateway() {
        let rate = |kbit| Some(BitRate::kilobits_per_second(kbit));
        let behind = Behind {
            uplink: rate(384),
            loss: Ratio::new(0.005),
            ..Behind::default()
        };
        let seed = Seed::new(u64::MAX);
        let built = |behind| scenario(&behind, seed).unwrap().build(&Files::new());
        let read = scenario(&behind, seed).unwrap();
        assert!(matches!(read.errors, Errors::Iid { rate, .. } if Some(rate) == behind.loss));
        let rates = built(behind).unwrap().nominal_rates();
        assert_eq!(
            [Some(rates[0]), Some(rates[1])],
            [rate(384), rate(10_000_000)]
        );
        let behind = Behind {
            downlink: rate(3000),
            ..Behind::default()
        };
        assert_eq!(Some(built(behind).unwrap().nominal_rates()[1]), rate(3000));
        assert!(built(Behind::default()).is_ok());
    }
}
