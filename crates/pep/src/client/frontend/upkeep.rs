//! What an interception put into the kernel, as a [`Subject`] of the guardian: table, rules, routes and
//! settings. The device itself is kept by `kept_device.rs`.

use std::io;
use std::sync::{Arc, Mutex};

use bentpipe_sys::device;
use bentpipe_sys::watch::Object;

use crate::client::intercept::{Installed, Lack, SeenInKernel, lacking};
use crate::client::kept_device::{KeptDevice, lock};
use crate::kernel::{KernelFault, Subject};

/// Name of an intercepted interface as a part, before the interface's own.
const LAN_PART: &str = "intercepted interface ";

/// Needs of a running interception in the kernel.
pub(super) struct Upkeep {
    rules: Arc<Mutex<Option<Installed>>>,
    device: Option<Arc<KeptDevice>>,
    /// Findings of the last comparison, beside the device.
    lacks: Vec<Lack>,
}

impl Upkeep {
    pub(super) fn new(
        rules: Arc<Mutex<Option<Installed>>>,
        device: Option<Arc<KeptDevice>>,
    ) -> Self {
        Self {
            rules,
            device,
            lacks: Vec::new(),
        }
    }
}

/// An intercepted interface that is not there any more, which nobody but the operator brings back.
fn lan_fault(name: &str) -> KernelFault {
    KernelFault {
        part: format!("{LAN_PART}{name}"),
        state: "is gone".to_owned(),
        object: Object::Link(name.to_owned()),
    }
}

impl Subject for Upkeep {
    fn compare(&mut self) -> io::Result<Vec<KernelFault>> {
        let mut faults = Vec::new();
        if let Some(device) = &self.device
            && let Some(state) = device.fault()?
        {
            faults.push(KernelFault {
                part: format!("device {}", device::NAME),
                state: state.to_owned(),
                object: Object::Link(device::NAME.to_owned()),
            });
        }
        let gone = !faults.is_empty();
        self.lacks.clear();
        let Some(wanted) = lock(&self.rules).as_ref().map(Installed::wanted) else {
            return Ok(faults);
        };
        // Without the lock: connections wait for it.
        let seen = SeenInKernel::look(&wanted)?;
        let is_current = |rules: &Installed| rules.is_current(&wanted);
        if !lock(&self.rules).as_ref().is_some_and(is_current) {
            // Changed by ourselves meanwhile, of which there is a notice.
            return Ok(faults);
        }
        let mut lacks = lacking(&wanted, &seen);
        for change in lacks.extract_if(.., |lack| lack.is_change()) {
            if let Some(rules) = lock(&self.rules).as_mut() {
                rules.mend(&change)?;
                if change == (Lack::Lan { of_lan: true }) && rules.missing().is_empty() {
                    tracing::info!(
                        "the intercepted interfaces or their addresses have changed: the rules follow"
                    );
                }
            }
        }
        let missing = lock(&self.rules)
            .as_ref()
            .map(|rules| rules.missing().to_vec());
        faults.extend(
            missing
                .unwrap_or_default()
                .iter()
                .map(|name| lan_fault(name)),
        );
        // Routes into a device that is not there come with it.
        lacks.retain(|lack| {
            !(gone && matches!(lack, Lack::Route(route) if route.is_by(device::NAME)))
        });
        faults.extend(lacks.iter().map(|lack| KernelFault {
            part: lack.to_string(),
            state: lack.state().to_owned(),
            object: lack.object(),
        }));
        self.lacks = lacks;
        Ok(faults)
    }

    fn repair(&mut self, fault: &KernelFault) -> io::Result<()> {
        if fault.part.starts_with(LAN_PART) {
            return Err(io::Error::other(
                "it was removed or renamed, and what its hosts send goes nowhere; give it its name again, or change \
                 `interfaces` of [intercept]",
            ));
        }
        let found = self
            .lacks
            .iter()
            .find(|lack| lack.to_string() == fault.part);
        match (found, &self.device) {
            (Some(lack), _) => {
                let mut rules = lock(&self.rules);
                rules.as_mut().map_or(Ok(()), |rules| rules.mend(lack))
            }
            (None, Some(device)) => {
                device.mend()?;
                // The routes into it went with it; before addresses are assigned there are none.
                let mut rules = lock(&self.rules);
                match rules.as_mut().filter(|rules| rules.is_attached()) {
                    Some(rules) => rules.attach(),
                    None => Ok(()),
                }
            }
            (None, None) => Ok(()),
        }
    }
}
