//! Programs that the user names: Hysteria2, QPEP, PEPsal and Envoy, which the lab knows how to start, and any other, by the
//! commands for its two ends. They are measured like everybody else, and the same speaks against them.
//!
//! ```toml
//! [contender.hysteria2]
//! binary = "/opt/hysteria"
//!
//! [contender.hysteria2-best]
//! binary = "/opt/hysteria"
//! down = "50 Mbit/s"
//! up = "10 Mbit/s"
//!
//! [contender.mine]
//! gateway = ["./mine", "--serve", "10.20.0.1:9000"]
//! terminal = ["./mine", "--connect", "10.20.0.1:9000", "--transparent", "8080"]
//! intercept = 8080
//! tunnel = "udp/9000"
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aws_lc_rs::digest;
use bentpipe_config::{ConfigError, Source};
use bentpipe_units::BitRate;
use serde::Deserialize;

use super::ends::HANDSHAKE;
use super::interception::Interception;
use super::masque::Envoy;
use super::openvpn::identity;
use super::{Tuning, masque};
use crate::capture::Tunnel;
use bentpipe_emulator::topology::{GATEWAY_SAT, Process, Topology};

/// Time that a program gets at least that does not say when it is ready; one that takes connections in is waited for.
const SETTLES: Duration = Duration::from_secs(1);
/// Hysteria's name in its certificate, and its port.
const HYSTERIA_NAME: &str = "gateway.test";
const HYSTERIA_PORT: u16 = 8443;

/// `[contender.NAME]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Of a program that the lab knows.
    binary: Option<PathBuf>,
    /// Rate that `hysteria2-best` is told of the link.
    down: Option<BitRate>,
    up: Option<BitRate>,
    /// Command at the gateway, which is started first.
    #[serde(default)]
    gateway: Vec<String>,
    /// Command at the terminal.
    #[serde(default)]
    terminal: Vec<String>,
    /// TCP of the LAN goes to this port, where the program listens transparently.
    intercept: Option<u16>,
    /// Traffic that crosses the satellite, as in `udp/9000`; without, it may be anything.
    tunnel: Option<Carries>,
    /// True if content may be read in it.
    #[serde(default)]
    readable: bool,
    /// Text that it writes to standard error when it is ready.
    ready: Option<String>,
}

/// A protocol and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Carries(Tunnel);

impl TryFrom<String> for Carries {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parts = text.split_once('/');
        let port = parts.and_then(|(_, port)| port.parse().ok());
        match (parts, port) {
            (Some(("udp", _)), Some(port)) => Ok(Self(Tunnel::Udp(port))),
            (Some(("tcp", _)), Some(port)) => Ok(Self(Tunnel::Tcp(port))),
            _ => Err(format!("`{text}` is no tunnel; write it as in `udp/9000`")),
        }
    }
}

/// Programs that the lab knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownProgram {
    Hysteria2(Tuning),
    Qpep(Tuning),
    Pepsal,
    Masque,
}

impl KnownProgram {
    pub(super) const ALL: [(&'static str, Self); 6] = [
        ("hysteria2", Self::Hysteria2(Tuning::Default)),
        ("hysteria2-best", Self::Hysteria2(Tuning::Best)),
        ("qpep", Self::Qpep(Tuning::Default)),
        ("qpep-best", Self::Qpep(Tuning::Best)),
        ("pepsal", Self::Pepsal),
        ("masque", Self::Masque),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }
}

/// A program, with what the user says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    known: Option<KnownProgram>,
    named: Named,
}

impl Named {
    /// The file of the program, with this binary.
    pub(super) fn with_binary(self, path: PathBuf) -> Self {
        Self {
            binary: Some(path),
            ..self
        }
    }

