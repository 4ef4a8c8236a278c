//! Virtual time: who is tried when, and what a silent server costs.

use super::*;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Bytes that leave for an attempt that nobody answers: datagrams of 1200 bytes in IPv6 packets.
fn cost(start: Start) -> u64 {
    super::super::connecting::first_words(start.copies).datagrams * 1248
}

struct Bench {
    start: Instant,
    now: Instant,
    retry: Retry,
    starts: Vec<(Duration, Start)>,
}

impl Bench {
    fn new(servers: usize) -> Self {
        let start = Instant::now();
        Self {
            start,
            now: start,
            retry: Retry::new(start, servers, Seed::new(7)),
            starts: Vec::new(),
        }
    }

    /// Runs for `time`, a host asking every `asking`; `answer` decides on an attempt.
    fn run(
        &mut self,
        time: Duration,
        asking: Option<Duration>,
        mut answer: impl FnMut(Start) -> Option<Failure>,
    ) {
        let end = self.now + time;
        let mut asks = asking.map(|every| self.now + every);
        while self.now < end {
            let wake = match self.retry.poll(self.now, None) {
                Step::Start(start) => {
                    self.starts.push((self.now - self.start, start));
                    if let Some(failure) = answer(start) {
                        self.retry.on_failed(self.now, failure);
                    }
                    self.now
                }
                Step::Unanswered | Step::GiveUp { .. } => self.now,
                Step::Wait(until) => until.unwrap_or(end).min(asks.unwrap_or(end)).min(end),
            };
            assert!(self.starts.len() < 10_000, "it spins");
            self.now = wake;
            if let Some(due) = asks.filter(|due| *due <= self.now) {
                self.retry.on_asked(self.now);
                asks = asking.map(|every| due + every);
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.starts.iter().map(|(_, start)| cost(*start)).sum()
    }
}

#[test]
fn pauses_grow_to_minutes_and_cost_little() {
    for asking in [None, Some(secs(1)), Some(Duration::from_millis(20))] {
        for servers in 1..=3 {
            let mut bench = Bench::new(servers);
            bench.run(secs(60), asking, |_| None);
            assert!(bench.bytes() <= 60_000, "{} in a minute", bench.bytes());
            if asking.is_none() && servers == 1 {
                let times: Vec<_> = bench.starts.iter().map(|(at, _)| at.as_secs()).collect();
                assert!(
                    matches!(times[..], [0, 3, 8..=10, 20..=25, 45..=56]),
                    "{times:?}"
                );
            }
            bench.run(secs(600), asking, |_| None);
            let before = bench.bytes();
            bench.run(secs(3600), asking, |_| None);
            let hour = bench.bytes() - before;
            assert!(
                hour <= 300_000,
                "{hour} an hour, {servers} servers, {asking:?}"
            );
            let last = bench.starts.windows(2).next_back().expect("two");
            let pause = last[1].0 - last[0].0;
            let most = if asking.is_some() { 95 } else { 375 };
            assert!(pause <= secs(most), "{pause:?} with {asking:?}");
        }
    }
}

#[test]
fn the_operator_hears_of_the_first_unanswered_attempt_after_three_seconds() {
    let mut bench = Bench::new(1);
    let now = bench.now;
    assert!(matches!(bench.retry.poll(now, None), Step::Start(_)));
    assert_eq!(bench.retry.poll(now, None), Step::Wait(Some(now + ANSWER)));
    assert_eq!(bench.retry.poll(now + ANSWER, None), Step::Unanswered);
    // Whoever answers late is waited for.
    let late = now + ANSWER;
    let Step::Wait(Some(until)) = bench.retry.poll(late, Some(late)) else {
        panic!("given up");
    };
    assert_eq!(until, late + STALLED);
    let step = bench.retry.poll(until, Some(late));
    assert_eq!(step, Step::GiveUp { answered: true });
}

#[test]
fn a_host_that_asks_after_a_pause_brings_an_attempt_forward() {
    let mut bench = Bench::new(1);
    bench.run(secs(500), None, |_| None);
    let count = bench.starts.len();
    bench.retry.on_asked(bench.now);
    bench.run(Duration::from_millis(1), None, |_| None);
    assert_eq!(bench.starts.len(), count + 1, "at once");
    bench.retry.on_asked(bench.now);
    bench.run(Duration::from_millis(1), None, |_| None);
    assert_eq!(bench.starts.len(), count + 1, "it has not had its time");
}

#[test]
fn a_change_of_the_network_brings_attempts_forward() {
    let mut bench = Bench::new(1);
    bench.run(secs(2000), None, |_| None);
    let count = bench.starts.len();
    bench.retry.on_changed(bench.now);
    bench.run(secs(60), None, |_| None);
    assert!(
        bench.starts.len() >= count + 3,
        "the pauses are short again"
    );
}

#[test]
fn a_dead_first_server_is_left_and_the_good_one_is_preferred() {
    let mut bench = Bench::new(2);
    bench.run(secs(4), None, |_| None);
    let order: Vec<_> = bench.starts.iter().map(|(_, start)| start.server).collect();
    assert_eq!(order, [0, 1]);
    bench.retry.on_ready(bench.now, 1);
    assert_eq!(bench.retry.poll(bench.now, None), Step::Wait(None));
    bench.now += secs(300);
    bench.retry.on_lost(bench.now, secs(300), false);
    bench.run(secs(1), None, |_| None);
    assert_eq!(
        bench.starts.last().expect("one").1.server,
        1,
        "the good one"
    );
    bench.retry.on_ready(bench.now, 1);
    bench.now += secs(900);
    bench.retry.on_lost(bench.now, secs(900), false);
    bench.run(secs(1), None, |_| None);
    assert_eq!(
        bench.starts.last().expect("one").1.server,
        0,
        "some time later"
    );
}

#[test]
fn a_silent_tunnels_server_is_tried_after_the_others() {
    let mut bench = Bench::new(2);
    bench.run(secs(1), None, |_| None);
    bench.retry.on_ready(bench.now, 0);
    bench.now += secs(300);
    bench.retry.on_silent(bench.now, 0);
    bench.run(secs(1), None, |_| None);
    assert_eq!(bench.starts.last().expect("one").1.server, 1, "at once");
    bench.retry.on_quiet();
    assert_eq!(bench.retry.poll(bench.now, None), Step::Wait(None));
    bench.retry.on_silent(bench.now, 0);
    bench.run(secs(1), None, |_| None);
    bench.retry.on_ready(bench.now, 1);
    bench.retry.on_lost(bench.now, secs(60), false);
    bench.run(secs(1), None, |_| None);
    assert_eq!(
        bench.starts.last().expect("one").1.server,
        1,
        "the other was silent"
    );
}

#[test]
fn refusals_are_answered_by_pauses_of_minutes() {
    let mut bench = Bench::new(1);
    bench.run(secs(3600), None, |_| Some(Failure::Refused));
    assert!(
        bench.starts.len() <= 14,
        "{} in an hour",
        bench.starts.len()
    );
    let last = bench.starts.windows(2).next_back().expect("two");
    assert!(last[1].0 - last[0].0 >= secs(300));
    assert!(bench.starts[1].0 < secs(7), "an entry may be added soon");
}

#[test]
fn two_processes_with_one_key_leave_each_other_more_and_more_time() {
    let mut bench = Bench::new(1);
    bench.run(secs(1), None, |_| None);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        bench.starts.clear();
        bench.retry.on_ready(bench.now, 0);
        let lost = bench.now;
        bench.retry.on_lost(lost, secs(1), true);
        bench.retry.on_asked(lost + secs(5));
        bench.run(secs(2000), None, |_| None);
        let next = bench.starts.iter().find(|(at, _)| bench.start + *at > lost);
        pauses.push(bench.start + next.expect("one").0 - lost);
        bench.now = lost + pauses[pauses.len() - 1];
    }
    assert!(
        pauses[0] >= secs(60) && pauses[5] >= secs(900),
        "{pauses:?}"
    );
}

#[test]
fn a_server_that_greets_and_leaves_is_not_hammered() {
    let mut bench = Bench::new(1);
    for _ in 0..100 {
        bench.run(Duration::from_millis(1), None, |_| None);
        bench.retry.on_ready(bench.now, 0);
        bench.now += Duration::from_millis(10);
        bench
            .retry
            .on_lost(bench.now, Duration::from_millis(10), false);
        bench.run(secs(3), None, |_| None);
    }
    assert!(bench.starts.len() <= 120, "{}", bench.starts.len());
}

#[test]
fn without_a_route_nothing_is_given_up_and_lookups_stay_frequent() {
    let mut bench = Bench::new(1);
    bench.run(secs(600), None, |_| Some(Failure::Local));
    let longest = bench
        .starts
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .max();
    assert!(longest.expect("some") <= secs(19), "{longest:?}");
    // The first attempt that can be made is made as the first.
    bench.run(secs(30), None, |_| None);
    let last = bench.starts.last().expect("one");
    assert!(last.0 - bench.starts[bench.starts.len() - 2].0 <= secs(19));
}

#[test]
fn hosts_that_ask_do_not_hurry_a_refused_client_for_long() {
    let mut bench = Bench::new(1);
    bench.run(secs(3600), Some(secs(1)), |_| Some(Failure::Refused));
    assert!(
        bench.starts.len() <= 26,
        "{} in an hour",
        bench.starts.len()
    );
}
