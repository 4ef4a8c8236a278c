//! What contenders are called: carriers with their variants, programs of the user's, and the TCP of the ends.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bentpipe_config::{ConfigError, Source};

use super::les::{Layers, LesFlow};
use super::openvpn::OpenVpnProtocol;
use super::program::{KnownProgram, Named, Program};
use super::split::Place;
use super::variant::BentpipeVariant;
use super::vpn::{OuterEnd, Pep, Vpn};
use super::{Carrier, Contender, Programs, Tuned, Tuning};
use crate::workload::Tls;
use bentpipe_emulator::topology::Congestion;

/// VPNs, and their names.
const VPNS: [(&str, Vpn); 4] = [
    ("wireguard", Vpn::WireGuard),
    ("openvpn-udp", Vpn::Openvpn(OpenVpnProtocol::Udp)),
    ("openvpn-tcp", Vpn::Openvpn(OpenVpnProtocol::Tcp)),
    ("ipsec", Vpn::Ipsec),
];

/// Each carrier that needs no word of the user's, and its name.
pub(super) fn carriers() -> Vec<(String, Carrier)> {
    let mut all = vec![
        ("plain".to_owned(), Carrier::Plain),
        ("accelerator".to_owned(), Carrier::Accelerator),
        ("clear+pep".to_owned(), Carrier::Segments),
    ];
    let variants = BentpipeVariant::all().into_iter();
    all.splice(
        1..1,
        variants.map(|(name, variant)| (name, Carrier::Bentpipe(variant))),
    );
    let split = [
        ("split", Place::Distributed),
        ("split-terminal", Place::Terminal),
        ("split-gateway", Place::Gateway),
    ];
    all.extend(split.map(|(name, place)| (name.to_owned(), Carrier::Split(place))));
    for (name, vpn) in VPNS {
        for (tuned, tuning) in [("", Tuning::Default), ("-best", Tuning::Best)] {
            // After the VPN there is TCP to be split only if the VPN itself is TCP.
            let after = (vpn == Vpn::Openvpn(OpenVpnProtocol::Tcp))
                .then_some(("-pep-a", Some(Place::Around)));
            let positions = [("", None), ("-pep-b", Some(Place::Inside))];
            let positions = positions.into_iter().chain(after);
            all.extend(positions.map(|(pep, place)| {
                (
                    format!("{name}{tuned}{pep}"),
                    Carrier::Vpn(vpn, tuning, place),
                )
            }));
        }
    }
    let les = |flow| Vpn::Les(Layers { flow, peps: false });
    let own = [
        ("sle", Vpn::Sle(OuterEnd::Server)),
        ("sle-transparent", Vpn::Sle(OuterEnd::Destination)),
        ("les", les(LesFlow::Short)),
        ("les-paper", les(LesFlow::Paper)),
        ("les-psk", les(LesFlow::Psk)),
    ];
    let hosts = VPNS.into_iter().chain(own);
    all.extend(hosts.map(|(name, vpn)| (format!("{name}@hosts"), Carrier::Hosts(vpn, None))));
    let known = KnownProgram::ALL
        .map(|(name, kind)| (name.to_owned(), Carrier::Program(Program::unnamed(kind))));
    all.extend(known);
    all
}

/// A name that no contender has; displays as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownContender(String);

impl std::error::Error for UnknownContender {}

impl fmt::Display for UnknownContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let carriers: Vec<String> = carriers().into_iter().map(|(name, _)| name).collect();
        let tcp = Congestion::ALL.map(Congestion::name).join("`, `");
        write!(
            f,
            "`{}` is no contender; known are `{}` and those of `[contender.NAME]`, alone or with `/` and the TCP of user and web: `{tcp}`; bentpipe may be tuned, as in `bentpipe:ack_packets=10`, the first window of `plain` and `split`, as in `plain:iw=30`, the TLS of all users, as in `prefetch:tls=none` and `plain:tls=1.2`, and a VPN, SLE or LES of the hosts may have an operator's PEP under it: `+accelerator`, `+split` or `+pepsal`, as in `ipsec@hosts+accelerator`, or LES PEPs that may read its headers, `+pep`",
            self.0,
            carriers.join("`, `")
        )
    }
}

impl FromStr for Contender {
    type Err = UnknownContender;

    fn from_str(text: &str) -> Result<Self, UnknownContender> {
        Self::parse(text, &BTreeMap::new())
    }
}

/// The programs that an experiment names, checked; paths are relative to its file.
///
/// # Errors
/// The first that cannot be started as it is described.
pub(crate) fn check_programs(
    source: &Source,
    programs: &Programs,
) -> Result<BTreeMap<String, CheckedProgram>, ConfigError> {
    let check = |(name, named): (&String, &Named)| {
        if carriers()
            .iter()
            .any(|(known, carrier)| known == name && !matches!(carrier, Carrier::Program(_)))
        {
            let text = format!("`{name}` is the lab's own; choose another name");
            return Err(source.error_at_key(&format!("contender.{name}"), text));
        }
        let program = named.clone().program(source, name)?;
        Ok((name.clone(), CheckedProgram(program)))
    };
    programs.iter().map(check).collect()
}

