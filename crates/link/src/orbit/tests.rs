//! What the orbits must show: published delays, and the character of recorded ones.

use bentpipe_units::Angle;

use super::*;
use crate::series::Times;

const SECOND: Duration = Duration::from_secs(1);

fn station(latitude: f64, longitude: f64) -> Station {
    Station {
        latitude: Angle::new(latitude),
        longitude: Angle::new(longitude),
    }
}

fn millis(delay: Duration) -> f64 {
    delay.as_secs_f64() * 1e3
}

fn iridium(hop_delay: Duration, offset: Duration) -> Path {
    let constellation = Constellation {
        planes: 6,
        per_plane: 11,
        phasing: 3,
        altitude: 780e3,
        inclination: f64::to_radians(86.4),
        star: true,
        links: true,
        sin_minimum_elevation: f64::to_radians(8.2).sin(),
        hop_delay,
        offset,
    };
    let [ship, london] = [station(35.0, -40.0), station(51.5, 0.0)].map(Site::from);
    Path::walker(
        Walker::new(constellation, [ship, london], SECOND),
        Duration::ZERO,
    )
}

#[test]
fn geostationary_delay_comes_from_coordinates() {
    let equator = station(0.0, 19.2);
    let overhead = Path::geostationary(Angle::new(19.2), equator, equator, Duration::ZERO).unwrap();
    // 2 × 35 786 km.
    assert!((millis(overhead.at(SECOND).one_way_delay) - 238.742).abs() < 0.005);
    let [toulouse, berlin] = [station(43.6, 1.44), station(52.5, 13.4)];
    let path = Path::geostationary(Angle::new(9.0), toulouse, berlin, Duration::ZERO).unwrap();
    let delay = millis(path.at(SECOND).one_way_delay);
    assert!((254.0..260.0).contains(&delay), "{delay}");
    assert!(Path::geostationary(Angle::new(-170.0), toulouse, berlin, Duration::ZERO).is_none());
}

