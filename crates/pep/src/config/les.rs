//! A client's `[les]`: TCP that is sealed packet by packet, beside the tunnel.

use std::ops::Range;
use std::path::PathBuf;

use bentpipe_config::Source;
use bentpipe_sealed::les::sa::{Handshake, MAX_PEPS, MAX_SELECTORS};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::ConfigError;
use super::front::Intercept;
use super::identity::check_peer_key;
use super::laboratory::LaboratoryTable;
use super::value::{self, OnFailure, ServerAddress};
use crate::keys::{PrivateKey, PublicKey};

/// UDP port of LES (`PROTOCOL.md` §20).
pub(super) const LES_PORT: u16 = 4501;

/// TCP of a client that goes by LES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLes {
    /// Prefixes whose TCP goes by LES; from one to [`MAX_SELECTORS`].
    pub destinations: Vec<IpNet>,
    /// Messages by which associations begin.
    pub handshake: Handshake,
    /// UDP port of the server.
    pub port: u16,
    /// PEPs that may read headers; at most [`MAX_PEPS`], names, addresses and keys unique.
    pub peps: Vec<LesPep>,
    /// File of the pre-shared key, of [`Handshake::Psk`] alone.
    pub psk_file: Option<PathBuf>,
}

/// Operator's PEP that may read headers of a client's packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LesPep {
    /// Name in logs and `status`.
    pub name: String,
    /// UDP address at which it takes keys.
    #[serde(deserialize_with = "value::text")]
    pub address: ServerAddress,
    /// Key that it proves to hold.
    pub public_key: PublicKey,
}

impl ClientLes {
    /// Refuses a PEP with the key of somebody else: this client's `own`, or a server's.
    pub(super) fn check_keys(
        &self,
        source: &Source,
        own: &PrivateKey,
        servers: &[PublicKey],
    ) -> Result<(), ConfigError> {
        for pep in &self.peps {
            let span = source.span_of(&pep.public_key.to_string());
            check_peer_key(source, own, &pep.public_key, &span)?;
            if servers.contains(&pep.public_key) {
                let fault = format!(
                    "`public_key` of PEP {} is a server's; set what `bentpipe pubkey` prints for the PEP's key",
                    pep.name
                );
                return Err(source.error(&span, fault));
            }
        }
        Ok(())
    }
}

/// `[les]` of a client as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientLesTable {
    #[serde(deserialize_with = "value::texts")]
    destinations: Vec<IpNet>,
    #[serde(default)]
    flow: LesFlow,
    #[serde(default = "default_port")]
    port: u16,
    #[serde(default)]
    pep: Vec<Spanned<LesPep>>,
    laboratory: Option<LaboratoryTable>,
}

/// Messages by which associations begin.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LesFlow {
    /// The client seals behind its first message.
    #[default]
    Short,
    /// The paper's three messages.
    Paper,
    /// A key that both have beforehand, in laboratories.
    Psk,
}

/// Checks a client's `[les]`; `paced` says that the link has a `max_rate`, which nobody keeps beside the tunnel.
pub(super) fn client(
    source: &Source,
    written: Option<Spanned<ClientLesTable>>,
    intercept: Option<&Intercept>,
    paced: bool,
) -> Result<Option<ClientLes>, ConfigError> {
    let Some(table) = written else {
        return Ok(None);
    };
    let span: Range<usize> = table.span();
    let table = table.into_inner();
    let psk = matches!(table.flow, LesFlow::Psk);
    let count = table.destinations.len();
    let direct = |table: &Intercept| table.on_failure == OnFailure::Direct;
    let at = |key: &str, fault: String| Err(source.error_at_key(key, fault));
    let Some(intercept) = intercept else {
        let fault = "`[les]` seals packets of the client's device, which comes with interception; add `[intercept]`";
        return Err(source.error(&span, fault));
    };
    if direct(intercept) {
        return at(
            "les",
            "`[les]` lets nothing leave in clear; remove `on_failure = \"direct\"` of `[intercept]`".into(),
        );
    }
    if count > MAX_SELECTORS {
        let fault = format!(
            "`destinations` of `[les]` has {count} entries; at most {MAX_SELECTORS} are possible"
        );
        return at("les.destinations", fault);
    }
    if table.port == 0 {
        let fault = format!("`port` of `[les]` is 0; name the server's, usually {LES_PORT}");
        return at("les.port", fault);
    }
    if psk != table.laboratory.is_some() {
        return at(
            if psk { "les.flow" } else { "les.laboratory" },
            "`flow = \"psk\"` and `[les.laboratory]` go together: they are for laboratories alone, for who has the key and a recording opens all of it; remove both".into(),
        );
    }
    if paced {
        return at(
            "les",
            "`[les]` cannot keep `max_rate` of `[link]`, for its packets are not in the tunnel; remove one of them".into(),
        );
    }
    checked(source, table).map(Some)
}

/// The table with its PEPs and its key of a laboratory checked.
fn checked(source: &Source, table: ClientLesTable) -> Result<ClientLes, ConfigError> {
    Ok(ClientLes {
        destinations: table.destinations.iter().map(IpNet::trunc).collect(),
        handshake: match table.flow {
            LesFlow::Short => Handshake::Short,
            LesFlow::Paper => Handshake::Paper,
            LesFlow::Psk => Handshake::Psk,
        },
        port: table.port,
        peps: peps(source, table.pep)?,
        psk_file: table
            .laboratory
            .map(|laboratory| laboratory.checked(source))
            .transpose()?,
    })
}

/// Checks the PEPs of a client: how many, and that each is told from the others.
fn peps(source: &Source, written: Vec<Spanned<LesPep>>) -> Result<Vec<LesPep>, ConfigError> {
    let mut found: Vec<LesPep> = Vec::new();
    for (index, pep) in written.into_iter().enumerate() {
        let (span, pep) = (pep.span(), pep.into_inner());
        let other = |one: &&LesPep| {
            one.name == pep.name || one.public_key == pep.public_key || one.address == pep.address
        };
        let fault = if found.len() == MAX_PEPS {
            format!(
                "`[[les.pep]]` stands more than {MAX_PEPS} times; an association has so many PEPs at most"
            )
        } else if pep.name.is_empty() || pep.name.chars().any(char::is_control) {
            let fault = "`name` of `[[les.pep]]` is empty or holds control characters; choose a printable one";
            return Err(source.error_at_key(&format!("les.pep.{index}.name"), fault));
        } else if let Some(other) = found.iter().find(other) {
            format!(
                "PEP {} has the name, address or `public_key` of {} above; each PEP stands once, with its own",
                pep.name, other.name
            )
        } else {
            found.push(pep);
            continue;
        };
        return Err(source.error(&span, fault));
    }
    Ok(found)
}

const fn default_port() -> u16 {
    LES_PORT
}
