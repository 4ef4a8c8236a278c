//! Medians, and how sure they are.

/// The median of `sorted` figures: the middle one, or the mean of the two in the middle.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// The largest rank, from 0, such that the figures of this rank from below and from above hold the median between them
/// with at least 95 %: how many of `count` figures lie below the median is binomial with one half. Of fewer than six figures
/// there is none.
#[must_use]
pub fn median_rank(count: usize) -> Option<usize> {
    // Of at most so many below: the sum of the distribution's first terms. Far above 1000 figures the first underflows.
    let mut term = 0.5f64.powi(i32::try_from(count.min(1000)).unwrap_or(1000));
    let count = count.min(1000);
    let mut below = 0.0;
    let mut found = None;
    for rank in 0..count / 2 {
        below += term;
        if below > 0.025 {
            break;
        }
        found = Some(rank);
        term *= (count - rank) as f64 / (rank + 1) as f64;
    }
    found
}
