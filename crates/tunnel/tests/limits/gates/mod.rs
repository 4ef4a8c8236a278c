//! What the tunnel does to others and to itself: the gates. A speed that costs one of these does not count.

mod acks;
mod beside;
mod distant;
mod marks;
mod near;
mod packets;
mod pages;
mod probe;
mod queue;
mod repair;
mod share;
mod tunnels;

use std::time::Duration;

use bentpipe_testbed::tcp::Algorithm;
use bentpipe_tunnel::engine::Profile;

use crate::row::Row;
use crate::scenario::{Loss, Queue, Scenario};
use crate::transfer::Before;
use queue::Managed;
use share::CUBIC;
use tunnels::{Gone, Places};

/// A GEO link small enough to run for minutes.
const GEO: Scenario = Scenario::geo("E-geo", [20.0, 5.0], 300);
const LEO: Scenario = Scenario {
    profile: Profile::Leo,
    ..Scenario::geo("E-leo", [20.0, 5.0], 25)
};
fn medium() -> Scenario {
    Scenario::built_in("G5", "g5")
}
fn thin_return() -> Scenario {
    Scenario::built_in("G6", "g6")
}
fn small() -> Scenario {
    Scenario::built_in("G8", "g8")
}
/// One beam.
fn beam() -> Scenario {
    Scenario::built_in("M1", "m1")
}
/// The same, for terminals of which some are four times as far.
const NEAR: Scenario = Scenario::geo("M1-near", [100.0, 20.0], 75);
/// A gateway's egress to terminals under a low and a high satellite.
const LEO_BEAM: Scenario = Scenario::geo("M1-leo", [100.0, 20.0], 25);

/// What `make test` runs: with so many seeds, and what the first figures hold today. The others hold their goals.
const CHECKED: [(&str, u64, &[f64]); 36] = [
    ("C2 pages", 10, &[0.6, 5.25, 6.5]),
    ("E-leo steady, queue 1 BDP", 1, &[20.0]),
    ("E-geo step to 4 Mbit/s", 1, &[2.5]),
    ("E-leo 1 % loss, then half the rate", 2, &[1.2]),
    ("E-leo beside CUBIC, 1 BDP", 2, &[0.75]),
    ("E-leo jump onto CUBIC", 20, &[0.8, 5.0]),
    ("E-geo jump onto CUBIC", 10, &[0.8, 5.0]),
    ("E-leo jump onto CUBIC, resumed", 6, &[0.8, 5.0]),
    ("E-leo-1% CUBIC inside", 3, &[0.95]),
    ("E-leo CoDel, marking", 1, &[0.0]),
    ("E-leo CoDel, dropping", 3, &[0.5]),
    ("E-leo-2% repairs, ECN queue, 5 ms", 7, &[0.01]),
    ("E-geo all marked for one RTT", 1, &[0.855]),
    ("E-geo policed to 5 Mbit/s, 50ms", 1, &[0.95]),
    ("E-geo ping beside bulk", 1, &[20.0]),
    ("E-leo bursts and losses", 1, &[1.0]),
    ("G5-.1% 1.6 MB files", 1, &[1.05]),
    ("E-fast 15 MB from 60 ms off, cold", 1, &[1.0]),
    ("M1-leo 2 tunnel(s), LEO and GEO", 2, &[0.9, 0.95, 2.0]),
    ("G8 page beside bulk", 1, &[1.15]),
    ("E-leo 1 kB beside bulk", 1, &[25.0]),
    ("G8 1 kB beside bulk", 2, &[25.0]),
    ("G6 return traffic of bulk", 1, &[60.0]),
    ("M1 10 tunnel(s)", 3, &[0.95]),
    ("E-geo outage of 60s", 3, &[1.5]),
    ("E-leo outage of 60s", 3, &[1.5]),
    ("near 0.1 ms 1000 M 1 BDP", 1, &[0.85]),
    ("near 0.1 ms 20 M 1 BDP", 1, &[0.95]),
    ("near 0.1 ms 100 M 1 BDP, hiccup", 1, &[0.95]),
    ("near 2 ms 100 M 1 BDP", 1, &[0.95]),
    ("near 5 ms 100 M 25 packets", 1, &[0.95]),
    ("near 10 ms 100 M 1 BDP", 1, &[0.95]),
    ("near 20 ms 100 M 1 BDP, 0.1 %", 1, &[0.95]),
    ("near 5 ms 1000 M 1 BDP, 0.1 %", 1, &[0.95]),
    ("near 600 to 5 ms 100 M", 1, &[0.95]),
    ("near 5 to 600 ms 100 M", 1, &[0.95]),
];

