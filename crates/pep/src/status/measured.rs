//! Result of the last `bentpipe measure` on this machine, which leaves it in the client's state directory.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::state;

/// Name of the file in the state directory.
pub const FILE: &str = "measured.json";

/// Bytes that the file may have: several times what is written.
const LIMIT: u64 = 4096;

/// Medians of how many times as fast as past it transfers through the tunnel were; each is absent if too few were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Beginning of the measurement, RFC 3339, UTC.
    pub began: String,
    /// Requests over a new connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_ratio: Option<f64>,
    /// Pages: a document and its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_ratio: Option<f64>,
    /// Downloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_ratio: Option<f64>,
    /// Uploads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_ratio: Option<f64>,
}

impl Measured {
    /// Result in `state_dir`; none if nothing was measured, or cannot be read.
    pub(crate) fn load(state_dir: &Path) -> Option<Self> {
        let bytes = state::read(&state_dir.join(FILE), LIMIT).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn ratios(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("requests", self.request_ratio),
            ("pages", self.page_ratio),
            ("downloads", self.download_ratio),
            ("uploads", self.upload_ratio),
        ];
        all.into_iter()
            .filter_map(|(name, ratio)| Some((name, ratio?)))
    }
}

impl Display for Measured {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, (name, ratio)) in self.ratios().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {ratio:.1} ×")?;
        }
        let day = self.began.split('T').next().unwrap_or_default();
        write!(f, " as fast as without, measured {day}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_read_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(Measured::load(directory.path()), None);
        let measured = Measured {
            began: "2026-11-27T10:00:00Z".into(),
            request_ratio: Some(1.98),
            upload_ratio: Some(0.9),
            ..Measured::default()
        };
        let file = directory.path().join(FILE);
        std::fs::write(&file, serde_json::to_vec(&measured).expect("numbers")).expect("ours");
        assert_eq!(Measured::load(directory.path()), Some(measured.clone()));
        assert_eq!(
            measured.to_string(),
            "requests 2.0 ×, uploads 0.9 × as fast as without, measured 2026-11-27"
        );
        for damaged in [&b"{"[..], &[b' '; 5000]] {
            std::fs::write(&file, damaged).expect("ours");
            assert_eq!(Measured::load(directory.path()), None);
        }
    }
}
