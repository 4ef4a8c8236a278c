//! How far a figure is from the one that others have published, in words.

use crate::experiment::FailureCount;
use crate::results::Known;

/// Share by which two figures differ that are told apart.
pub(super) const APART: f64 = 0.05;

/// Deviation up to which a figure counts as reproduced, as a share of the published one.
const NEAR: f64 = 0.15;

/// The deviation of a figure that is `ratio` times the published one, such as `34 % less`; empty if it is reproduced.
pub(super) fn mark(ratio: Known) -> String {
    let percent = |ratio: f64| format!("{:.0} %", 100.0 * (ratio - 1.0).abs());
    let about = match ratio.value() {
        Some(_) => "",
        None => "over ",
    };
    let (least, most) = (ratio.least(), ratio.most());
    let text = if least > 1.0 + NEAR {
        format!("{about}{} more", percent(least))
    } else if most < 1.0 - NEAR {
        format!("{about}{} less", percent(most))
    } else {
        return String::new();
    };
    format!(" <b>{text}</b>")
}

/// The deviation of a share of failed runs; empty if it is near the published one.
pub(super) fn mark_failures(own: FailureCount, published: FailureCount) -> &'static str {
    match own.share() - published.share() {
        more if more > NEAR => " <b>more</b>",
        fewer if fewer < -NEAR => " <b>fewer</b>",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_is_said_with_its_sign() {
        let exactly = |ratio| mark(Known::exactly(ratio));
        let failed = |text: &str| text.parse::<FailureCount>().unwrap();
        assert_eq!(
            mark_failures(failed("1 of 5"), failed("5 of 5")),
            " <b>fewer</b>"
        );
        assert_eq!(mark_failures(failed("1 of 8"), failed("0 of 5")), "");
        assert_eq!(exactly(1.14), "");
        assert_eq!(exactly(0.86), "");
        assert_eq!(exactly(1.16), " <b>16 % more</b>");
        assert_eq!(exactly(0.66), " <b>34 % less</b>");
        let given_up = Known::more_than(60.0).over(Known::exactly(20.0));
        assert_eq!(mark(given_up), " <b>over 200 % more</b>");
        let other_given_up = Known::exactly(20.0).over(Known::more_than(60.0));
        assert_eq!(mark(other_given_up), " <b>over 67 % less</b>");
        assert_eq!(mark(Known::more_than(20.0).over(Known::exactly(60.0))), "");
    }
}
