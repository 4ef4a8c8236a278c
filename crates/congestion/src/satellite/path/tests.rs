//! What a rest makes of a path.

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn answer(path: &mut Path, now: Instant, rtt: Duration) {
    path.on_ack(&AckSample {
        now,
        newly_acked: 1500,
        rtt: Some(rtt),
        newest_sent: now - rtt,
        in_flight: 15_000,
        app_limited: false,
        rate: None,
    });
}

/// A path of `before` that after `idle` answers after `rtt`; what it then is taken for.
fn rested(before: Duration, idle: Duration, rtt: Duration) -> Path {
    let start = Instant::now() + ms(1000);
    let mut path = Path::new(ms(333), start);
    answer(&mut path, start, before);
    path.rest(start + idle);
    answer(&mut path, start + idle + rtt, rtt);
    path
}

/// In a low orbit another satellite has come in the meantime; a high one stays where it is.
#[test]
fn a_rest_makes_a_near_path_another() {
    assert_eq!(rested(ms(40), ms(10_000), ms(80)).base(), ms(80));
    assert_eq!(rested(ms(40), ms(500), ms(80)).base(), ms(40), "no rest");
    assert_eq!(rested(ms(600), ms(10_000), ms(650)).base(), ms(600), "far");
}

/// What is lost, or queues, soon after a rest tells somebody who fills the queue from a longer path; later it does not.
#[test]
fn an_overload_after_a_rest_means_the_path_is_what_it_was() {
    let now = Instant::now() + ms(30_000);
    let mut path = rested(ms(40), ms(10_000), ms(80));
    path.on_overload(now);
    assert_eq!(path.base(), ms(40));
    let mut path = rested(ms(40), ms(10_000), ms(80));
    for _ in 0..TRIAL {
        path.end_round();
    }
    path.on_overload(now);
    assert_eq!(path.base(), ms(80));
}
