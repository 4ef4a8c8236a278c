//! Names that followed another are asked for along with it.

use super::*;

/// Loads a page of which each name is known once the one before has been answered, over a link of one second; how long names
/// were waited for.
fn names_of_a_page(dns: &mut Dns, begun: Instant, names: &[&str]) -> Duration {
    let mut now = begun;
    for text in names {
        let asked = query(1, text, Rtype::A, None);
        let mut known = dns.handle_query(now, from(1), &asked, Room::Udp).is_some();
        let mut crossing = Vec::new();
        while !known {
            crossing.extend(std::iter::from_fn(|| dns.poll_transmit()));
            now += secs(1);
            for (ticket, question) in crossing.drain(..) {
                dns.handle_answer(now, ticket, Some(&address(&question, 60, 1)));
            }
            known = dns.poll_answer().is_some();
        }
    }
    now - begun
}

#[test]
fn names_that_followed_another_are_asked_for_along_with_it() {
    let page = ["www.example", "cdn.example", "fonts.example", "ads.example"];
    for (prefetch, second) in [(true, secs(1)), (false, secs(4))] {
        let now = start();
        let mut dns = Dns::new(Config {
            prefetch,
            ..config()
        });
        dns.set_tunnel(now, true, BOTH);
        assert_eq!(names_of_a_page(&mut dns, now, &page), secs(4));
        let again = names_of_a_page(&mut dns, now + secs(600), &page);
        assert_eq!(again, second, "prefetch = {prefetch}");
        let stats = dns.stats();
        assert_eq!(
            (stats.asked, stats.prefetched),
            (8, if prefetch { 3 } else { 0 })
        );
        // Answers that hold are not asked for again.
        names_of_a_page(&mut dns, now + secs(630), &page);
        assert_eq!(dns.stats().asked, 8);
    }
}

#[test]
fn names_that_follow_are_asked_for_within_bounds() {
    let now = start();
    let mut dns = connected(now);
    let names: Vec<_> = (0..100).map(|n| format!("{n}.example")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    names_of_a_page(&mut dns, now, &names);
    let asked = query(1, names[0], Rtype::A, None);
    let later = now + secs(600);
    assert!(miss(&mut dns, later, 1, &asked).is_some());
    let ahead = std::iter::from_fn(|| dns.poll_transmit()).count();
    // Those of the first 20 s: a burst is no longer.
    assert_eq!(ahead, 19);
    // Without a tunnel nobody asks.
    dns.set_tunnel(later, false, BOTH);
    dns.handle_query(later + secs(60), from(2), &asked, Room::Udp);
    assert_eq!(dns.poll_transmit(), None);
}
