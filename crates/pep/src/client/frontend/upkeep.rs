//! What an interception put into the kernel, as a [`Subject`] of the guardian: table, rules, routes and
//! settings. The device itself is kept by `kept_device.rs`.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bentpipe_sys::device;
use bentpipe_sys::link::Port;
use bentpipe_sys::policy_rule::{MAIN, ProbePacket, StrayRoute};
use bentpipe_sys::watch::{Change, Object};

use super::tproxy::own_mark;
use super::unanswered::{Sources, UnansweredNetwork};
use crate::client::intercept::{
    ForeignLook, Installed, Lack, RuleAhead, SeenInKernel, lacking, name_the_master, name_the_stray,
};
use crate::client::kept_device::{KeptDevice, lock};
use crate::config::TCP;
use crate::kernel::{Faults, KernelPart, NoticeLevel, Subject};
use crate::process;

/// Time that `bentpipe guard off` may take: it removes the guard's rules one after another, and a client that put some of them back
/// meanwhile would switch the guard on again. What the client itself has in the kernel holds until then.
const SWITCHING_OFF: Duration = Duration::from_millis(500);

/// Time that the client may take to lead packets into its device again: with the last address of the device, which a server that
/// carries none takes back, the kernel removes the routes.
const ATTACHING: Duration = Duration::from_millis(300);

/// A part that an interception has in the kernel.
pub(super) enum InterceptedPart {
    /// The device for all but TCP.
    Device,
    /// An intercepted interface that is not there, not yet or not any more, which nobody but the operator brings.
    Interface(String),
    /// An intercepted interface that is a port of another: what its hosts send comes in by that one.
    Port(Port),
    /// A route that leads hosts of the LAN elsewhere.
    Stray(StrayRoute),
    /// A rule of another program that takes away what is to be carried.
    Ahead(RuleAhead),
    /// The way back to hosts that another router of the LAN sends here.
    WayBack(UnansweredNetwork),
    /// Something of table, rules, routes and settings.
    Lack(Lack),
}

impl KernelPart for InterceptedPart {
    fn name(&self) -> String {
        match self {
            Self::Device => format!("device {}", device::NAME),
            Self::Interface(name) | Self::Port(Port { name, .. }) => {
                format!("intercepted interface {name}")
            }
            Self::Stray(stray) => format!("way to the LAN's {} by {}", stray.to, stray.device),
            Self::Ahead(rule) => rule.name(),
            Self::WayBack(unanswered) => unanswered.name(),
            Self::Lack(lack) => lack.to_string(),
        }
    }

    fn gravity(&self) -> NoticeLevel {
        match self {
            // One that comes and goes is no fault of the client's, and the others go on.
            Self::Interface(_) | Self::WayBack(_) => NoticeLevel::Warn,
            _ => NoticeLevel::Error,
        }
    }

    fn settles(&self) -> Duration {
        match self {
            Self::Lack(lack) if lack.is_of_guard() => SWITCHING_OFF,
            Self::Lack(Lack::Route(route)) if route.is_by(device::NAME) => ATTACHING,
            _ => Duration::ZERO,
        }
    }

    /// A host that forges addresses could have a health check restart the client.
    fn is_of_others(&self) -> bool {
        matches!(self, Self::WayBack(_))
    }

    fn object(&self) -> Object {
        match self {
            Self::Device => Object::Link(device::NAME.to_owned()),
            Self::Interface(name) | Self::Port(Port { name, .. }) => Object::Link(name.clone()),
            Self::Stray(_) | Self::WayBack(_) => Object::Route(MAIN),
            Self::Ahead(_) => Object::Rule,
            Self::Lack(lack) => lack.object(),
        }
    }
}

/// Needs of a running interception in the kernel.
pub(super) struct Upkeep {
    rules: Arc<Mutex<Option<Installed>>>,
    device: Option<Arc<KeptDevice>>,
    foreign: ForeignLook,
    sources: Arc<Mutex<Sources>>,
}

impl Upkeep {
    pub(super) fn new(
        rules: Arc<Mutex<Option<Installed>>>,
        device: Option<Arc<KeptDevice>>,
        sources: Arc<Mutex<Sources>>,
    ) -> Self {
        Self {
            rules,
            device,
            foreign: ForeignLook::default(),
            sources,
        }
    }
}

/// Has the rules follow a `change` of the machine that is no fault.
fn follow(rules: &mut Installed, change: &Lack) -> io::Result<()> {
    let missing = rules.missing().to_vec();
    rules.mend(change)?;
    for name in missing
        .iter()
        .filter(|name| !rules.missing().contains(name))
    {
        tracing::info!(
            "intercepted interface {name} is there now: what comes in by it is taken in"
        );
    }
    let whole = rules.missing().is_empty() && rules.ports().is_empty();
    if whole && *change == (Lack::Lan { of_lan: true }) {
        tracing::info!(
            "the intercepted interfaces or their addresses have changed: the rules follow"
        );
    }
    Ok(())
}

/// Faults of the intercepted interfaces.
fn of_interfaces(rules: &Installed) -> Faults<InterceptedPart> {
    let missing = rules.missing().iter().cloned();
    let ports = rules.ports().iter().cloned();
    missing
        .map(|name| (InterceptedPart::Interface(name), "is not there"))
        .chain(ports.map(|port| (InterceptedPart::Port(port), "is a port of another")))
        .collect()
}

