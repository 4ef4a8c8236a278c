//! Ends of which one has a pre-shared key of a laboratory: LES carries nothing, both say why, and the tunnel goes on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::super::{SOON, exchange, on_site, talk};
use super::{LENGTH, connects, layering, watch};

/// Tables of a client whose IPv4 alone goes by LES.
const CLIENT: &str = "[intercept]\ninterfaces = [\"lan0\"]\nother = \"drop\"\n[les]\ndestinations = [\"10.30.0.0/24\"]\n";

/// Table with a pre-shared key.
fn laboratory(place: &TempDir) -> Result<String> {
    laboratory_of(place, 7)
}

/// Table with a pre-shared key of 32 times this byte.
fn laboratory_of(place: &TempDir, byte: u8) -> Result<String> {
    let file = place.path().join("les.psk");
    fs::write(&file, [byte; 32])?;
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let file = file.to_str().context("a path")?;
    Ok(format!("[les.laboratory]\npsk_file = \"{file}\"\n"))
}

/// Time for ten questions, one a second, and for what may be slow besides.
const TEN: Duration = Duration::from_secs(30);

fn reason(status: &Value) -> &str {
    status["les"]["reason"].as_str().unwrap_or_default()
}

/// Runs a site whose ends have other keys; each says the texts, of which the first is the client's.
fn other_keys(name: &str, config: SiteConfig, told: [&str; 2]) {
    on_site(name, config, |site: &mut Site| {
        let [by_les, in_tunnel] = site.routes();
        let capture = watch(site)?;
        site.client().wait_for_line(told[0], SOON)?;
        site.server().wait_for_line(told[1], SOON)?;
        let mut flow = talk(&in_tunnel)?;
        ensure!(!connects(&by_les)?, "LES carries all the same");
        // Longer than an association would be asked for again.
        thread::sleep(Duration::from_secs(2));
        exchange(&mut flow).context("the tunnel's other flows")?;
        Transfer::start(&in_tunnel, Way::Download, LENGTH)?.finish_whole()?;
        let crossed = capture.stop()?;
        ensure!(crossed.tunnel_packets == 0, "by LES: {crossed}");
        ensure!(
            crossed.clear_packets + crossed.marker_packets == 0,
            "{crossed}"
        );
        let (client, server) = (site.client_report()?, site.newer_server_report()?);
        let both = [reason(&client), reason(&server["clients"][0])];
        for (said, told) in both.into_iter().zip(told) {
            ensure!(said.contains(told), "{said:?}");
        }
        let dropped = &client["les"]["dropped_total"]["no_association"];
        ensure!(dropped.as_u64() > Some(0), "{client}");
        ensure!(client["les"]["stands"] == false, "{client}");
        Ok(())
    });
}

#[test]
fn a_client_with_a_pre_shared_key_and_a_server_without_one_say_so() {
    let place = tempdir().expect("a directory");
    let table = laboratory(&place).expect("a key");
    let config = SiteConfig {
        client_tables: format!("{CLIENT}flow = \"psk\"\n{table}"),
        ..layering()
    };
    let told = [
        "`flow` of [les] is \"psk\" here, and the server takes \"short\" and \"paper\" alone",
        "`flow` of the client's [les] is \"psk\", and this server takes \"short\" and \"paper\" alone",
    ];
    other_keys("a key at the client alone", config, told);
}

#[test]
fn a_server_with_a_pre_shared_key_and_a_client_without_one_say_so() {
    let place = tempdir().expect("a directory");
    let table = laboratory(&place).expect("a key");
    let config = SiteConfig {
        client_tables: CLIENT.to_owned(),
        ..layering()
    };
    let server_tables = format!("{}{table}", config.server_tables);
    let config = SiteConfig {
        server_tables,
        ..config
    };
    let told = [
        "`flow` of [les] is \"short\" here, and the server takes \"psk\" alone",
        "`flow` of the client's [les] is \"short\" or \"paper\", and this server takes \"psk\" alone",
    ];
    other_keys("a key at the server alone", config, told);
}

#[test]
fn two_ends_with_different_pre_shared_keys_say_so() {
    let places = [7, 8].map(|byte| (tempdir().expect("a directory"), byte));
    let [client, server] = places
        .each_ref()
        .map(|(place, byte)| laboratory_of(place, *byte).expect("a key"));
    let config = layering();
    let config = SiteConfig {
        client_tables: format!("{CLIENT}flow = \"psk\"\n{client}"),
        server_tables: format!("{}{server}", config.server_tables),
        ..config
    };
    on_site("two keys", config, |site: &mut Site| {
        let [by_les, in_tunnel] = site.routes();
        let told = [
            "the server has answered none of",
            "does not fit the one here",
        ];
        site.client().wait_for_line(told[0], TEN)?;
        site.server().wait_for_line(told[1], TEN)?;
        ensure!(!connects(&by_les)?, "LES carries all the same");
        exchange(&mut talk(&in_tunnel)?).context("the tunnel's other flows")?;
        // Figures of the last second.
        thread::sleep(Duration::from_secs(2));
        let (client, server) = (site.client_report()?, site.newer_server_report()?);
        let server = &server["clients"][0];
        for (status, told) in [&client, server].into_iter().zip(told) {
            ensure!(reason(status).contains(told), "{status}");
        }
        let refused = &server["les"]["refused_total"];
        ensure!(refused["forged"].as_u64() >= Some(10), "{refused}");
        ensure!(refused["replayed"] == 0, "{refused}");
        Ok(())
    });
}
