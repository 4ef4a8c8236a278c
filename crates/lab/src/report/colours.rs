//! Colours, line styles and markers of contenders: one family has one colour in every figure of every page, and those of one family
//! differ in line style and marker.
//!
//! The style sheet has a colour for each family, for light and for dark grounds; bars and the script's figures take it from there.

use serde::Serialize;

/// Style sheet of the page, which has the colours.
pub(super) const STYLE: &str = include_str!("page.css");

/// Families by how a contender's name begins; of several the longest.
const FAMILIES: [(&str, &str); 14] = [
    ("plain", "plain"),
    ("accelerator", "accelerator"),
    ("split", "split"),
    ("openvpn", "openvpn"),
    ("wireguard", "wireguard"),
    ("ipsec", "ipsec"),
    ("qpep", "qpep"),
    ("pepsal", "pepsal"),
    ("bentpipe", "bentpipe"),
    ("bentpipe-sle", "sle"),
    ("sle", "sle"),
    ("les", "les"),
    ("dssl", "dssl"),
    ("ssl", "dssl"),
];

/// Family of the contenders that no other has.
const OTHER: &str = "other";

/// Name of a contender's family, as in the style sheet.
pub(super) fn family(contender: &str) -> &'static str {
    let begins = FAMILIES
        .iter()
        .filter(|(start, _)| contender.starts_with(start));
    let longest = begins.max_by_key(|(start, _)| start.len());
    longest.map_or(OTHER, |(_, family)| family)
}

/// Look of one contender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Look {
    family: &'static str,
    /// Place of the family among all, which its marker is chosen by.
    place: usize,
    /// Place among the contenders of the page that are of this family: each has a line style of its own.
    variant: usize,
}

impl Look {
    /// Red, green and blue on a light ground, as the style sheet has it.
    pub(super) fn rgb(&self) -> [u8; 3] {
        let name = format!("--{}: #", self.family);
        let (_, rest) = STYLE.split_once(&name).unwrap_or_default();
        let part = |at: usize| {
            let digits = rest.get(at..at + 2).unwrap_or_default();
            u8::from_str_radix(digits, 16).unwrap_or_default()
        };
        [part(0), part(2), part(4)]
    }

    /// Number of the marker's corners: each family has a shape of its own among its neighbours.
    pub(super) fn corners(&self) -> usize {
        [16, 4, 3, 5, 6][(self.place + self.variant) % 5]
    }

    /// Place among the contenders that are of this family.
    pub(super) fn variant(&self) -> usize {
        self.variant
    }
}

/// Looks of all contenders of a page, by their names.
pub(super) fn looks<'a>(contenders: impl Iterator<Item = &'a str>) -> Vec<(String, Look)> {
    let mut looks: Vec<(String, Look)> = Vec::new();
    for name in contenders {
        if looks.iter().any(|(known, _)| known == name) {
            continue;
        }
        let family = family(name);
        let before = looks.iter().filter(|(_, look)| look.family == family);
        let variant = before.count();
        let known = FAMILIES.iter().position(|(_, known)| *known == family);
        let place = known.unwrap_or(FAMILIES.len());
        looks.push((
            name.to_owned(),
            Look {
                family,
                place,
                variant,
            },
        ));
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_family_that_it_begins_with() {
        let families = [
            "plain/bbr",
            "ipsec@hosts+accelerator/cubic",
            "bentpipe:x=1",
            "bentpipe-sle",
            "sle@hosts",
            "hysteria2",
        ];
        assert_eq!(
            families.map(family),
            ["plain", "ipsec", "bentpipe", "sle", "sle", "other"]
        );
        let all = looks(["bentpipe"].into_iter());
        assert_eq!(all[0].1.rgb(), [0x00, 0x72, 0xb2]);
    }

    #[test]
    fn two_of_a_family_differ() {
        let looks = looks(["bentpipe", "plain", "bentpipe", "bentpipe-bbr3"].into_iter());
        let found: Vec<_> = looks
            .iter()
            .map(|(name, look)| (name.as_str(), look.family, look.variant))
            .collect();
        assert_eq!(
            found,
            [
                ("bentpipe", "bentpipe", 0),
                ("plain", "plain", 0),
                ("bentpipe-bbr3", "bentpipe", 1)
            ]
        );
    }

    #[test]
    fn the_style_sheet_has_every_family_for_both_grounds() {
        for family in FAMILIES.map(|(_, family)| family).iter().chain([&OTHER]) {
            let colour = format!("--{family}: ");
            assert_eq!(STYLE.matches(&colour).count(), 2, "{family}");
        }
    }
}
