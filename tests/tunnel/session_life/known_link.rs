//! What the client takes the link for, what it wishes of the server, and that both show.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::reload::reload;
use bentpipe_testbed::site::{Site, SiteConfig};
use serde_json::Value;

use super::{SOON, on_site};
use crate::BENTPIPE;

/// Figures are taken once a second.
const SAMPLED: Duration = Duration::from_secs(5);

/// The tunnel as the client or the server tells of it, once `is` holds.
fn tunnel(site: &Site, side: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + SAMPLED;
    loop {
        let (report, pointer) = match side {
            "client" => (site.client_report()?, "/tunnel"),
            _ => (site.server_report()?, "/clients/0/tunnel"),
        };
        let found = report.pointer(pointer).filter(|tunnel| is(tunnel));
        if let Some(tunnel) = found {
            return Ok(tunnel.clone());
        }
        ensure!(Instant::now() < deadline, "{side}: {report:#}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_link_is_measured_remembered_and_used_as_wished() {
    on_site("known link", SiteConfig::new(BENTPIPE), |site| {
        let configured = tunnel(site, "client", |tunnel| tunnel["sending"].is_object())?;
        ensure!(
            configured["link"]["source"] == "configured",
            "{configured:#}"
        );
        site.stop_client()?;
        let wishes = "profile = \"auto\"\n[link.forward]\ncontroller = \"satellite\"\nrate = \"9 Mbit/s\"\n\
                      max_rate = \"7 Mbit/s\"\nack_packets = 50\n[link.return]\ncontroller = \"new-reno\"";
        edit(&site.client_file(), "profile = \"geo\"", wishes)?;
        site.start_client()?;
        site.client()
            .wait_for_line("; link auto: geo, measured 5", SOON)?;
        let first = tunnel(site, "client", |tunnel| tunnel["sending"].is_object())?;
        ensure!(first["link"]["source"] == "measured", "{first:#}");
        ensure!(first["sending"]["controller"] == "new-reno", "{first:#}");
        let receiving = &first["receiving"];
        ensure!(receiving["controller"] == "satellite", "{first:#}");
        ensure!(receiving["max_rate_bit_s"] == 7_000_000, "{first:#}");
        ensure!(receiving["acks"]["packets"] == 50, "{first:#}");

        site.stop_client()?;
        let server = site.server_file();
        edit(
            &server,
            "name = \"terminal-1\"",
            "name = \"terminal-1\"\nmax_rate = \"5 Mbit/s\"",
        )?;
        reload(site, "reloaded: ")?;
        site.start_client()?;
        site.client()
            .wait_for_line("; link auto: geo, remembered 5", SOON)?;
        let second = tunnel(site, "client", |tunnel| tunnel["sending"].is_object())?;
        ensure!(
            second["receiving"]["max_rate_bit_s"] == 5_000_000,
            "{second:#}"
        );
        let seen = tunnel(site, "server", |tunnel| {
            tunnel["sending"]["controller"] == "satellite"
        })?;
        ensure!(seen["sending"]["max_rate_bit_s"] == 5_000_000, "{seen:#}");
        ensure!(seen["sending"]["acks"]["packets"] == 50, "{seen:#}");
        ensure!(seen["link"]["class"] == "geo", "{seen:#}");
        ensure!(seen["receiving"]["controller"] == "new-reno", "{seen:#}");
        let rtt = seen["link"]["rtt_ms"]
            .as_f64()
            .context("the RTT hinted at")?;
        ensure!((500.0..600.0).contains(&rtt), "{rtt}");

        // A live tunnel takes the new limit over.
        edit(
            &server,
            "max_rate = \"5 Mbit/s\"",
            "max_rate = \"4 Mbit/s\"",
        )?;
        reload(site, "reloaded: ")?;
        tunnel(site, "server", |tunnel| {
            tunnel["sending"]["max_rate_bit_s"] == 4_000_000
        })?;
        Ok(())
    });
}
