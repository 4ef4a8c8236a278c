//! Firewalls that drop IPv6 from where no route leads back, as firewalld's `IPv6_rpfilter` does: everything crosses all the same.

use anyhow::{Result, ensure};
use bentpipe_testbed::route::Place;
use bentpipe_testbed::site::Site;

use super::{everything, on_site};
use crate::dns::resolver::Resolver;
use crate::dns::web;

/// Rules of firewalld 1.3 for `IPv6_rpfilter=yes`.
const FIREWALL: &str = "add table inet firewalld; \
    add chain inet firewalld filter_PREROUTING { type filter hook prerouting priority filter + 10; }; \
    add rule inet firewalld filter_PREROUTING icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept; \
    add rule inet firewalld filter_PREROUTING meta nfproto ipv6 fib saddr . mark . iif oif missing counter drop";

#[test]
fn a_firewall_that_looks_for_the_way_back_drops_nothing() {
    on_site("reverse path", everything::config(), |site| {
        // After the start: the way is made by whoever watches.
        for place in [site.topology.terminal(), site.topology.gateway()] {
            place.run("nft", &[FIREWALL])?;
        }
        let way = "way for our device through chain filter_PREROUTING of table inet firewalld";
        site.client().wait_for_line(way, super::SOON)?;
        let _resolver = Resolver::start(&Place::from(site.topology.web()), web())?;
        let crossed = everything::crosses(site, "www.example.com");
        let dropped = dropped(site)?;
        ensure!(crossed.is_ok(), "{:#}\n{dropped}", crossed.unwrap_err());
        ensure!(
            dropped.matches("packets 0 bytes 0 drop").count() == 2,
            "{dropped}"
        );
        Ok(())
    });
}

/// Chains of both firewalls, with their counts.
fn dropped(site: &Site) -> Result<String> {
    let chain = ["list", "chain", "inet", "firewalld", "filter_PREROUTING"];
    let both = [site.topology.terminal(), site.topology.gateway()];
    let listed: Result<Vec<_>> = both
        .map(|place| Ok(place.run("nft", &chain)?))
        .into_iter()
        .collect();
    Ok(listed?.concat())
}
