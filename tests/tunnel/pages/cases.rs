//! Sites with an origin and a browser, over both schemes of pages.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::WEB;
use bentpipe_lab::workload::Authority;
use bentpipe_testbed::privileged;
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{Site, SiteConfig, fast_geo};

use super::browser::Browser;
use super::origin::{ELSEWHERE, Origin};
use super::speech::{NAME, Over};
use super::trusted::trust_local;
use crate::BENTPIPE;

/// Certificates of a case's origin, and the file by which the server trusts them.
pub(super) struct Trust {
    pub(super) authority: Authority,
    directory: tempfile::TempDir,
}

impl Trust {
    pub(super) fn new() -> Self {
        let trust = Self {
            authority: Authority::new().expect("random numbers"),
            directory: tempfile::tempdir().expect("a directory"),
        };
        fs::write(trust.roots(), trust.authority.pem()).expect("the directory is ours");
        trust
    }

    fn roots(&self) -> std::path::PathBuf {
        self.directory.path().join("roots.pem")
    }

    /// A site whose daemons fetch pages ahead.
    pub(super) fn config(&self, over: Over) -> SiteConfig {
        let tables = SiteConfig::new(BENTPIPE).client_tables;
        let (mut client, mut server) = ("[web]\nprefetch = true\n".to_owned(), String::new());
        server.push_str(&client);
        if over == Over::Trusted {
            client.push_str(&format!("tls = \"trusted\"\nnames = [\"{NAME}\"]\n"));
            server.push_str(&format!("tls = \"trusted\"\nroots = {:?}\n", self.roots()));
        }
        SiteConfig {
            scenario: fast_geo(),
            server_tables: server,
            client_tables: format!("{tables}{client}"),
            ..SiteConfig::new(BENTPIPE)
        }
    }
}

/// What a case of [`on_site`] has.
pub(super) struct Case {
    pub(super) site: Site,
    pub(super) origin: Origin,
    pub(super) browser: Browser,
}

/// Site of a case whose origin has a round trip of `trip`. Over TLS the browser trusts the local CA alone, which there is.
pub(super) fn prepare(
    trust: &Trust,
    over: Over,
    config: SiteConfig,
    trip: Duration,
) -> Result<Case> {
    let site = Site::start(config)?;
    let place = Place::from(site.topology.web());
    let address = SocketAddr::new(IpAddr::from(WEB), over.port());
    let tls = match over {
        Over::Clear => None,
        Over::Trusted => Some(trust.authority.server_config([NAME, "other.example"])?),
    };
    let origin = Origin::start(&place, address, tls, trip)?;
    let mut browser = Browser {
        place: Place::from(site.topology.user()),
        origin: origin.address,
        tls: None,
    };
    if over == Over::Trusted {
        browser.tls = Some(trust_local(&site)?);
    }
    Ok(Case {
        site,
        origin,
        browser,
    })
}

/// Runs `case` on a site of `over` with an origin whose round trip is `trip`, and shows the daemons' logs if it fails.
pub(super) fn on_site(
    name: &str,
    over: Over,
    change: impl FnOnce(&mut SiteConfig),
    trip: Duration,
    case: impl FnOnce(&mut Site, &Origin, &Browser) -> Result<()>,
) {
    if !privileged(name) {
        return;
    }
    let trust = Trust::new();
    let mut config = trust.config(over);
    change(&mut config);
    let Case {
        mut site,
        origin,
        browser,
    } = prepare(&trust, over, config, trip).expect("a site");
    let result = case(&mut site, &origin, &browser);
    let fault = |error: anyhow::Error| format!("{over:?}: {error:#}\n{}", site.logs());
    assert!(result.is_ok(), "{}", fault(result.unwrap_err()));
}

/// Runs `case` over both schemes as [`on_site`] does, at one time: for cases that wait for silences, and not for the link.
pub(super) fn on_both(
    name: &str,
    trip: Duration,
    case: impl Fn(&mut Site, &Origin, &Browser) -> Result<()> + Sync,
) {
    thread::scope(|scope| {
        for over in BOTH {
            let case = &case;
            scope.spawn(move || on_site(name, over, as_it_is, trip, case));
        }
    });
}

/// Nothing of the configuration is to be another.
pub(super) fn as_it_is(_: &mut SiteConfig) {}

/// Takes from the client the right to reach the origin, while both daemons run.
pub(super) fn deny_origin(site: &Site) -> Result<()> {
    let file = site.topology.directory().join("server.toml");
    let text = fs::read_to_string(&file)?;
    let only = "only = [\"192.0.2.0/24\"]\npublic_key = \"";
    let denied = text.replace("public_key = \"", only);
    ensure!(denied != text, "no key in the file");
    fs::write(&file, denied)?;
    reload(site, "reloaded")
}

/// Has the server's machine count the packets that it sends to [`ELSEWHERE`].
pub(super) fn count_elsewhere(site: &Site) -> Result<()> {
    let table = format!(
        "add table inet elsewhere; \
         add chain inet elsewhere out {{ type filter hook output priority 0; }}; \
         add rule inet elsewhere out ip daddr {ELSEWHERE} counter"
    );
    site.topology.gateway().run("nft", &[&table])?;
    Ok(())
}

/// Packets that [`count_elsewhere`] has counted so far.
pub(super) fn packets_elsewhere(site: &Site) -> Result<u64> {
    let table = site
        .topology
        .gateway()
        .run("nft", &["list", "table", "inet", "elsewhere"])?;
    let mut behind = table.split("counter packets ").skip(1);
    let number = behind.next().and_then(|text| text.split(' ').next());
    Ok(number.context("a counter")?.parse()?)
}

/// Both schemes of pages.
pub(super) const BOTH: [Over; 2] = [Over::Clear, Over::Trusted];

/// A figure of the client's `status` about pages.
pub(super) fn figure(site: &Site, name: &str) -> Result<u64> {
    let report = site.client_report()?;
    Ok(report["web"][name].as_u64().unwrap_or_default())
}

/// Figures of the client's `status` about sessions of DSSL.
pub(super) fn sealed(site: &Site) -> Result<serde_json::Value> {
    Ok(site.client_report()?["web"]["sealed"].take())
}

/// Figures about pages of the only client that its server tells of, of a moment after this call.
pub(super) fn served(site: &Site) -> Result<serde_json::Value> {
    Ok(site.newer_server_report()?["clients"][0]["web"].take())
}
