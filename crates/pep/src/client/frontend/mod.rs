//! Front ends: intercepted connections, SOCKS5 and HTTP.
//!
//! ```text
//!   LAN host ─► kernel, TPROXY ─► tproxy.rs ─┐
//!   application ─► socks5 ─► proxy.rs ───────┼─► flow.rs: open a flow, then relay
//!   application ─► http ───► proxy.rs ───────┘
//!   its datagrams ─────────► associate.rs ─────► packets
//! ```
//!
//! A front end yields a socket and where it wants to go; `flow.rs` does the rest for all of them. Rules that send
//! a connection past the tunnel, or block it, are applied by the kernel for intercepted traffic and by `direct.rs` for proxies.

mod associate;
mod direct;
pub(crate) mod dns;
#[cfg(target_os = "linux")]
mod doubt;
mod flow;
#[cfg(target_os = "linux")]
mod follow;
#[cfg(target_os = "linux")]
mod gatekeeper;
mod http;
mod http_body;
mod http_exchange;
#[cfg(target_os = "linux")]
mod last_bytes;
mod names;
#[cfg(target_os = "linux")]
mod openings;
#[cfg(target_os = "linux")]
mod own_faults;
mod proxy;
mod share;
#[cfg(target_os = "linux")]
pub(crate) mod tproxy;
#[cfg(target_os = "linux")]
mod unanswered;
#[cfg(target_os = "linux")]
pub(crate) mod upkeep;
#[cfg(target_os = "linux")]
pub(crate) mod wanted;

use std::rc::Rc;

use tokio::task::JoinHandle;

use crate::client::Carrier;
use crate::config::{self, ClientDns, Placed};
#[cfg(target_os = "linux")]
use crate::events;
use crate::process::{self, RunError};
use crate::status::{KernelRepair, RuleStatus};
use direct::Decisions;
use share::Open;

pub(super) use dns::Dns;

/// Parts of a client that every front end works with.
struct Context<'a> {
    carrier: &'a Carrier,
    decisions: &'a Rc<Decisions>,
    open: &'a Open,
}

/// Without DNS answered here nobody tells the addresses of rules' names.
fn warn_of_names(config: &config::FrontEnds, decisions: &Decisions) {
    if config.intercept.is_some() && !decisions.names().is_empty() {
        tracing::warn!(
            "`domains` of rules mean nothing for what is taken in: no DNS is answered here that would tell their addresses; enable `[dns]`"
        );
    }
}

/// The front ends of a running client.
pub(crate) struct FrontEnds {
    decisions: Rc<Decisions>,
    dns: Option<Rc<Dns>>,
    tasks: Vec<JoinHandle<()>>,
    #[cfg(target_os = "linux")]
    interception: Option<tproxy::Interceptor>,
}

impl FrontEnds {
    /// Opens the listeners and puts the interception rules in force. Needs a `LocalSet`.
    pub(crate) fn start(
        config: &config::FrontEnds,
        carrier: &Carrier,
        dns: Option<&Placed<ClientDns>>,
    ) -> Result<Self, RunError> {
        #[cfg(target_os = "linux")]
        let claim = match &config.intercept {
            Some(intercept) => Some(tproxy::claim(intercept, dns.map(|dns| &**dns))?),
            None => None,
        };
        let mut tasks = Vec::new();
        let decisions = Rc::new(Decisions::new(config));
        let open = Open::new(process::file_limit(), descriptors_each(config, carrier));
        let context = Context {
            carrier,
            decisions: &decisions,
            open: &open,
        };
        let intercepts = config.intercept.is_some();
        let answering = dns
            .zip(carrier.session())
            .map(|(dns, session)| Dns::start(dns, intercepts, session, &decisions, &mut tasks));
        let answering = answering.transpose()?;
        if answering.is_none() {
            warn_of_names(config, &decisions);
        }
        let proxies = [
            (config.socks5.as_ref(), proxy::ProxyProtocol::Socks5),
            (config.http.as_ref(), proxy::ProxyProtocol::Http),
        ];
        for (front_end, protocol) in proxies {
            if let Some(front_end) = front_end {
                let dns = answering.as_ref();
                tasks.push(proxy::start(&context, dns, front_end, protocol)?);
            }
        }
        #[cfg(target_os = "linux")]
        let interception = match config.intercept.as_ref().zip(claim) {
            Some((intercept, claim)) => {
                let dns = dns.map(|dns| &**dns);
                let started = tproxy::start(claim, config, intercept, dns, &context, &mut tasks);
                Some(started?)
            }
            None => None,
        };
        #[cfg(not(target_os = "linux"))]
        if let Some(intercept) = &config.intercept {
            return Err(RunError::Privilege {
                place: intercept.place.clone(),
                fault: "interception needs Linux; use `[socks5]` or `[http]`".into(),
            });
        }
        Ok(Self {
            decisions,
            dns: answering,
            tasks,
            #[cfg(target_os = "linux")]
            interception,
        })
    }

