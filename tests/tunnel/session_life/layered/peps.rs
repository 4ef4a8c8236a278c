//! PEPs of LES: who is handed the keys of headers, what they open, and when they are taken back.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::{GATEWAY_SAT, WEB};
use bentpipe_testbed::edit::edit;
use bentpipe_testbed::key_holder::KeyHolder;
use bentpipe_testbed::middle_box::MiddleBox;
use bentpipe_testbed::peer::read_exactly;
use bentpipe_testbed::reload::{reload, reload_client};
use bentpipe_testbed::site::{Site, SiteConfig};
use bentpipe_testbed::transfer::{Transfer, Way};
use bentpipe_tunnel::engine::identity::{PrivateKey, PublicKey};
use serde_json::Value;

use super::super::{RTT, SOON, exchange, on_site, route, talk};
use super::{LENGTH, LES, layering, tables, until_it_stands};

/// UDP port at which the PEP takes keys.
const KEYS: u16 = 4502;

/// UDP port at which the box before the server takes packets.
const BOX: u16 = 4511;

/// Words that are nowhere but in payload.
const CANARY: &[u8; 32] = b"the canary that no PEP ever sees";

/// Entry of the PEP with this key in a client's file.
fn entry(key: &PublicKey) -> String {
    format!(
        "[[les.pep]]\nname = \"hub\"\naddress = \"{GATEWAY_SAT}:{KEYS}\"\npublic_key = \"{key}\"\n"
    )
}

/// Site whose ends both list the PEP; the client's packets go by the box.
fn listed(key: &PublicKey) -> SiteConfig {
    SiteConfig {
        server_tables: format!("[les]\nlisten = \"{GATEWAY_SAT}:{LES}\"\npeps = [\"{key}\"]\n"),
        client_tables: tables(&format!("port = {BOX}\n{}", entry(key))),
        ..layering()
    }
}

fn new_key() -> PrivateKey {
    PrivateKey::generate().expect("random numbers")
}

/// Public key of the site's client.
fn client_key(site: &Site) -> Result<PublicKey> {
    let text = fs::read_to_string(site.client_home().join("client.key"))?;
    let key: PrivateKey = text.parse().map_err(anyhow::Error::msg)?;
    Ok(key.public())
}

fn at_gateway(port: u16) -> SocketAddr {
    (IpAddr::from(GATEWAY_SAT), port).into()
}

fn holder(site: &Site, key: &PrivateKey) -> Result<KeyHolder> {
    let client = client_key(site)?;
    KeyHolder::start(site.topology.gateway(), at_gateway(KEYS), key, client)
}

fn plain_box(site: &Site) -> Result<MiddleBox> {
    let gateway = site.topology.gateway();
    MiddleBox::start(gateway, at_gateway(BOX), at_gateway(LES), |_, _| {})
}

