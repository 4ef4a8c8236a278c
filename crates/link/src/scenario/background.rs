//! `[background]`: the load of terminals that are not modelled one by one.

use bentpipe_units::{BitRate, ByteCount};
use serde::{Deserialize, Serialize};

use super::ScenarioError;
use crate::channel::BackgroundModel;
use crate::ids::Way;

/// `[background]`: packets of others, at random instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Background {
    /// Gateway to terminals, on average; IP-layer bit/s.
    pub forward: BitRate,
    /// Terminals to gateway.
    #[serde(rename = "return")]
    pub back: BitRate,
    /// For how many terminals the load counts where capacity is shared.
    pub terminals: u16,
    /// The size of its packets.
    pub packet: ByteCount,
    /// MODCOD that it is sent with on DVB-S2; the most efficient in use if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modcod: Option<u8>,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            forward: BitRate::default(),
            back: BitRate::default(),
            terminals: 1,
            packet: ByteCount::new(1500),
            modcod: None,
        }
    }
}

/// Loads are simulated packet by packet; more of them in a second keep no pace with the clock.
const MOST_PACKETS: u64 = 1_000_000;

impl Background {
    pub(super) fn model(&self, way: Way) -> Result<Option<BackgroundModel>, ScenarioError> {
        let rate = match way {
            Way::Forward => self.forward,
            Way::Return => self.back,
        };
        if rate.as_u64() == 0 {
            return Ok(None);
        }
        let error = |key: &str, problem: String| {
            Err(ScenarioError::new(format!("background.{key}"), problem))
        };
        if !(20..=65_535).contains(&self.packet.as_u64()) {
            let problem = format!("is {}; IP packets have 20 B to 65535 B", self.packet);
            return error("packet", problem);
        }
        let packets = rate.as_u64() / 8 / self.packet.as_u64();
        if packets > MOST_PACKETS {
            let problem = format!("is {rate}, {packets} packets a second; at most {MOST_PACKETS}");
            return error(way.name(), problem);
        }
        if self.terminals == 0 {
            return error("terminals", "is 0; a load comes from someone".to_owned());
        }
        Ok(Some(BackgroundModel {
            rate,
            packet: self.packet,
            terminals: self.terminals,
        }))
    }
}