/// Every gate.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = own_queue();
    rows.extend(nested());
    rows.extend(shares());
    rows.extend(beams());
    rows.extend(short_flows());
    rows.extend(repairs());
    rows.extend(near::rows());
    for (title, seeds, today) in CHECKED {
        let row = rows.iter_mut().find(|row| row.title() == title);
        let row = row.unwrap_or_else(|| panic!("no row is called {title}"));
        row.check = Some((seeds, today.to_vec()));
    }
    rows
}

fn own_queue() -> Vec<Row> {
    let mut rows = Vec::new();
    for scenario in [GEO, LEO, medium()] {
        let of = |queue| Scenario { queue, ..scenario };
        for queue in [Queue::Bdp(1.0), Queue::Bdp(4.0)] {
            rows.push(queue::steady(of(queue), Before::Cold));
        }
        rows.push(queue::steady(of(Queue::Packets(25)), Before::Cold));
        rows.push(queue::steady(of(Queue::Bdp(1.0)), Before::Resumed));
        rows.push(packets::ping(scenario));
    }
    for scenario in [GEO, LEO] {
        rows.push(queue::managed(scenario, Managed::Threshold));
        for ecn in [true, false] {
            rows.push(queue::managed(scenario, Managed::CoDel { ecn }));
        }
        rows.push(queue::answered(scenario));
        rows.push(queue::policed(scenario, 5.0, Duration::from_millis(50)));
        rows.push(queue::step(scenario, 4.0));
        for (loss, name) in [(0.01, "1 %"), (0.02, "2 %"), (0.05, "5 %")] {
            rows.push(queue::halved(scenario, Loss::Iid(loss), name));
        }
        rows.push(queue::halved(scenario, Loss::Bursts(0.02, 6.0), "2 % GE"));
    }
    let variable = Scenario {
        name: "G7",
        ..medium()
    };
    rows.push(queue::step(variable, 10.0));
    rows
}

fn nested() -> Vec<Row> {
    let both = [GEO, LEO].into_iter();
    let links = both.flat_map(|clean| {
        let lossy = Scenario {
            loss: Loss::Iid(0.01),
            name: if clean.profile == Profile::Leo {
                "E-leo-1%"
            } else {
                "E-geo-1%"
            },
            ..clean
        };
        [clean, lossy]
    });
    links.map(packets::nested).collect()
}

fn shares() -> Vec<Row> {
    let mut rows = Vec::new();
    for scenario in [LEO, GEO] {
        for algorithm in [CUBIC, Algorithm::NewReno] {
            for bdp in [0.5, 1.0, 4.0] {
                rows.push(share::beside(scenario, algorithm, bdp, 1));
            }
        }
        rows.push(share::beside(scenario, CUBIC, 1.0, 10));
        for before in [Before::Warm, Before::Resumed] {
            rows.push(share::jump(scenario, before));
        }
    }
    rows
}

fn beams() -> Vec<Row> {
    let queue = |bdp| Scenario {
        queue: Queue::Bdp(bdp),
        ..beam()
    };
    let lossy = Scenario {
        name: "M1-1%",
        loss: Loss::Iid(0.01),
        ..beam()
    };
    let named = |name, bdp| Scenario { name, ..queue(bdp) };
    vec![
        tunnels::many(beam(), 1, Places::Same),
        tunnels::many(beam(), 2, Places::Same),
        tunnels::many(beam(), 10, Places::Same),
        tunnels::many(beam(), 50, Places::Same),
        tunnels::many(named("M1-.5BDP", 0.5), 10, Places::Same),
        tunnels::many(named("M1-4BDP", 4.0), 10, Places::Same),
        tunnels::many(lossy, 10, Places::Same),
        tunnels::many(NEAR, 2, Places::OneToFour),
        tunnels::many(NEAR, 10, Places::OneToFour),
        tunnels::many(LEO_BEAM, 2, Places::LeoAndGeo),
        tunnels::resume(beam(), 10, Gone::Link),
        tunnels::resume(beam(), 10, Gone::Gateway),
        tunnels::outage(GEO, Duration::from_secs(10)),
        tunnels::outage(GEO, Duration::from_secs(60)),
        tunnels::outage(LEO, Duration::from_secs(60)),
    ]
}