    /// Program that the file says `name` is, checked; paths are relative to it.
    pub(super) fn program(mut self, source: &Source, name: &str) -> Result<Program, ConfigError> {
        let fault = |text: &str| source.error_at_key(&format!("contender.{name}"), text);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if name.is_empty() || name.len() > 40 || !name.chars().all(plain) {
            return Err(fault(
                "a contender's name: one to 40 letters, digits, `-` and `_` are possible",
            ));
        }
        let known = KnownProgram::named(name);
        let commands = !self.gateway.is_empty() || !self.terminal.is_empty();
        match (known, &self.binary, commands) {
            (Some(_), Some(_), false) | (None, None, true) => {}
            (Some(_), _, _) => {
                return Err(fault(
                    "how to start it is known: `binary` alone is needed; choose another name for commands of your own",
                ));
            }
            (None, Some(_), _) => {
                return Err(fault(
                    "`binary` is for `hysteria2`, `qpep`, `pepsal` and `masque`, the first two also with `-best`; for others write commands, `gateway` and `terminal`",
                ));
            }
            (None, None, false) => {
                return Err(fault(
                    "there is nothing to start; add `gateway` or `terminal`",
                ));
            }
        }
        let told = self.down.is_some() && self.up.is_some();
        if known == Some(KnownProgram::Hysteria2(Tuning::Best)) && !told {
            return Err(fault(
                "at its best it knows the link; add `down` and `up`, as in `\"50 Mbit/s\"`",
            ));
        }
        if known != Some(KnownProgram::Hysteria2(Tuning::Best)) && (self.down.or(self.up)).is_some()
        {
            return Err(fault("`down` and `up` are for `hysteria2-best`"));
        }
        let resolve = |program: &mut String| {
            if program.contains('/') {
                *program = source.resolve(Path::new(program)).display().to_string();
            }
        };
        [&mut self.gateway, &mut self.terminal]
            .into_iter()
            .filter_map(|command| command.first_mut())
            .for_each(resolve);
        self.binary = self.binary.map(|path| source.resolve(&path));
        Ok(Program { known, named: self })
    }
}

impl Program {
    /// Program that it is, if the lab knows it.
    pub(super) fn known(&self) -> Option<KnownProgram> {
        self.known
    }

    /// One of those that the lab knows, of which nothing was said.
    pub(super) fn unnamed(known: KnownProgram) -> Self {
        Self {
            known: Some(known),
            named: Named::default(),
        }
    }

    /// Program that is to be started, or why it cannot be.
    pub(super) fn version(&self, envoy: &Result<Envoy, String>) -> Result<String, String> {
        if self.is_found() {
            return envoy.clone().map(|found| found.version().to_owned());
        }
        if let Some(known) = self.known
            && self.named.binary.is_none()
        {
            let name = KnownProgram::ALL.iter().find(|(_, kind)| *kind == known);
            let name = name.map_or("", |(name, _)| name);
            return Err(format!(
                "no binary is named; say `--binary {name}=/path/to/it`, or write it under `[contender.{name}]` as `binary`"
            ));
        }
        let commands = [&self.named.gateway, &self.named.terminal];
        let programs = commands.into_iter().filter_map(|command| command.first());
        let programs: Vec<&String> = programs.collect();
        let missing = |path: &Path| format!("there is no {}", path.display());
        if let Some(path) = &self.named.binary {
            let sum = sha256(path).map_err(|_| missing(path))?;
            return Ok(format!("{}, SHA-256 {sum}", path.display()));
        }
        let absent = |path: &&&String| path.contains('/') && !Path::new(path).is_file();
        match programs.iter().find(absent) {
            Some(path) => Err(missing(Path::new(path))),
            None => {
                let programs: Vec<&str> = programs.iter().map(|path| path.as_str()).collect();
                Ok(programs.join(", "))
            }
        }
    }

    pub(super) fn tunnel(&self) -> Option<Tunnel> {
        match self.known {
            Some(KnownProgram::Hysteria2(_)) => Some(Tunnel::Udp(HYSTERIA_PORT)),
            Some(KnownProgram::Qpep(_)) => Some(Tunnel::Udp(4242)),
            Some(KnownProgram::Masque) => Some(Tunnel::Udp(masque::PORT)),
            Some(KnownProgram::Pepsal) => None,
            None => self.named.tunnel.map(|carries| carries.0),
        }
    }

    /// True if the lab looks for its binary, because the user names none.
    fn is_found(&self) -> bool {
        self.known == Some(KnownProgram::Masque) && self.named.binary.is_none()
    }

    /// True if HTTP/3 is handed to it, besides TCP.
    pub(super) fn takes_http3(&self) -> bool {
        self.known == Some(KnownProgram::Masque)
    }

    /// True if TCP is handed to it, and nothing else but perhaps HTTP/3.
    pub(super) fn intercepts(&self) -> bool {
        self.known.is_some() || self.named.intercept.is_some()
    }

    pub(super) fn readable(&self) -> bool {
        self.named.readable
    }

