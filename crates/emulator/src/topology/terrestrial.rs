//! The way between gateway and web where it takes time: a namespace between them, through which frames pass as they are and
//! leave later.
//!
//! ```text
//!  gateway  wan0 ─veth─ gateway0 ── delay ── web0 ─veth─ eth0  web
//! ```
//!
//! Frames that an offload has merged stay in one piece, as they do where nothing is between gateway and web.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bentpipe_config::Source;
use bentpipe_link::Scenario;
use bentpipe_sys::netns::{NetNs, NetNsGuard};

use super::setup;
use crate::emulator::{Emulator, Health, Running, Verdict, bring_up};

const TO_GATEWAY: &str = "gateway0";
const TO_WEB: &str = "web0";

/// Takes time and nothing else. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Terrestrial {
    frames: Running,
    namespace: NetNsGuard,
}

impl Terrestrial {
    /// Connects `wan0` of the gateway with `eth0` of the web through `namespace`, where each frame takes `delay`.
    pub(super) fn connect(
        namespace: NetNsGuard,
        gateway: &NetNs,
        web: &NetNs,
        delay: Duration,
    ) -> Result<Self> {
        setup::veth((gateway, "wan0"), (&namespace, TO_GATEWAY))?;
        setup::veth((web, "eth0"), (&namespace, TO_WEB))?;
        for device in [TO_GATEWAY, TO_WEB] {
            bring_up(&namespace, device)?;
        }
        let scenario = constant(delay)?.into();
        let emulator = namespace
            .enter(|| Emulator::between_interfaces(&scenario, TO_GATEWAY, TO_WEB))?
            .context("between gateway and web")?;
        Ok(Self {
            frames: emulator.spawn()?,
            namespace,
        })
    }

    pub(super) fn namespace(&self) -> &NetNs {
        &self.namespace
    }

    /// Ends it, and says whether what was measured over it may be believed.
    pub(super) fn stop(self) -> Result<Verdict> {
        let stats = self.frames.stop().context("between gateway and web")?;
        // It has no rate that could mistake them for one packet.
        let health = Health {
            merged_frames: 0,
            ..stats.emulator
        };
        Ok(health.verdict())
    }
}

/// As fast as makes no difference.
fn constant(delay: Duration) -> Result<Scenario> {
    let text = format!(
        "[scenario]\nname = \"terrestrial\"\nseed = 1\n\
         [orbit]\nmodel = \"constant\"\none_way_delay = \"{} ns\"\n\
         [forward]\nstandard = \"cbr\"\nbit_rate = \"10 Gbit/s\"\n\
         [return]\nstandard = \"cbr\"\nbit_rate = \"10 Gbit/s\"\n\
         [queue]\nlimit = \"64 MB\"\n",
        delay.as_nanos()
    );
    Ok(Source::new(Path::new("terrestrial"), text).parse()?)
}
