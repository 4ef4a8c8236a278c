//! TLS of an origin: one certificate, and for those who speak DSSL keys of their own.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use bentpipe_sealed::dssl::{ALPN_HUB, ALPN_K1};
use bentpipe_tunnel::engine::identity::{self, Accepts};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use crate::certified::{CertifiedFiles, Validity};
use crate::config::OriginConfig;
use crate::keys::PublicKey;
use crate::process::RunError;
use crate::status::quantity;
use crate::tls::key_exchange;

use super::counts::UnlistedHubs;

/// Peer of a connection.
pub(super) enum Speaker {
    /// Terminal that has proved this key.
    Terminal(PublicKey),
    /// Hub that has proved this key.
    Hub(PublicKey),
    Other,
}

/// TLS for each kind of peer.
pub(super) struct Speakers {
    terminal: Arc<ServerConfig>,
    hub: Arc<ServerConfig>,
    other: Arc<ServerConfig>,
    validity: Validity,
    hubs: HashSet<PublicKey>,
    /// Clients that may have objects ahead; all if there is no list.
    clients: Option<HashSet<PublicKey>>,
}

impl Speakers {
    /// Reads the files that `config` names; hubs that it does not list are told to `unlisted`.
    ///
    /// # Errors
    /// A file cannot be read, or its key does not belong to its certificate.
    pub(super) fn read(
        config: &OriginConfig,
        unlisted: &Arc<UnlistedHubs>,
    ) -> Result<Self, RunError> {
        let files = CertifiedFiles::read(&config.certificate, &config.key)?;
        let hubs: HashSet<PublicKey> = config.hubs.iter().copied().collect();
        let clients = config.clients.clone();
        let clients = clients.map(|keys| keys.into_iter().collect::<HashSet<_>>());
        let (listed, unlisted) = (hubs.clone(), unlisted.clone());
        let of_hubs: Accepts = Arc::new(move |key| {
            let is_listed = listed.contains(key);
            if !is_listed {
                unlisted.note(key);
            }
            is_listed
        });
        // A client is done with its handshake before it could hear that its key is not listed: it gets pages all the same.
        let of_clients: Accepts = Arc::new(|_| true);
        let keyed = |accepts| Some(identity::shown_verifier(accepts));
        Ok(Self {
            terminal: tls(&files, keyed(of_clients), &[ALPN_K1], &[&TLS13])?,
            hub: tls(&files, keyed(of_hubs), &[ALPN_HUB], &[&TLS13])?,
            other: tls(&files, None, &[b"http/1.1"], &[&TLS13, &TLS12])?,
            validity: files.validity()?,
            hubs,
            clients,
        })
    }

    /// Time for which the certificate is good.
    pub(super) fn validity(&self) -> &Validity {
        &self.validity
    }

    /// True if `hubs` lists this key.
    pub(super) fn is_hub(&self, key: &PublicKey) -> bool {
        self.hubs.contains(key)
    }

    /// True if there is a list of clients that has this key.
    pub(super) fn is_client(&self, key: &PublicKey) -> bool {
        self.clients
            .as_ref()
            .is_some_and(|clients| clients.contains(key))
    }

    /// True if pages of the client with this key may have objects ahead.
    pub(super) fn may_have_objects(&self, key: &PublicKey) -> bool {
        self.clients.is_none() || self.is_client(key)
    }

    /// Text about both lists.
    pub(super) fn lists(&self) -> String {
        let hubs = quantity(self.hubs.len() as u64, "hub");
        match &self.clients {
            Some(clients) => format!("{hubs}, {}", quantity(clients.len() as u64, "client")),
            None => format!("{hubs}, all clients"),
        }
    }

    /// Peer of a connection whose handshake is done.
    pub(super) fn of(&self, tls: &ServerConnection) -> io::Result<Speaker> {
        let key = || identity::shown_key(tls.peer_certificates());
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        match tls.alpn_protocol() {
            Some(ALPN_K1) => key().map(Speaker::Terminal).ok_or_else(denied),
            Some(ALPN_HUB) => key().map(Speaker::Hub).ok_or_else(denied),
            _ => Ok(Speaker::Other),
        }
    }

    /// TLS for whoever says this.
    pub(super) fn answer(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        let offers = |protocol: &[u8]| {
            let mut offered = hello.alpn().into_iter().flatten();
            offered.any(|one| one == protocol)
        };
        if offers(ALPN_HUB) {
            self.hub.clone()
        } else if offers(ALPN_K1) {
            self.terminal.clone()
        } else {
            self.other.clone()
        }
    }
}

fn tls(
    files: &CertifiedFiles,
    keys: Option<Arc<dyn ClientCertVerifier>>,
    protocols: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ServerConfig>, RunError> {
    let provider = match keys {
        Some(_) => key_exchange(),
        None => Arc::new(default_provider()),
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(io::Error::other)?;
    let builder = builder
        .with_client_cert_verifier(keys.unwrap_or_else(WebPkiClientVerifier::no_client_auth));
    let mut config = files.certify(builder)?;
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    // A resumed session would not ask for the key again.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