    /// Its programs' words, written with the files that they read.
    fn words(&self, topology: &Topology, envoy: &Result<Envoy, String>) -> Result<Named> {
        let found = envoy.as_ref().ok().filter(|_| self.is_found());
        let binary = self.named.binary.as_deref().or(found.map(Envoy::program));
        let binary = binary.map_or(String::new(), |path| path.display().to_string());
        let words = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned());
            std::iter::once(binary.clone()).chain(words).collect()
        };
        let server = GATEWAY_SAT.to_string();
        Ok(match self.known {
            None => self.named.clone(),
            Some(KnownProgram::Hysteria2(_)) => {
                write_hysteria(topology.directory(), self.named.up.zip(self.named.down))?;
                Named {
                    gateway: words(&["server", "-c", "hysteria-server.yaml"]),
                    terminal: words(&["client", "-c", "hysteria-client.yaml"]),
                    intercept: Some(2500),
                    ..Named::default()
                }
            }
            Some(KnownProgram::Qpep(tuning)) => {
                // Its second paper's initial window; the first's program reads the flag and does not heed it.
                let window: &[&str] = match tuning {
                    Tuning::Default => &[],
                    Tuning::Best => &["-congestion", "32"],
                };
                Named {
                    gateway: words(window),
                    terminal: words(&[&["-client", "-gateway", &server], window].concat()),
                    intercept: Some(8080),
                    ..Named::default()
                }
            }
            // At the terminal alone: at both ends it is slower, and at its default it cuts the ends of answers off.
            Some(KnownProgram::Pepsal) => Named {
                terminal: words(&["-p", "5000"]),
                intercept: Some(5000),
                ..Named::default()
            },
            Some(KnownProgram::Masque) => {
                masque::write(topology.directory())?;
                let [gateway, terminal] = masque::FILES.map(|file| words(&masque::words(file)));
                Named {
                    gateway,
                    terminal,
                    intercept: Some(masque::TCP_PORT),
                    ready: Some(masque::READY.into()),
                    ..Named::default()
                }
            }
        })
    }

    pub(super) fn start(
        &self,
        topology: &Topology,
        envoy: &Result<Envoy, String>,
    ) -> Result<(Vec<Process>, Option<Interception>)> {
        let known = self.words(topology, envoy)?;
        let mut processes = Vec::new();
        let ends = [
            (topology.gateway(), &known.gateway),
            (topology.terminal(), &known.terminal),
        ];
        for (namespace, words) in ends {
            if let Some((program, arguments)) = words.split_first() {
                let mut command = Command::new(program);
                command.args(arguments).current_dir(topology.directory());
                command.env("HYSTERIA_DISABLE_UPDATE_CHECK", "1");
                command.stdout(Stdio::null());
                let process = topology.spawn_in(namespace, command)?;
                match &known.ready {
                    Some(text) => process.wait_for_line(text, HANDSHAKE)?,
                    None => thread::sleep(SETTLES),
                }
                processes.push(process);
            }
        }
        // The terminal ends first.
        processes.reverse();
        let intercept = |port| {
            if let Some(terminal) = processes.first() {
                terminal.wait_for_listener(port, HANDSHAKE)?;
            }
            Interception::start(topology.terminal(), port, self.takes_http3())
        };
        let interception = known.intercept.map(intercept).transpose()?;
        Ok((processes, interception))
    }
}

/// Writes Hysteria's files; told the link's rates it sends at them, whatever is lost.
fn write_hysteria(directory: &Path, rates: Option<(BitRate, BitRate)>) -> Result<()> {
    identity(directory, HYSTERIA_NAME)?;
    let bandwidth = rates.map_or(String::new(), |(up, down)| {
        let [up, down] = [up, down].map(|rate| rate.as_u64() / 1000);
        format!("bandwidth:\n  up: {up} kbps\n  down: {down} kbps\n")
    });
    let files = [
        (
            "hysteria-server.yaml",
            format!(
                "listen: {GATEWAY_SAT}:{HYSTERIA_PORT}\ntls:\n  cert: {HYSTERIA_NAME}.crt\n  key: {HYSTERIA_NAME}.pem\n\
                 auth:\n  type: password\n  password: of this experiment alone\n"
            ),
        ),
        (
            "hysteria-client.yaml",
            format!(
                "server: {GATEWAY_SAT}:{HYSTERIA_PORT}\nauth: of this experiment alone\n\
                 tls:\n  sni: {HYSTERIA_NAME}\n  ca: {HYSTERIA_NAME}.crt\n{bandwidth}tcpTProxy:\n  listen: :2500\n"
            ),
        ),
    ];
    for (name, text) in files {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The SHA-256 of the file at `path`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let sum = digest::digest(&digest::SHA256, &bytes);
    Ok(sum
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