/// Asks for the ways back to networks of which nothing is known, and says which have none by an interface of the LAN, whose numbers
/// are `lan`.
fn ask_for_ways(sources: &Mutex<Sources>, lan: &[u32]) -> Vec<UnansweredNetwork> {
    let now = process::now();
    // Without the lock: connections wait for it.
    let due = lock(sources).due(now);
    for (network, host) in due {
        let leads_back = way_to(host).is_some_and(|device| lan.contains(&device));
        lock(sources).on_way(now, network, leads_back);
    }
    lock(sources).unanswered()
}

/// Number of the interface that answers on connections that are carried leave by to `host`; `None` if they leave by none.
fn way_to(host: IpAddr) -> Option<u32> {
    let answer = ProbePacket {
        from: None,
        to: host,
        iif: None,
        mark: own_mark(),
        protocol: Some(TCP),
        port: None,
        source_port: None,
    };
    answer.way().ok()?.device
}

impl Subject for Upkeep {
    type Part = InterceptedPart;

    fn compare(&mut self) -> io::Result<Faults<InterceptedPart>> {
        let mut faults = Vec::new();
        if let Some(device) = &self.device
            && let Some(state) = device.fault()?
        {
            faults.push((InterceptedPart::Device, state));
        }
        let gone = !faults.is_empty();
        let Some(wanted) = lock(&self.rules).as_ref().map(Installed::wanted) else {
            return Ok(faults);
        };
        // Without the lock: connections wait for it.
        let seen = SeenInKernel::look(&wanted)?;
        let foreign = self.foreign.look(&wanted)?;
        let is_current = |rules: &Installed| rules.is_current(&wanted);
        if !lock(&self.rules).as_ref().is_some_and(is_current) {
            // Changed by ourselves meanwhile, of which there is a notice.
            return Ok(faults);
        }
        let mut lacks = lacking(&wanted, &seen);
        lacks.extend(foreign.passages.into_iter().map(Lack::Passage));
        let changes: Vec<_> = lacks.extract_if(.., |lack| lack.is_change()).collect();
        if changes
            .iter()
            .any(|change| matches!(change, Lack::Lan { .. }))
        {
            // An interface that has come gets its settings with the rules: nobody has changed them.
            lacks.retain(|lack| !matches!(lack, Lack::Setting(_)));
        }
        for change in changes {
            if let Some(rules) = lock(&self.rules).as_mut() {
                follow(rules, &change)?;
            }
        }
        if let Some(rules) = lock(&self.rules).as_ref() {
            faults.extend(of_interfaces(rules));
        }
        let strays = foreign.strays.into_iter();
        faults.extend(strays.map(|stray| (InterceptedPart::Stray(stray), "is astray")));
        let ahead = foreign.ahead.into_iter();
        faults.extend(ahead.map(|rule| (InterceptedPart::Ahead(rule), "is closed")));
        let unanswered = ask_for_ways(&self.sources, seen.lan()).into_iter();
        faults.extend(unanswered.map(|one| (InterceptedPart::WayBack(one), "is missing")));
        // Routes into a device that is not there come with it.
        lacks.retain(|lack| {
            !(gone && matches!(lack, Lack::Route(route) if route.is_by(device::NAME)))
        });
        faults.extend(lacks.into_iter().map(|lack| {
            let state = lack.state();
            (InterceptedPart::Lack(lack), state)
        }));
        Ok(faults)
    }

    fn notice(&mut self, changes: &[Change]) {
        self.foreign.notice(changes);
    }

    fn repair(&mut self, part: &InterceptedPart) -> io::Result<()> {
        match (part, &self.device) {
            (InterceptedPart::Interface(_), _) => Err(io::Error::other(
                "no interface has this name, and what its hosts send goes nowhere; bring it up or give it the name (`ip link` lists \
                 interfaces), or change `interfaces` of [intercept]",
            )),
            (InterceptedPart::Port(port), _) => Err(io::Error::other(format!(
                "{} of [intercept]; until then what comes in by {} goes nowhere",
                name_the_master(port),
                port.master
            ))),
            (InterceptedPart::Stray(stray), _) => {
                Err(io::Error::other(name_the_stray(stray).join("; ")))
            }
            (InterceptedPart::WayBack(unanswered), _) => Err(io::Error::other(unanswered.mend())),
            (InterceptedPart::Ahead(rule), _) => Err(io::Error::other(rule.faults().join("; "))),
            (InterceptedPart::Lack(lack), _) => {
                if matches!(lack, Lack::Passage(_)) {
                    self.foreign.forget_passages();
                }
                let mut rules = lock(&self.rules);
                rules.as_mut().map_or(Ok(()), |rules| rules.mend(lack))
            }
            (InterceptedPart::Device, Some(device)) => {
                device.mend()?;
                // The routes into it went with it; before addresses are assigned there are none.
                let mut rules = lock(&self.rules);
                match rules.as_mut().filter(|rules| rules.is_attached()) {
                    Some(rules) => rules.attach(),
                    None => Ok(()),
                }
            }
            (InterceptedPart::Device, None) => Ok(()),
        }
    }
}
