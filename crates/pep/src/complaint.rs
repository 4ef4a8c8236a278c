//! Log lines about something that fails, is tried again, and fails: each reason once, and that it is over.

use std::time::Instant;

use crate::throttle::Throttle;

/// Fault of something that is tried again and again: the log hears each text once, and that it is over.
#[derive(Debug, Default)]
pub(crate) struct LastingFault(Option<String>);

impl LastingFault {
    /// No fault so far.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Notes a failure; true if the log is to hear of it, because the last one had another text or none was before it.
    pub(crate) fn is_news(&mut self, error: &impl ToString) -> bool {
        let text = error.to_string();
        self.0.replace(text) != self.0
    }

    /// Notes a success; true if a fault is over by it.
    pub(crate) fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Text of the fault while it lasts.
    pub(crate) fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// News of an attempt, as the log is to have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultNews {
    /// The attempt failed for a reason that the log has not had.
    Fault,
    /// The attempt failed, and the log has had the reason, or a line just now.
    Known,
    /// The attempt succeeded, after a fault that the log has had.
    Over,
}

/// Complaint of the log about something that others can make come and go: a [`LastingFault`] with a line a minute at most.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    /// Reason of the last attempt, if that failed.
    reason: Option<String>,
    /// Reason that the log was told, until it is told that the fault is over.
    told: LastingFault,
    /// Throttle of lines about a fault whose reasons change, or that comes and goes.
    lines: Throttle,
}

impl Complaint {
    /// Takes the outcome of an attempt at `now`: the reason why it failed, if it did.
    pub(crate) fn take(&mut self, now: Instant, reason: Option<String>) -> Option<FaultNews> {
        self.reason = reason;
        let Some(reason) = &self.reason else {
            return self.told.is_over().then_some(FaultNews::Over);
        };
        if self.told.text() == Some(reason) || !self.lines.is_due(now) {
            return Some(FaultNews::Known);
        }
        self.told.is_news(reason);
        Some(FaultNews::Fault)
    }

    /// Takes the outcome of an attempt at `now`, and tells the log: what `line` makes of a reason, or that it is `over`.
    pub(crate) fn tell(
        &mut self,
        now: Instant,
        reason: Option<String>,
        line: impl FnOnce(&str) -> String,
        over: &str,
    ) {
        let news = self.take(now, reason);
        let line = self.reason().map_or_else(|| over.to_owned(), line);
        match news {
            Some(FaultNews::Fault) => tracing::error!("{line}"),
            Some(FaultNews::Known) => tracing::debug!("{line}"),
            Some(FaultNews::Over) => tracing::info!("{line}"),
            None => {}
        }
    }

    /// Reason why the last attempt failed.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// News of attempts: the second of each, and why it failed.
    fn news<const N: usize>(attempts: [(u64, Option<&str>); N]) -> [Option<FaultNews>; N] {
        let (mut complaint, start) = (Complaint::default(), crate::process::now());
        attempts.map(|(second, reason)| {
            let now = start + Duration::from_secs(second);
            let news = complaint.take(now, reason.map(str::to_owned));
            assert_eq!(complaint.reason(), reason);
            news
        })
    }

    #[test]
    fn each_text_of_a_fault_is_told_once_and_its_end() {
        let mut fault = LastingFault::none();
        assert!(!fault.is_over(), "nothing was wrong");
        let told = ["no room", "no room", "no disk", "no disk"].map(|text| fault.is_news(&text));
        assert_eq!(told, [true, false, true, false]);
        assert_eq!(fault.text(), Some("no disk"));
        assert!(fault.is_over() && !fault.is_over());
        assert!(fault.is_news(&"no disk"), "it has come back");
    }

    #[test]
    fn a_reason_is_told_once_and_its_end() {
        let (fault, known) = (Some(FaultNews::Fault), Some(FaultNews::Known));
        let attempts = [
            (0, None),
            (1, Some("no memory")),
            (2, Some("no memory")),
            (3600, Some("no memory")),
            (3601, Some("no nft")),
            (3602, None),
            (3603, None),
        ];
        let expected = [
            None,
            fault,
            known,
            known,
            fault,
            Some(FaultNews::Over),
            None,
        ];
        assert_eq!(news(attempts), expected);
    }

    #[test]
    fn a_fault_that_comes_and_goes_is_told_once_a_minute() {
        let (fault, known) = (Some(FaultNews::Fault), Some(FaultNews::Known));
        let attempts = [
            (0, Some("no memory")),
            (1, None),
            (2, Some("no memory")),
            (3, None),
            (4, Some("no nft")),
            (61, Some("no nft")),
            (62, Some("no memory")),
            (63, None),
        ];
        let over = Some(FaultNews::Over);
        let expected = [fault, over, known, None, known, fault, known, over];
        assert_eq!(news(attempts), expected);
    }
}