/// A program that can be started as it is described.
#[derive(Debug, Clone)]
pub(crate) struct CheckedProgram(Program);

impl Contender {
    /// The one of that name, or of the `programs`.
    pub(crate) fn parse(
        text: &str,
        programs: &BTreeMap<String, CheckedProgram>,
    ) -> Result<Self, UnknownContender> {
        let unknown = || UnknownContender(text.to_owned());
        let (name, tcp) = match text.split_once('/') {
            Some((name, tcp)) => (name, Some(tcp)),
            None => (text, None),
        };
        let whole = carriers().iter().any(|(known, _)| known == name);
        let (name, pep) = match name.split_once('+').filter(|_| !whole) {
            Some((name, pep)) => (name, Some(self::pep(pep, programs).ok_or_else(unknown)?)),
            None => (name, None),
        };
        let (name, knob) = match name.split_once(':') {
            Some((name, knob)) => (name, Some(knob)),
            None => (name, None),
        };
        let named = programs.get(name);
        let carrier = named.map(|CheckedProgram(program)| Carrier::Program(program.clone()));
        let known = || carriers().into_iter().find(|(known, _)| known == name);
        let carrier = carrier.or_else(|| known().map(|(_, carrier)| carrier));
        let carrier = match (carrier, pep) {
            (Some(Carrier::Hosts(Vpn::Les(les), None)), pep) => {
                let peps = pep == Some(Pep::Segments);
                Some(Carrier::Hosts(Vpn::Les(Layers { peps, ..les }), pep))
            }
            (_, Some(Pep::Segments)) => return Err(unknown()),
            (Some(Carrier::Hosts(vpn, None)), pep) => Some(Carrier::Hosts(vpn, pep)),
            (_, Some(_)) => return Err(unknown()),
            (carrier, None) => carrier,
        };
        let own_tls = knob.and_then(|knob| knob.strip_prefix("tls="));
        let tls = own_tls.map(|name| Tls::named(name).ok_or_else(unknown));
        let tls = tls.transpose()?;
        let knob = knob.filter(|_| tls.is_none());
        let (carrier, initial_window) = match (carrier, knob) {
            (Some(carrier), None) => (carrier, None),
            (Some(Carrier::Bentpipe(BentpipeVariant::Tunnel(controller, _))), Some(knob)) => {
                let tuned = Tuned::parse(knob).ok_or_else(unknown)?;
                let variant = BentpipeVariant::Tunnel(controller, Some(tuned));
                (Carrier::Bentpipe(variant), None)
            }
            (Some(carrier @ (Carrier::Plain | Carrier::Split(_))), Some(knob)) => {
                (carrier, Some(initial_window(knob).ok_or_else(unknown)?))
            }
            _ => return Err(unknown()),
        };
        let tcp = match tcp {
            Some(name) => Congestion::named(name).ok_or_else(unknown)?,
            None => Congestion::default(),
        };
        Ok(Self {
            name: text.to_owned(),
            carrier,
            tcp,
            initial_window,
            tls,
        })
    }
}

/// The PEP of that name.
fn pep(name: &str, programs: &BTreeMap<String, CheckedProgram>) -> Option<Pep> {
    match name {
        "accelerator" => Some(Pep::Accelerator),
        "split" => Some(Pep::Split),
        "pep" => Some(Pep::Segments),
        "pepsal" => {
            let named = programs
                .get(name)
                .map(|CheckedProgram(program)| program.clone());
            Some(Pep::Pepsal(
                named.unwrap_or_else(|| Program::unnamed(KnownProgram::Pepsal)),
            ))
        }
        _ => None,
    }
}