/// The client's `status` about its only PEP, once that is as `wanted`.
fn pep_is(site: &Site, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + SOON;
    loop {
        let pep = site.client_report()?["les"]["peps"][0].clone();
        if wanted(&pep) {
            return Ok(pep);
        }
        ensure!(Instant::now() < deadline, "never {what}: {pep}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn has_keys(pep: &Value) -> bool {
    pep["connected"] == true && pep["writer"].is_u64()
}

/// A transfer and an exchange that are whole.
fn crosses(site: &Site) -> Result<()> {
    Transfer::start(&route(site, RTT), Way::Download, LENGTH)?.finish_whole()?;
    exchange(&mut talk(&route(site, RTT))?)
}

/// Says the canary and hears it, and gives what the box has seen of that.
fn canary(site: &Site, between: &MiddleBox) -> Result<Vec<Vec<u8>>> {
    let mut stream = talk(&route(site, RTT))?;
    between.take_seen();
    stream.write_all(CANARY)?;
    ensure!(read_exactly(&mut stream, CANARY.len())? == CANARY);
    Ok(between.take_seen())
}

/// Headers and payload zones that the holder opens of `packets`.
fn opened(holder: &KeyHolder, packets: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut keys = holder.keys();
    let open = |packet: &Vec<u8>| {
        let opened = keys.grants.open(Instant::now(), packet).ok()?;
        let zone = opened.packet.zone().unwrap_or_default().to_vec();
        Some((opened.packet.header().to_vec(), zone))
    };
    packets.iter().filter_map(open).collect()
}

fn holds(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|part| part == CANARY)
}

#[test]
fn a_pep_that_both_ends_list_opens_headers_and_no_payload_until_it_is_revoked() {
    let key = new_key();
    on_site("LES and a PEP", listed(&key.public()), |site| {
        let (pep, between) = (holder(site, &key)?, plain_box(site)?);
        until_it_stands(site)?;
        pep_is(site, "with keys", has_keys)?;
        pep.wait_for("grant", SOON)?;
        let seen = canary(site, &between)?;
        let headers = opened(&pep, &seen);
        ensure!(
            seen.len() > 1 && headers.len() == seen.len(),
            "{} of {} packets",
            headers.len(),
            seen.len()
        );
        let web = WEB.octets();
        for (header, zone) in &headers {
            let addresses = &header[12..20];
            ensure!(addresses.starts_with(&web) || addresses.ends_with(&web));
            ensure!(
                !holds(header) && !holds(zone),
                "payload in what a PEP can open"
            );
        }
        let carried = |(_, zone): &&(Vec<u8>, Vec<u8>)| zone.len() == CANARY.len() + 20;
        ensure!(
            headers.iter().filter(carried).count() >= 2,
            "no payload zone of it"
        );
        ensure!(!seen.iter().any(|packet| holds(packet)), "in clear");

        // Taken from the list: the key goes, and nothing more can be opened, while the client's connections stay.
        let mut before = talk(&route(site, RTT))?;
        edit(&site.client_file(), &entry(&key.public()), "")?;
        reload_client(site, "reloaded: +0 -1 PEPs")?;
        pep.wait_for("down Closed(Revoked)", SOON)?;
        ensure!(pep.keys().grants.is_empty(), "{:?}", pep.keys().grants);
        until_it_stands(site)?;
        exchange(&mut before)?;
        let seen = canary(site, &between)?;
        ensure!(
            seen.len() > 1 && opened(&pep, &seen).is_empty(),
            "still opened"
        );
        let les = &site.client_report()?["les"];
        ensure!(
            les["peps"].is_null() && les["associations_total"] == 2,
            "{les}"
        );
        Ok(())
    });
}

#[test]
fn a_pep_that_does_not_list_the_client_gets_nothing_and_is_named() {
    let key = new_key();
    on_site(
        "LES and a PEP that does not know the client",
        listed(&key.public()),
        |site| {
            let _between = plain_box(site)?;
            let gateway = site.topology.gateway();
            let other = new_key().public();
            let pep = KeyHolder::start(gateway, at_gateway(KEYS), &key, other)?;
            let text = format!("add public key {}", client_key(site)?);
            site.client().wait_for_line(&text, SOON)?;
            until_it_stands(site)?;
            crosses(site)?;
            ensure!(pep.keys().said.is_empty(), "{:?}", pep.keys().said);
            let status = pep_is(site, "refused", |pep| pep["reason"].is_string())?;
            ensure!(
                status["connected"] == false && status["writer"].is_null(),
                "{status}"
            );
            Ok(())
        },
    );
}

#[test]
fn a_pep_that_the_server_does_not_accept_gets_no_key_until_it_does() {
    let key = new_key();
    let line = format!("peps = [\"{}\"]\n", key.public());
    let config = listed(&key.public());
    let config = SiteConfig {
        server_tables: config.server_tables.replace(&line, ""),
        ..config
    };
    on_site(
        "LES and a PEP that the server does not accept",
        config,
        |site| {
            let (pep, _between) = (holder(site, &key)?, plain_box(site)?);
            until_it_stands(site)?;
            pep.wait_for("up", SOON)?;
            crosses(site)?;
            let said = |pep: &Value| {
                let reason = pep["reason"].as_str().unwrap_or_default();
                reason.contains("the server does not accept it")
            };
            let status = pep_is(site, "refused", said)?;
            ensure!(
                status["connected"] == true && status["writer"].is_null(),
                "{status}"
            );
            ensure!(pep.keys().said == ["up"], "{:?}", pep.keys().said);
            // The next tunnel asks anew.
            let listen = format!("listen = \"{GATEWAY_SAT}:{LES}\"\n");
            edit(&site.server_file(), &listen, &format!("{listen}{line}"))?;
            reload(site, "reloaded")?;
            site.kill_server()?;
            site.start_server()?;
            pep.wait_for("grant 2 false", SOON)?;
            pep_is(site, "with keys", has_keys)?;
            Ok(())
        },
    );
}

/// The association before still receives then, so that the PEP can reset what it had acknowledged.
#[test]
fn a_pep_that_the_next_association_leaves_out_is_told_so_at_once() {
    let key = new_key();
    on_site(
        "LES and a PEP that the server accepts no more",
        listed(&key.public()),
        |site| {
            let (pep, _between) = (holder(site, &key)?, plain_box(site)?);
            until_it_stands(site)?;
            pep.wait_for("grant", SOON)?;
            ensure!(!pep.keys().grants.is_empty());
            let line = format!("peps = [\"{}\"]\n", key.public());
            edit(&site.server_file(), &line, "")?;
            reload(site, "reloaded")?;
            // Another PEP has a new association begin, as an hour would.
            let file = site.client_file();
            let whole = fs::read_to_string(&file)?;
            let spare = entry(&new_key().public()).replace("hub", "spare");
            let spare = spare.replace(&KEYS.to_string(), "4503");
            fs::write(&file, format!("{whole}{spare}"))?;
            reload_client(site, "reloaded: +1 -0 PEPs")?;
            let deadline = Instant::now() + SOON;
            while !pep.keys().grants.is_empty() {
                ensure!(
                    Instant::now() < deadline,
                    "it keeps {:?}",
                    pep.keys().grants
                );
                thread::sleep(Duration::from_millis(50));
            }
            exchange(&mut talk(&route(site, RTT))?)
        },
    );
}

#[test]
fn a_pep_that_is_away_is_gone_past_and_has_another_number_when_it_is_back() {
    let key = new_key();
    on_site(
        "LES and a PEP that comes and goes",
        listed(&key.public()),
        |site| {
            let _between = plain_box(site)?;
            until_it_stands(site)?;
            let unconnected = |pep: &Value| pep["connected"] == false;
            pep_is(site, "away", unconnected)?;
            crosses(site)?;
            site.client()
                .wait_for_line("PEP hub: it does not answer", SOON)?;
            let pep = holder(site, &key)?;
            pep.wait_for("grant", SOON)?;
            let first = pep_is(site, "with keys", has_keys)?["writer"].as_u64();
            // A PEP that was restarted says so by a reset.
            drop(pep);
            let pep = holder(site, &key)?;
            pep.wait_for("grant", 2 * SOON)?;
            let said = pep.keys().said.clone();
            ensure!(said.iter().any(|said| said.ends_with("true")), "{said:?}");
            let second = pep_is(site, "with keys", has_keys)?["writer"].as_u64();
            ensure!(
                first.is_some() && second > first,
                "{first:?}, then {second:?}"
            );
            // The client stops, and its keys go.
            site.stop_client()?;
            pep.wait_for("down Closed(Stopped)", SOON)?;
            ensure!(pep.keys().grants.is_empty());
            Ok(())
        },
    );
}

/// A new association is begun for a PEP that is new, as it is every hour: make before break.
#[test]
fn keys_are_renewed_under_traffic_and_nothing_is_lost() {
    let key = new_key();
    let config = listed(&key.public());
    let config = SiteConfig {
        client_tables: config.client_tables.replace(&entry(&key.public()), ""),
        ..config
    };
    on_site("LES and new keys under traffic", config, |site| {
        let (pep, between) = (holder(site, &key)?, plain_box(site)?);
        until_it_stands(site)?;
        let [ipv4, ipv6] = site.routes();
        let download = Transfer::start(&ipv4, Way::Download, 4 * LENGTH)?;
        let upload = Transfer::start(&ipv6, Way::Upload, 4 * LENGTH)?;
        download.until(LENGTH / 4, SOON)?;
        upload.until(LENGTH / 4, SOON)?;
        let file = site.client_file();
        let whole = fs::read_to_string(&file)?;
        fs::write(&file, format!("{whole}{}", entry(&key.public())))?;
        reload_client(site, "reloaded: +1 -0 PEPs")?;
        pep.wait_for("grant", SOON)?;
        download.finish_whole().context("download")?;
        upload.finish_whole().context("upload")?;
        let seen = canary(site, &between)?;
        ensure!(
            opened(&pep, &seen).len() == seen.len(),
            "the old keys still"
        );
        for les in [
            &site.client_report()?["les"],
            &site.newer_server_report()?["clients"][0]["les"],
        ] {
            ensure!(les["associations_total"] == 2, "{les}");
            let dropped = &les["dropped_total"]["no_association"];
            ensure!(dropped.is_null() || *dropped == 0, "{les}");
            let refused = [
                &les["refused_total"]["association"],
                &les["refused_total"]["forged"],
            ];
            ensure!(refused.into_iter().all(|count| *count == 0), "{les}");
        }
        Ok(())
    });
}

#[test]
fn bits_that_are_flipped_on_the_way_are_refused_and_counted_and_sent_again() {
    let key = new_key();
    on_site(
        "LES and a box that flips bits",
        listed(&key.public()),
        |site| {
            let gateway = site.topology.gateway();
            let flips = Arc::new(AtomicBool::new(false));
            let on = flips.clone();
            let flip = move |number: usize, packet: &mut [u8]| {
                if number.is_multiple_of(40) && on.load(Ordering::Relaxed) {
                    let place = number / 40 * 7 % packet.len();
                    packet[place] ^= 1 << (number / 40 % 8);
                }
            };
            let _between = MiddleBox::start(gateway, at_gateway(BOX), at_gateway(LES), flip)?;
            until_it_stands(site)?;
            flips.store(true, Ordering::Relaxed);
            let [ipv4, ipv6] = site.routes();
            let download = Transfer::start(&ipv4, Way::Download, LENGTH)?;
            let upload = Transfer::start(&ipv6, Way::Upload, LENGTH)?;
            download.finish_whole().context("download")?;
            upload.finish_whole().context("upload")?;
            flips.store(false, Ordering::Relaxed);
            for les in [
                &site.client_report()?["les"]["refused_total"],
                &site.newer_server_report()?["clients"][0]["les"]["refused_total"],
            ] {
                ensure!(les["forged"].as_u64() > Some(5), "{les}");
            }
            Ok(())
        },
    );
}
