//! How far a figure is from the one that others have published, in words.

use crate::experiment::FailureCount;
use crate::results::Known;

/// Share by which two figures differ that are told apart.
pub(super) const APART: f64 = 0.05;

/// Deviation up to which a figure counts as reproduced, as a share of the published one.
const NEAR: f64 = 0.15;

/// The deviation of a figure that is `ratio` times the published one, such as `34 % less`; none if it is reproduced.
pub(super) fn deviation(ratio: Known) -> Option<String> {
    let percent = |ratio: f64| format!("{:.0} %", 100.0 * (ratio - 1.0).abs());
    let about = match ratio.value() {
        Some(_) => "",
        None => "over ",
    };
    let (least, most) = (ratio.least(), ratio.most());
    if least > 1.0 + NEAR {
        Some(format!("{about}{} more", percent(least)))
    } else if most < 1.0 - NEAR {
        Some(format!("{about}{} less", percent(most)))
    } else {
        None
    }
}

/// True if it is known whether a figure that is `ratio` times the published one is near it: one that was given up early may be either.
pub(super) fn is_settled(ratio: Known) -> bool {
    let near = ratio.least() >= 1.0 - NEAR && ratio.most() <= 1.0 + NEAR;
    near || deviation(ratio).is_some()
}

/// The deviation of a share of failed runs; none if it is near the published one, or if it is of fewer runs: one success refutes no
/// failure in five, nor does one failure confirm it.
pub(super) fn failures(own: FailureCount, published: FailureCount) -> Option<&'static str> {
    if own.of() < published.of() {
        return None;
    }
    match own.share() - published.share() {
        more if more > NEAR => Some("more"),
        fewer if fewer < -NEAR => Some("fewer"),
        _ => None,
    }
}

/// Mark of a deviation behind a figure in a table, as HTML; empty without one.
pub(super) fn mark(deviation: Option<&str>) -> String {
    deviation.map_or_else(String::new, |text| format!(" <b>{text}</b>"))
}

/// A deviation in brackets behind a figure, as text; empty without one.
pub(super) fn bracket(deviation: Option<&str>) -> String {
    deviation.map_or_else(String::new, |text| format!(" ({text})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_is_said_with_its_sign() {
        let exactly = |ratio| deviation(Known::exactly(ratio)).unwrap_or_default();
        let failed = |text: &str| text.parse::<FailureCount>().unwrap();
        assert_eq!(failures(failed("1 of 5"), failed("5 of 5")), Some("fewer"));
        assert_eq!(failures(failed("1 of 8"), failed("0 of 5")), None);
        assert_eq!(failures(failed("0 of 1"), failed("3 of 5")), None);
        assert_eq!(exactly(1.14), "");
        assert_eq!(exactly(0.86), "");
        assert_eq!(exactly(1.16), "16 % more");
        assert_eq!(exactly(0.66), "34 % less");
        let given_up = Known::more_than(60.0).over(Known::exactly(20.0));
        assert_eq!(deviation(given_up).as_deref(), Some("over 200 % more"));
        let other_given_up = Known::exactly(20.0).over(Known::more_than(60.0));
        assert_eq!(deviation(other_given_up).as_deref(), Some("over 67 % less"));
        let unknown = Known::more_than(20.0).over(Known::exactly(60.0));
        assert_eq!(deviation(unknown), None);
        let settled = [given_up, other_given_up, unknown].map(is_settled);
        assert_eq!(settled, [true, true, false]);
        assert!(is_settled(Known::exactly(1.1)) && is_settled(Known::exactly(2.0)));
        assert_eq!(mark(Some("more")), " <b>more</b>");
        assert_eq!((mark(None), bracket(None)), (String::new(), String::new()));
    }
}