/// Segments in `iw=N`, 1 to 1000.
fn initial_window(knob: &str) -> Option<u32> {
    let segments = knob.strip_prefix("iw=")?.parse().ok()?;
    (1..=1000).contains(&segments).then_some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Tunnel;

    #[test]
    fn names_are_a_carrier_and_a_tcp() {
        let parsed = |text: &str| text.parse::<Contender>();
        let plain = parsed("plain/bbr").unwrap();
        assert_eq!((plain.name(), plain.tcp()), ("plain/bbr", Congestion::Bbr));
        assert_eq!(parsed("wireguard").unwrap().tcp(), Congestion::Cubic);
        let off = parsed("openvpn-udp/cubic-no-hystart").unwrap().tcp();
        assert_eq!((off, off.kernel()), (Congestion::CubicNoHystart, "cubic"));
        assert_eq!(plain.tunnel(), None);
        assert_eq!(
            parsed("openvpn-tcp").unwrap().tunnel(),
            Some(Tunnel::Tcp(1194))
        );
        assert_eq!(
            parsed("openvpn-tcp-best-pep-a").unwrap().tunnel(),
            Some(Tunnel::Tcp(1194))
        );
        assert!(parsed("split/bbr").unwrap().is_readable());
        // After WireGuard there is no TCP to split.
        assert!(parsed("wireguard-pep-a").is_err() && parsed("wireguard-best-pep-b").is_ok());
        let [udp, tcp] = ["ipsec@hosts+accelerator/bbr", "openvpn-tcp@hosts+split"]
            .map(|name| parsed(name).unwrap());
        assert_eq!(
            (udp.tunnel(), udp.idle_tunnels(), udp.on_lans()),
            (
                Some(Tunnel::Ipsec),
                [Some(Tunnel::Udp(4433)), None, None],
                Some(Tunnel::Ipsec.into())
            )
        );
        assert_eq!(
            (tcp.tunnel(), tcp.idle_tunnels(), tcp.on_lans()),
            (
                Some(Tunnel::Tcp(4433)),
                [None; 3],
                Some(Tunnel::Tcp(1194).into())
            )
        );
        assert!(!tcp.is_readable());
        // Content in the PEP's connections, or in SLE's own; its tunnel beside both.
        let sle = |name: &str| {
            let sle = parsed(name).unwrap();
            let [link, lans] = [sle.on_link(false), sle.on_lans()].map(Option::unwrap);
            (link.tunnel, link.idle, lans.tunnel, lans.idle)
        };
        let (own, beside) = (Tunnel::Tcp(4434), [Some(Tunnel::Udp(4435)), None, None]);
        for name in ["sle@hosts", "sle@hosts+pepsal"] {
            assert_eq!(sle(name), (own, beside, own, beside));
        }
        let carried = [
            ("accelerator", Tunnel::Udp(4433)),
            ("split", Tunnel::Tcp(4433)),
        ];
        for (pep, tunnel) in carried {
            let name = format!("sle@hosts+{pep}");
            assert_eq!(sle(&name), (tunnel, beside, own, beside));
        }
        let name = "sle-transparent@hosts";
        let (every, split) = (Tunnel::EveryTcp, Tunnel::Tcp(4433));
        assert_eq!(sle(name), (every, beside, every, beside));
        assert_eq!(
            sle(&format!("{name}+split")),
            (split, beside, every, beside)
        );
        // An operator's PEP has no TCP to split in packets of LES.
        let les = parsed("les-paper@hosts+accelerator").unwrap();
        assert_eq!(
            (
                les.tunnel(),
                les.idle_tunnels(),
                les.on_lans().unwrap().idle
            ),
            (
                Some(Tunnel::Udp(4501)),
                [Some(Tunnel::Udp(4433)), beside[0], None],
                beside
            )
        );
        let layered = parsed("les@hosts+pep").unwrap();
        let beside = [4501, 4435, 4502].map(|port| Some(Tunnel::Udp(port)));
        assert_eq!(
            (layered.tunnel(), layered.idle_tunnels()),
            (Some(Tunnel::Udp(4433)), beside)
        );
        assert!(parsed("clear+pep/bbr").is_ok());
        // Pages in clear are as with bentpipe alone.
        let ahead = ["dssl-full", "dssl-two-phase", "dssl-quick"].map(|name| {
            let one = parsed(name).unwrap();
            [true, false].map(|encrypted| one.fetches_ahead(encrypted))
        });
        assert_eq!(ahead, [[true, false]; 3]);
        for wrong in [
            "clear",
            "sle@hosts+pep",
            "plain+split",
            "les",
            "les-paper",
            "ipsec+accelerator",
            "ipsec@hosts+",
            "ipsec-best@hosts",
            "sle",
            "sle-best@hosts",
            "sle-transparent",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        let tuned = parsed("bentpipe-cubic:ack_packets=10/bbr").unwrap();
        let setting = Tuned::parse("ack_packets=10");
        let variant = BentpipeVariant::Tunnel("cubic", setting);
        assert_eq!(tuned.carrier, Carrier::Bentpipe(variant));
        let iw = |text: &str| parsed(text).unwrap().initial_window();
        assert_eq!(
            (iw("plain:iw=30/bbr"), iw("split:iw=10")),
            (Some(30), Some(10))
        );
        assert_eq!(iw("plain"), None);
        let tls = |text: &str| parsed(text).unwrap().tls();
        assert_eq!(
            (tls("prefetch:tls=none"), tls("plain:tls=1.2/bbr")),
            (Some(Tls::None), Some(Tls::V12))
        );
        assert_eq!((tls("plain:iw=30"), tls("dssl-quick")), (None, None));
        assert!(parsed("prefetch:tls=none").unwrap().fetches_ahead(false));
        for wrong in [
            "plain:iw=0",
            "plain:tls=1.1",
            "plain:tls=",
            "clear:tls=none",
            "plain:iw=",
            "bentpipe:iw=3",
            "wireguard:iw=3",
            "bentpipe:",
            "bentpipe:ack_packets",
            "bentpipe:x=1",
            "plain:ack_packets=1",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "/", "plain/", "plain/x", "plain/cubic/bbr", "Plain"] {
            let error = parsed(wrong).unwrap_err().to_string();
            assert!(
                error.contains("`plain`") && error.contains("`bbr`"),
                "{error}"
            );
        }
    }
}
