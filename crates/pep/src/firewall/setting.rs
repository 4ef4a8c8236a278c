//! One setting of the kernel that decides on what is forwarded.

use std::fmt;
use std::fs;
use std::io;

/// Stands for the whole machine.
pub(super) const ALL: &str = "all";

/// Settings by which frames of bridges pass the tables of IPv4 and IPv6.
const BRIDGED: [&str; 2] = [
    "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
];

/// A setting of the kernel, of one interface or of the whole machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub(super) kind: Kind,
    pub(super) interface: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// IPv4 packets that come in there may be forwarded.
    Ipv4,
    /// IPv6 packets that come in there may be forwarded; on the whole machine before Linux 6.17, which has no other.
    Ipv6,
    /// Router advertisements are heeded although the machine forwards: otherwise that would end with forwarding.
    Advertisements,
    /// The check of an IPv4 source looks up the way back with the packet's own mark.
    Marks,
    /// The check of an IPv4 source takes any way back; of our device alone, with which it goes: no table notes it.
    LooseSources,
    /// Frames of bridges pass the tables of IPv4 while they are bridged, and lose their transparent socket after.
    Bridged4,
    /// Frames of bridges pass the tables of IPv6.
    Bridged6,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Ipv4,
        Self::Ipv6,
        Self::Advertisements,
        Self::Marks,
        Self::Bridged4,
        Self::Bridged6,
    ];

    /// The set that holds the interfaces.
    pub(super) fn set(self) -> &'static str {
        match self {
            Self::Ipv4 => "forwarding4",
            Self::Ipv6 => "forwarding6",
            Self::Advertisements => "advertisements6",
            Self::Marks => "marks4",
            Self::LooseSources => "sources4",
            Self::Bridged4 => "bridged4",
            Self::Bridged6 => "bridged6",
        }
    }

    /// Before and after.
    pub(super) fn values(self) -> [&'static str; 2] {
        match self {
            Self::Ipv4 | Self::Ipv6 | Self::Marks => ["0", "1"],
            Self::Advertisements | Self::LooseSources => ["1", "2"],
            Self::Bridged4 | Self::Bridged6 => ["1", "0"],
        }
    }
}

/// True if IPv4 that comes in by this interface is not forwarded.
pub(crate) fn is_shut(interface: &str) -> bool {
    Setting::of(Kind::Ipv4, interface).is("0")
}

/// True if this machine forwards no IPv6.
pub(crate) fn is_shut6() -> bool {
    Setting::of(Kind::Ipv6, ALL).is("0")
}

impl Setting {
    pub(super) fn of(kind: Kind, interface: &str) -> Self {
        Self {
            kind,
            interface: interface.to_owned(),
        }
    }

    pub(super) fn path(&self) -> String {
        let (family, key) = match self.kind {
            Kind::Ipv4 => ("ipv4", "forwarding"),
            Kind::Ipv6 if self.interface == ALL => ("ipv6", "forwarding"),
            Kind::Ipv6 => ("ipv6", "force_forwarding"),
            Kind::Advertisements => ("ipv6", "accept_ra"),
            Kind::Marks => ("ipv4", "src_valid_mark"),
            Kind::LooseSources => ("ipv4", "rp_filter"),
            Kind::Bridged4 => return BRIDGED[0].into(),
            Kind::Bridged6 => return BRIDGED[1].into(),
        };
        format!("/proc/sys/net/{family}/conf/{}/{key}", self.interface)
    }

    /// Name of the setting, as `sysctl` has it.
    pub(super) fn name(&self) -> String {
        // A dot in an interface's name is a slash there.
        let path = self.path();
        let parts = path.trim_start_matches("/proc/sys/").split('/');
        let parts: Vec<_> = parts.map(|part| part.replace('.', "/")).collect();
        parts.join(".")
    }

    pub(super) fn is(&self, value: &str) -> bool {
        fs::read_to_string(self.path()).is_ok_and(|text| text.trim() == value)
    }

    /// Gives the setting this value.
    pub(super) fn set(&self, value: &str) -> io::Result<()> {
        let written = write(&self.path(), value);
        match self.kind {
            // Nothing depends on marks where sources are not checked, as in containers whose /proc/sys is read-only; and any
            // interface may go in this moment.
            Kind::Marks => Ok(()),
            _ => written,
        }
    }

    /// Settings that keep packets from their way: of `interfaces` if what they deliver is `forwarded`, of `device`, and,
    /// if an intercepted interface is one, of `bridges`.
    pub(crate) fn lacking(
        interfaces: &[String],
        forwarded: bool,
        device: Option<&str>,
        bridges: bool,
    ) -> Vec<Self> {
        let mut settings = Vec::new();
        let interfaces = interfaces.iter().map(String::as_str).filter(|_| forwarded);
        for interface in interfaces.chain(device) {
            for kind in [Kind::Ipv4, Kind::Ipv6] {
                settings.push(Self::of(kind, interface));
            }
        }
        settings.extend(device.map(|device| Self::of(Kind::LooseSources, device)));
        if bridges {
            settings.extend([Kind::Bridged4, Kind::Bridged6].map(|kind| Self::of(kind, ALL)));
        }
        // One that is not there needs nothing.
        settings.retain(|setting| setting.is(setting.kind.values()[0]));
        settings
    }

    /// Interfaces where checks of packets' sources do not heed marks. The kernel checks what is forwarded to the LAN as if the LAN sent
    /// the other way, and routing rules drop what the LAN sends without a mark: every answer would be dropped, and what hosts of
    /// one LAN send to those of another.
    pub(crate) fn unheeded() -> io::Result<Vec<Self>> {
        let all = interfaces()?.into_iter().filter(|name| name != "lo");
        let marks = all.map(|interface| Self {
            kind: Kind::Marks,
            interface,
        });
        let [before, _] = Kind::Marks.values();
        Ok(marks.filter(|setting| setting.is(before)).collect())
    }

    /// True if the setting has an interface heed marks: every interface that comes is given it.
    pub(crate) fn is_of_marks(&self) -> bool {
        self.kind == Kind::Marks
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "setting {} = {}", self.name(), self.kind.values()[1])?;
        match self.kind {
            Kind::Bridged4 | Kind::Bridged6 => {
                f.write_str(" (with 1 connections of bridged hosts are lost)")
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn write(path: &str, value: &str) -> io::Result<()> {
    fs::write(path, value).map_err(|error| {
        let text = format!(
            "cannot set {path} to {value}: {error}; needs root, and /proc/sys writable in a container"
        );
        io::Error::new(error.kind(), text)
    })
}

/// Interfaces of this machine, the loopback one among them.
pub(crate) fn interfaces() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir("/proc/sys/net/ipv4/conf")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !["all", "default"].contains(&name.as_str()) {
            names.push(name);
        }
    }
    Ok(names)
}