fn short_flows() -> Vec<Row> {
    let lossy = Scenario {
        name: "G5-1%",
        loss: Loss::Iid(0.01),
        ..medium()
    };
    let two_percent = Scenario {
        name: "G5-2%",
        loss: Loss::Iid(0.02),
        ..medium()
    };
    /// The link of a paper on pages, as fast as one of today.
    const FAST: Scenario = Scenario::geo("E-fast", [70.0, 10.0], 260);
    vec![
        distant::download(FAST, Before::Cold, 15_000_000),
        distant::download(FAST, Before::Resumed, 15_000_000),
        distant::download(medium(), Before::Cold, 2_000_000),
        distant::download(medium(), Before::Cold, 10_000_000),
        distant::download(medium(), Before::Resumed, 10_000_000),
        distant::download(Scenario::built_in("S1", "s1"), Before::Cold, 1_000_000),
        distant::download(Scenario::built_in("S1", "s1"), Before::Resumed, 1_000_000),
        distant::download(Scenario::built_in("G1", "g1"), Before::Cold, 100_000_000),
        distant::download(Scenario::built_in("G1", "g1"), Before::Resumed, 100_000_000),
        distant::download(small(), Before::Cold, 2_000_000),
        distant::download(small(), Before::Resumed, 2_000_000),
        distant::download(lossy, Before::Cold, 10_000_000),
        distant::download(LEO, Before::Cold, 10_000_000),
        distant::download(LEO, Before::Resumed, 10_000_000),
        beside::first_byte(medium()),
        beside::first_byte(small()),
        beside::first_byte(LEO),
        beside::first_byte(lossy),
        beside::page(medium()),
        beside::page(small()),
        beside::page(LEO),
        beside::overhead(medium(), 0.96),
        beside::overhead(two_percent, 0.93),
        acks::thinned(thin_return()),
        acks::thinned(GEO),
        acks::thinned(LEO),
        beside::return_traffic(thin_return()),
        beside::return_traffic(medium()),
        beside::return_traffic(lossy),
    ]
}

fn repairs() -> Vec<Row> {
    let lossy = |name, loss| Scenario {
        name,
        loss: Loss::Iid(loss),
        ..medium()
    };
    let bursts = Scenario {
        loss: Loss::Bursts(0.02, 6.0),
        ..lossy("G5-2%-GE", 0.02)
    };
    let two = lossy("G5-2%", 0.02);
    let ten = Scenario {
        loss: Loss::Iid(0.01),
        ..Scenario::geo("C2", [10.0, 10.0], 250)
    };
    let [near, far] = [("E-leo-2%", LEO), ("E-geo-2%", GEO)].map(|(name, clean)| Scenario {
        name,
        loss: Loss::Iid(0.02),
        ..clean
    });
    vec![
        repair::short_flows(two),
        repair::short_flows(bursts),
        pages::lossy(ten),
        repair::files(lossy("G5-.03%", 0.0003)),
        repair::files(lossy("G5-.1%", 0.001)),
        pages::lossy(Scenario {
            name: "C2-.1%",
            loss: Loss::Iid(0.001),
            ..ten
        }),
        repair::queries(two),
        repair::handovers(LEO),
        repair::handshake(lossy("G5-5%", 0.05)),
        repair::idle(medium()),
        repair::idle(LEO),
        repair::voice(two, false),
        repair::voice(two, true),
        repair::voice(bursts, false),
        repair::beside_cubic(LEO, 1.0),
        repair::beside_cubic(GEO, 1.0),
        marks::repairs_where(near, Managed::Threshold),
        marks::repairs_where(near, Managed::CoDel { ecn: true }),
        marks::repairs_where(far, Managed::CoDel { ecn: true }),
    ]
}
