//! Round-trip time of a link before the first run over it, which says whether runs are to be believed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A link as a datagram finds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkCheck {
    /// Time at which the check began, in seconds since 1970: two checks that found the same are still two.
    #[serde(default)]
    pub began: u64,
    /// The round-trip time that the model promises, in milliseconds.
    pub expected_rtt_ms: f64,
    /// The median of those measured; none if nothing came back.
    pub rtt_ms: Option<f64>,
    /// Datagrams that came back, of those sent.
    pub answered: [u32; 2],
    /// The emulator's verdict.
    pub verdict: String,
}

/// Milliseconds that clocks may take from a round-trip time.
const TOLERANCE_MS: f64 = 2.0;

impl LinkCheck {
    /// Reason why no run over the link is to be believed; none if they may be.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let expected = self.expected_rtt_ms;
        match self.rtt_ms {
            None => Some(format!(
                "the link's check without a contender: none of {} datagrams came back",
                self.answered[1]
            )),
            Some(rtt) if rtt + TOLERANCE_MS < expected => Some(format!(
                "the link's check without a contender: an RTT of {rtt:.1} ms where {expected:.1} ms are promised"
            )),
            Some(_) => None,
        }
    }
}

impl fmt::Display for LinkCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rtt_ms {
            Some(rtt) => write!(f, "RTT {rtt:.1} ms without contender")?,
            None => f.write_str("no answer without contender")?,
        }
        write!(
            f,
            ", {:.1} ms promised; {}",
            self.expected_rtt_ms, self.verdict
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_does_not_answer_or_is_too_fast_is_not_believed() {
        let mut check = LinkCheck {
            began: 1,
            expected_rtt_ms: 20.0,
            rtt_ms: Some(20.1),
            answered: [15, 15],
            verdict: "VALID".into(),
        };
        assert_eq!(check.fault(), None);
        check.rtt_ms = Some(17.9);
        assert!(check.fault().is_some_and(|text| text.contains("17.9 ms")));
        check.rtt_ms = None;
        assert!(
            check
                .fault()
                .is_some_and(|text| text.contains("none of 15"))
        );
        assert!(check.to_string().starts_with("no answer"));
    }
}
