//! TLS between a client and a PEP of LES, by which the client hands K2 (`PROTOCOL.md` §20.1): as between client and server, but
//! for the ALPN.

use std::sync::Arc;

use bentpipe_proto::tunnel::LES_ALPN;
use quinn_proto::crypto::{ClientConfig, ServerConfig};
use rustls::Error;

use super::{Accepts, PrivateKey, PublicKey, Verifier};

/// TLS of a client that shows `key` and hands K2 to `pep` alone.
///
/// # Errors
/// Only if the TLS library refuses its own defaults.
pub fn les_client_crypto(
    key: &PrivateKey,
    pep: PublicKey,
    allow_classical: bool,
) -> Result<Arc<dyn ClientConfig>, Error> {
    let verifier = Verifier::quiet(Arc::new(move |key| *key == pep));
    super::client(key, (LES_ALPN, verifier), allow_classical, None)
}

/// TLS of a PEP that shows `key` and takes K2 of clients whom `is_client` knows.
///
/// # Errors
/// Only if the TLS library refuses its own defaults.
pub fn les_server_crypto(
    key: &PrivateKey,
    is_client: Accepts,
    allow_classical: bool,
) -> Result<Arc<dyn ServerConfig>, Error> {
    super::server(
        key,
        (LES_ALPN, Verifier::quiet(is_client)),
        allow_classical,
        None,
    )
}
