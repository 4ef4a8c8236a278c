//! bentpipe's own contenders: each a way in which it carries TCP between terminal and gateway. All that differs among them is here.

use super::ahead::{DsslMode, PagesAhead};
use super::bentpipe::{SERVER_PORT, SLE_PORT, TLS_PORT};
use super::les::{LES_PORT, Layers, LesFlow};
use super::settings::{Settings, Tuned};
use super::split::Place;
use super::vpn::OuterEnd;
use crate::capture::Tunnel;

/// Controller of bentpipe's that all variants have unless their names say another.
const CONTROLLER: &str = "satellite";

/// Way in which bentpipe carries TCP between terminal and gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BentpipeVariant {
    /// In its tunnel, with this controller at both ends.
    Tunnel(&'static str, Option<Tuned>),
    /// In its tunnel over TLS alone, as where no UDP passes, with this controller at both ends.
    Tls(&'static str),
    /// In its tunnel, and HTTP/3 as packets, where it else refuses that and carries the TCP in its place.
    Http3,
    /// In its tunnel, and names are asked for as the hosts do, where it else asks for those along that followed before.
    NamesAlone,
    /// Sealed beside its tunnel, a connection for each.
    Sle,
    /// Sealed beside its tunnel, packet by packet.
    Les,
    /// In its tunnel, with pages fetched ahead.
    Pages(PagesAhead),
    /// In its tunnel, and an operator's PEP in the gateway splits what TCP comes over the satellite beside that.
    BesidePep,
}

impl BentpipeVariant {
    /// Each variant that needs no word of the user's, and its name.
    pub(super) fn all() -> Vec<(String, Self)> {
        let named = [
            ("bentpipe", Self::Tunnel(CONTROLLER, None)),
            ("bentpipe-tls", Self::Tls(CONTROLLER)),
            ("bentpipe-sle", Self::Sle),
            ("bentpipe-les", Self::Les),
            ("bentpipe-http3", Self::Http3),
            ("bentpipe-names-alone", Self::NamesAlone),
            ("prefetch", Self::Pages(PagesAhead::Clear)),
            ("trusted", Self::Pages(PagesAhead::Trusted)),
            ("bentpipe-pep-a", Self::BesidePep),
        ];
        let others = ["bbr3", "cubic", "cubic-no-hystart", "new-reno"]
            .map(|name| (format!("bentpipe-{name}"), Self::Tunnel(name, None)));
        let sealed = DsslMode::ALL.map(|mode| {
            let name = format!("dssl-{}", mode.name());
            (name, Self::Pages(PagesAhead::Sealed(mode)))
        });
        let over_tls = ["bbr3", "cubic", "cubic-no-hystart"]
            .map(|name| (format!("bentpipe-tls-{name}"), Self::Tls(name)));
        let named = named.map(|(name, variant)| (name.to_owned(), variant));
        let all = named.into_iter().chain(others).chain(sealed);
        all.chain(over_tls).collect()
    }

    /// Settings of both ends; `local`: the terminal's own traffic is taken in, too.
    pub(super) fn settings(self, local: bool) -> Settings {
        let common = Settings {
            controller: Some(CONTROLLER),
            local,
            ..Settings::default()
        };
        match self {
            Self::Tunnel(controller, tuned) => Settings {
                controller: Some(controller),
                tuned,
                ..common
            },
            Self::Tls(controller) => Settings {
                controller: Some(controller),
                tls: true,
                ..common
            },
            Self::Http3 => Settings {
                http3: true,
                ..common
            },
            Self::NamesAlone => Settings {
                names_alone: true,
                ..common
            },
            Self::Sle => Settings {
                sle: Some(OuterEnd::Server),
                ..common
            },
            Self::Les => Settings {
                les: Some(Layers {
                    flow: LesFlow::Short,
                    peps: false,
                }),
                ..common
            },
            Self::Pages(pages) => Settings {
                ahead: Some(pages),
                ..common
            },
            Self::BesidePep => common,
        }
    }

    /// Place of the splitter that an operator has beside it, if there is one.
    pub(super) fn splitter(self) -> Option<Place> {
        (self == Self::BesidePep).then_some(Place::Gateway)
    }

    /// Tunnel with the content of TCP that crosses the satellite.
    pub(super) fn tunnel(self) -> Tunnel {
        match self {
            Self::Tunnel(..)
            | Self::Http3
            | Self::NamesAlone
            | Self::Pages(_)
            | Self::BesidePep => Tunnel::Udp(SERVER_PORT),
            Self::Tls(_) => Tunnel::Tcp(TLS_PORT),
            Self::Sle => Tunnel::Tcp(SLE_PORT),
            Self::Les => Tunnel::Udp(LES_PORT),
        }
    }

    /// Tunnel beside [`Self::tunnel`], without the content of TCP.
    pub(super) fn idle_tunnel(self) -> Option<Tunnel> {
        self.seals_tcp_alone().then_some(Tunnel::Udp(SERVER_PORT))
    }

    /// True if TCP alone goes by its road; all else goes through the tunnel beside.
    pub(super) fn seals_tcp_alone(self) -> bool {
        matches!(self, Self::Sle | Self::Les)
    }

    /// True if objects of pages over TLS, or in clear, are asked for beyond the link before the browser does.
    pub(super) fn fetches_ahead(self, encrypted: bool) -> bool {
        match self {
            Self::Pages(PagesAhead::Clear) => !encrypted,
            Self::Pages(PagesAhead::Trusted) => true,
            Self::Pages(PagesAhead::Sealed(_)) => encrypted,
            _ => false,
        }
    }
}
