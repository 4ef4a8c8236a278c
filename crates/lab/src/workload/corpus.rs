//! The corpus: twenty pages as the web has them, the same for everybody, from a seed.
//!
//! How many objects of a kind a page has, and how many bytes, follows the distributions over desktop pages that the HTTP
//! Archive measured in 2024 (Web Almanac 2024, chapter Page Weight: deciles and quartiles of requests and of bytes for style
//! sheets, scripts and images; medians for HTML and fonts, whose bytes and requests count with images here). A page refers to
//! as many hosts, for its size, as the median page has third-party domains (the same, chapter Third Parties: 24 for 71
//! requests). Video is left out: it is not needed for a page to be loaded. Beyond the first and the last decile nothing is
//! published, and nothing larger or smaller is made up.
//!
//! The pages stand for equal parts of the distribution. Their order is such that the first few are no worse a sample than all.

use bentpipe_units::Seed;
use rand_core::Rng as _;

use super::content::generator;
use super::page::Page;
use super::shape::{Part, Shape};

/// Pages of the corpus.
pub const PAGES: usize = 20;
/// The most hosts that a page of it has.
pub const HOSTS: u8 = 40;

/// Seed that all its random numbers follow from.
const SEED: Seed = Seed::new(1);
/// Between the ranks of a page and of the next: has no factor in common with `PAGES`, and is near the golden section of it.
const STRIDE: usize = 13;
/// A page's rank in one distribution is this far, at most, from its rank in the next, in thousandths.
const SPREAD: u64 = 150;

/// Values of the 10th, 25th, 50th, 75th and 90th hundredth of all pages.
type Quantiles = [u64; 5];
const RANKS: Quantiles = [100, 250, 500, 750, 900];

const STYLES: Quantiles = [2, 4, 8, 16, 26];
const SCRIPTS: Quantiles = [5, 12, 24, 43, 70];
/// Images and fonts.
const IMAGES: Quantiles = [5, 11, 22, 40, 71];
const STYLE_BYTES: Quantiles = [10_000, 36_000, 80_000, 152_000, 269_000];
const SCRIPT_BYTES: Quantiles = [101_000, 270_000, 620_000, 1_172_000, 1_834_000];
/// Images, and fonts in proportion to their number.
const IMAGE_BYTES: Quantiles = [84_000, 384_000, 1_185_000, 3_053_000, 6_888_000];
/// 18 kB at the median: what has more to refer to is larger.
const DOCUMENT_BYTES: u64 = 8_000;
const DOCUMENT_BYTES_PER_OBJECT: u64 = 180;
/// Objects per host.
const REQUESTS_PER_25_HOSTS: usize = 71;

/// The first `count` pages; after the last comes the first again.
pub fn pages(count: usize) -> impl Iterator<Item = Page> {
    (0..count).map(|place| page(place % PAGES))
}

fn page(place: usize) -> Page {
    let rank = (PAGES / 2 + place * STRIDE) % PAGES;
    let seed = SEED.stream("corpus").nth(rank as u64);
    let mut shape = generator(seed.stream("rank"));
    // The middle of its part of the distribution.
    let rank = (2 * rank as u64 + 1) * 1000 / (2 * PAGES as u64);
    let mut near = |quantiles: Quantiles| {
        let away = shape.next_u64() % (2 * SPREAD + 1);
        at(quantiles, (rank + away).saturating_sub(SPREAD))
    };
    let mut part = |count, bytes| Part {
        count: near(count) as usize,
        bytes: near(bytes),
    };
    let (styles, scripts, images) = (
        part(STYLES, STYLE_BYTES),
        part(SCRIPTS, SCRIPT_BYTES),
        part(IMAGES, IMAGE_BYTES),
    );
    let objects = 1 + styles.count + scripts.count + images.count;
    let hosts = (objects * 25).div_ceil(REQUESTS_PER_25_HOSTS);
    Page::new(
        &Shape {
            document: DOCUMENT_BYTES + DOCUMENT_BYTES_PER_OBJECT * objects as u64,
            styles,
            scripts,
            images,
            // No larger than HOSTS, so it fits.
            hosts: hosts.clamp(2, usize::from(HOSTS)) as u8,
            first_host: 0,
            deep: false,
        },
        seed,
    )
}

/// The value at a rank in thousandths: between two that are known on the line between them, beyond the outermost those.
fn at(quantiles: Quantiles, rank: u64) -> u64 {
    let rank = rank.clamp(RANKS[0], RANKS[4]);
    let above = RANKS.iter().position(|known| *known >= rank).unwrap_or(4);
    let below = above.saturating_sub(1);
    let span = (RANKS[above] - RANKS[below]).max(1);
    let rise = quantiles[above] - quantiles[below];
    quantiles[below] + rise * (rank - RANKS[below]) / span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_is_distributed_as_the_web_is() {
        let all: Vec<Page> = pages(PAGES).collect();
        let median = |measure: fn(&Page) -> u64| {
            let mut values: Vec<u64> = all.iter().map(measure).collect();
            values.sort_unstable();
            (values[PAGES / 2 - 1] + values[PAGES / 2]) / 2
        };
        let objects = median(|page| page.objects().len() as u64);
        let bytes = median(Page::bytes);
        let hosts = median(|page| page.hosts().into());
        assert!((50..=65).contains(&objects), "{objects} objects");
        assert!((1_500_000..=2_400_000).contains(&bytes), "{bytes} bytes");
        assert!((18..=25).contains(&hosts), "{hosts} hosts");
        let least = all.iter().map(Page::bytes).min();
        let most = all.iter().map(Page::bytes).max();
        assert!(
            least < Some(500_000) && most > Some(6_000_000),
            "{least:?}, {most:?}"
        );
        assert!(all.iter().all(|page| page.hosts() <= HOSTS));
    }

    #[test]
    fn every_page_is_another_and_a_few_are_a_fair_sample() {
        let all: Vec<Page> = pages(PAGES).collect();
        for (place, page) in all.iter().enumerate() {
            assert!(
                !all[..place].contains(page),
                "page {place} was there before"
            );
        }
        assert_eq!(pages(PAGES + 1).last(), Some(all[0].clone()));
        let mean = |some: &[Page]| some.iter().map(Page::bytes).sum::<u64>() / some.len() as u64;
        let ratio = mean(&all[..6]) as f64 / mean(&all) as f64;
        assert!((0.7..1.3).contains(&ratio), "{ratio}");
    }

    #[test]
    fn quantiles_are_met_exactly_and_nothing_is_beyond_them() {
        assert_eq!(RANKS.map(|rank| at(IMAGE_BYTES, rank)), IMAGE_BYTES);
        assert_eq!(at(STYLES, 375), 6);
        assert_eq!([at(STYLES, 0), at(STYLES, 1150)], [2, 26]);
    }
}