    /// Server of DNS here, if there is one.
    pub(crate) fn dns(&self) -> Option<Rc<Dns>> {
        self.dns.clone()
    }

    /// Decisions of the rules.
    pub(crate) fn rules(&self) -> Vec<RuleStatus> {
        self.decisions.report()
    }

    /// Things in the kernel that others took away and that were put back.
    pub(crate) fn kernel(&self) -> Vec<KernelRepair> {
        #[cfg(target_os = "linux")]
        if let Some(interception) = &self.interception {
            return interception.repairs();
        }
        Vec::new()
    }

    /// Has hosts wait for the next client with connections that they begin, where these are taken in. What a proxy's listener accepts
    /// is refused as before: an application does not ask it again.
    pub(crate) async fn drain(&self) {
        #[cfg(target_os = "linux")]
        if let Some(interception) = &self.interception {
            interception.drain().await;
        }
    }

    /// Waits until hosts have acknowledged what came for them by connections that were taken in.
    pub(crate) async fn until_delivered(&self) {
        #[cfg(target_os = "linux")]
        if self.interception.is_some() {
            last_bytes::until_delivered().await;
        }
    }

    /// Takes no more connections and removes the rules.
    pub(crate) fn stop(self) -> Result<(), RunError> {
        for task in &self.tasks {
            task.abort();
        }
        #[cfg(target_os = "linux")]
        if let Some(interception) = self.interception {
            interception.remove()?;
        }
        Ok(())
    }

    /// Leaves the rules in force, because the client ends by a `fault`: nothing of what they take in is to leave in clear until a
    /// client runs again.
    pub(crate) fn leave(self, fault: &RunError) {
        #[cfg(target_os = "linux")]
        if let Some(interception) = self.interception {
            let fate = match interception.leave() {
                true => "goes in clear",
                false => "is dropped",
            };
            tracing::error!(
                target: events::FATAL,
                "the client ends by a fault: {fault}; its rules stay, and what they take in {fate} until it runs again"
            );
        }
        #[cfg(not(target_os = "linux"))]
        let _ = fault;
    }
}

/// Descriptors that a connection of a host takes at most: its own, and one to its destination where that is not reached by
/// the tunnel's streams.
fn descriptors_each(config: &config::FrontEnds, carrier: &Carrier) -> usize {
    let proxies = config.socks5.is_some() || config.http.is_some();
    let direct = config
        .actions()
        .any(|(_, _, action)| action == config::Action::Direct);
    match carrier {
        Carrier::Tunnel(_) if !(proxies && direct) => 1,
        _ => 2,
    }
}

/// The mark of sockets that must not be taken in themselves.
pub(crate) fn own_mark(config: &config::FrontEnds) -> Option<u32> {
    #[cfg(target_os = "linux")]
    return config.intercept.as_ref().map(|_| tproxy::own_mark());
    #[cfg(not(target_os = "linux"))]
    return config.intercept.as_ref().and(None);
}
