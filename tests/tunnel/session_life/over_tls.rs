//! Everything that the tunnel carries, over TLS, and nothing beside it.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bentpipe_emulator::topology::LINK_DEVICE;
use bentpipe_lab::capture::{Capture, Tunnel};
use bentpipe_testbed::expect_tunnel_alone;
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::{SiteConfig, TLS_PORT, near};
use bentpipe_testbed::transfer::{Transfer, Way};

use super::wire::tunnel;
use super::{everything, on_site, wire_is};
use crate::BENTPIPE;
use crate::dns::resolver::Resolver;
use crate::dns::web;

#[test]
fn everything_crosses_over_tls() {
    let config = everything::config().with_tls("tls");
    on_site("everything over TLS", config, |site| {
        let door = Tunnel::Tcp(TLS_PORT);
        let capture = Capture::start(site.topology.terminal(), LINK_DEVICE, door)?;
        let _resolver = Resolver::start(&Place::from(site.topology.web()), web())?;
        wire_is(site, "tls")?;
        everything::crosses(site, "www.example.com")?;
        wire_is(site, "tls")?;
        expect_tunnel_alone(capture)
    });
}

/// The share of what had to wait for lost packets is that of the kernel's counters.
#[test]
fn status_tells_how_much_waited_for_lost_packets() {
    let config = SiteConfig {
        scenario: near(),
        ..SiteConfig::new(BENTPIPE)
    };
    on_site("losses over TLS", config.with_tls("tls"), |site| {
        let [route, _] = site.routes();
        Transfer::start(&route, Way::Download, 10_000_000)?.finish_whole()?;
        // Figures of the last second.
        thread::sleep(Duration::from_secs(2));
        let told = tunnel(site)?["receiving"]["blocked_ratio"].as_f64();
        let told = told.context("no share")?;
        let filter = format!("dport = :{TLS_PORT}");
        let sockets = site.topology.terminal().run("ss", &["-tinH", &filter])?;
        let counter = |name: &str| -> Result<f64> {
            let value = sockets
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name));
            Ok(value.context("no counter")?.parse()?)
        };
        let counted = counter("rcv_ooopack:")? / counter("data_segs_in:")?;
        println!("{told:.3} waited, {counted:.3} counted");
        ensure!(
            told > 0.01 && (told - counted).abs() < 0.01,
            "{told}, {counted}"
        );
        Ok(())
    });
}