/// The delays of a path in milliseconds, `count` of them, so far apart.
fn sampled(path: &Path, every: Duration, count: u32) -> Vec<f64> {
    let samples = (0..count).map(|index| millis(path.at(every * index).one_way_delay));
    samples.collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// From a ship at 35N 40W over Iridium to London: recorded (403 samples, one each 30 s) as 25 to 142 ms, median 40, mean
/// 58.1, nine in ten below 135, 49 steps, and an hour of more than 100 ms where the way goes round the seam.
#[test]
fn an_iridium_like_constellation_has_the_character_of_the_recorded_trace() {
    let path = iridium(Duration::from_millis(2), SECOND * 3600 * 13);
    let mut delays = sampled(&path, SECOND * 30, 403);
    let steps = delays
        .windows(2)
        .filter(|pair| (pair[0] - pair[1]).abs() > 3.0);
    let dwell = 12_060.0 / steps.count() as f64;
    assert!((150.0..300.0).contains(&dwell), "{dwell}");
    assert!((mean(&delays) - 58.1).abs() < 4.0, "{}", mean(&delays));
    delays.sort_by(f64::total_cmp);
    let [least, median, most] = [0, 201, 402].map(|index| delays[index]);
    assert!((25.0..32.0).contains(&least), "{least}");
    assert!((median - 40.0).abs() < 3.0, "{median}");
    assert!((135.0..145.0).contains(&most), "{most}");
    let long = delays.iter().filter(|delay| **delay > 100.0).count();
    // 7050 to 9600 s of 12,060 s.
    assert!((60..110).contains(&long), "{long}");
    assert!(path.shortest_delay() < Duration::from_secs_f64(least / 1e3));
    assert!(path.longest_delay() > Duration::from_secs_f64(most / 1e3));
}

#[test]
fn bent_pipes_use_one_satellite_that_both_see() {
    let mut constellation = Constellation {
        planes: 72,
        per_plane: 22,
        phasing: 17,
        altitude: 550e3,
        inclination: f64::to_radians(53.0),
        star: false,
        links: false,
        sin_minimum_elevation: f64::to_radians(25.0).sin(),
        hop_delay: Duration::ZERO,
        offset: Duration::ZERO,
    };
    let [user, gateway] = [station(46.0, 6.0), station(48.0, 9.0)].map(Site::from);
    let walker = Walker::new(constellation, [user, gateway], SECOND);
    let path = Path::walker(walker, Duration::ZERO);
    let delays = sampled(&path, SECOND * 15, 400);
    // 550 km at 25 and at 90 degrees, twice.
    assert!(delays.iter().all(|delay| (3.66..7.6).contains(delay)));
    assert!(mean(&delays) < 5.5, "{}", mean(&delays));
    // Nobody below 53 degrees of inclination sees from the pole.
    constellation.altitude = 550e3;
    let pole = Site::from(station(90.0, 0.0));
    let path = Path::walker(
        Walker::new(constellation, [pole, gateway], SECOND),
        Duration::ZERO,
    );
    assert!(path.at(SECOND).outage);
}

#[test]
fn a_trace_is_followed_with_its_offset() {
    let series = Series::parse("0 24\n30 36\n", Times::Written(SECOND), 0.0..=1e3).unwrap();
    let path = Path::trace(series, Duration::from_millis(1));
    assert_eq!(sampled(&path, SECOND * 15, 3), [25.0, 25.0, 37.0]);
    let ends = [path.shortest_delay(), path.longest_delay()].map(millis);
    assert_eq!(ends, [25.0, 37.0]);
}

fn starlink() -> Path {
    let range = |low, high| [low, high].map(Duration::from_millis);
    let epochs = Epochs {
        period: SECOND * 15,
        phase: SECOND * 12,
        delay: range(10, 22),
        jitter: Duration::from_millis(5),
        hold: range(20, 100),
        burst_probability: bentpipe_units::Ratio::new(0.3).unwrap(),
        burst: range(50, 300),
        capacity: [0.5, 1.5],
    };
    Path::starlink(epochs, Seed::new(1))
}

#[test]
fn epochs_have_bases_jitter_and_capacities_of_their_own() {
    let path = starlink();
    // Two ways of a round trip meet different slots.
    let round_trip = |at: Duration| {
        let there = path.at(at).one_way_delay;
        millis(there + path.at(at + there + SECOND / 10).one_way_delay)
    };
    let samples: Vec<_> = (0..60_000u32)
        .map(|index| round_trip(SECOND / 5 * index))
        .collect();
    let change: Vec<_> = samples
        .windows(2)
        .map(|pair| (pair[0] - pair[1]).abs())
        .collect();
    // Recorded: 6.7 ms in the mean from sample to sample; 20 to 45 ms and what jitter adds.
    assert!((3.0..7.0).contains(&mean(&change)), "{}", mean(&change));
    assert!(samples.iter().all(|rtt| (20.0..75.0).contains(rtt)));
    let bases = |epoch: u32| {
        let from = SECOND * 12 + SECOND * 15 * epoch + SECOND;
        sampled_from(&path, from)
            .iter()
            .fold(f64::MAX, |a, b| a.min(*b))
    };
    let steps = (0..200u32).filter(|epoch| (bases(*epoch) - bases(epoch + 1)).abs() > 0.5);
    assert!(steps.count() > 120);
    let capacities: Vec<_> = (0..1000)
        .map(|epoch| path.at(SECOND * 15 * epoch).capacity)
        .collect();
    assert!((mean(&capacities) - 1.0).abs() < 0.03);
    assert!(
        capacities
            .iter()
            .all(|capacity| (0.5..1.5).contains(capacity))
    );
}

fn sampled_from(path: &Path, from: Duration) -> Vec<f64> {
    let samples =
        (0..600u32).map(|index| millis(path.at(from + SECOND / 50 * index).one_way_delay));
    samples.collect()
}

#[test]
fn boundaries_hold_traffic_and_some_lose_it() {
    let path = starlink();
    assert_eq!(path.at(Duration::ZERO).held_until, None);
    let mut bursts = 0;
    for epoch in 0..1000u32 {
        let boundary = SECOND * 12 + SECOND * 15 * epoch;
        let before = path.at(boundary - Duration::from_nanos(1));
        assert_eq!((before.held_until, before.outage), (None, false));
        let until = path.at(boundary).held_until.unwrap();
        let hold = millis(until - boundary);
        assert!((20.0..100.0).contains(&hold), "{hold}");
        assert_eq!(
            path.at(until - Duration::from_nanos(1)).held_until,
            Some(until)
        );
        let after = path.at(until);
        assert_eq!(after.held_until, None);
        bursts += u32::from(after.outage);
        assert!(!path.at(until + Duration::from_millis(300)).outage);
    }
    assert!((260..340).contains(&bursts), "{bursts}");
}
