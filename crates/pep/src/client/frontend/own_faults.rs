//! Faults of an interception that nobody else has caused: what could not be changed or opened, and is tried again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use crate::complaint::Complaint;
use crate::process;
use crate::status::KernelRepair;

/// Faults of an interception, by the name of the part that has them.
#[derive(Default)]
pub(super) struct OwnFaults(RefCell<BTreeMap<String, Complaint>>);

impl OwnFaults {
    /// Takes the `fault` of an attempt at `part`, if it had one. The log hears of it as by [`Complaint::tell`].
    pub(super) fn take(
        &self,
        part: &str,
        fault: Option<&io::Error>,
        line: impl FnOnce(&str) -> String,
        over: &str,
    ) {
        let mut faults = self.0.borrow_mut();
        let complaint = faults.entry(part.to_owned()).or_default();
        let reason = fault.map(ToString::to_string);
        complaint.tell(process::now(), reason, line, over);
    }

    /// Parts that are at fault now, for `status`.
    pub(super) fn report(&self) -> Vec<KernelRepair> {
        let faults = self.0.borrow();
        let present = faults.iter().filter_map(|(part, complaint)| {
            Some(KernelRepair {
                part: part.clone(),
                repairs_total: 0,
                last_s: None,
                last_by: None,
                fault: Some(complaint.reason()?.to_owned()),
                of_others: false,
            })
        });
        present.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_a_fault_for_as_long_as_it_lasts() {
        let faults = OwnFaults::default();
        let take = |part: &str, fault| {
            faults.take(part, fault, |reason| format!("{part}: {reason}"), "over");
        };
        let lack = io::Error::other("no memory");
        take("interception rules", Some(&lack));
        take("watch on lan0", None);
        let report = faults.report();
        assert_eq!(report.len(), 1);
        assert_eq!(report[0].to_string(), "interception rules: no memory");
        take("interception rules", None);
        assert!(faults.report().is_empty());
    }
}
