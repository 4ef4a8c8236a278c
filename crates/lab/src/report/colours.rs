//! Colours, line styles and markers of contenders: one family has one colour in every figure of every page, and those of one family
//! differ in line style and marker.
//!
//! The style sheet has a colour for each family, for light and for dark grounds; bars and the script's figures take it from there.

use std::f64::consts::TAU;

use serde::Serialize;

/// Style sheet of the page, which has the colours.
pub(super) const STYLE: &str = include_str!("page.css");

/// Families by how a contender's name begins; of several the longest.
const FAMILIES: [(&str, &str); 19] = [
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
    ("bentpipe-les", "les"),
    ("sle", "sle"),
    ("les", "les"),
    ("dssl", "dssl"),
    ("ssl", "dssl"),
    ("masque", "masque"),
    ("clear", "accelerator"),
    ("prefetch", "prefetch"),
    ("trusted", "prefetch"),
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

/// Marker of the points of a curve: a regular polygon.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Marker {
    /// Sign that stands for the polygon in a legend.
    sign: char,
    /// Number of its corners.
    corners: u32,
    /// Part of a full turn that lies between straight up and the first corner.
    turn: f64,
}

impl Marker {
    /// Corners of the polygon within a circle of radius 1 around (0, 0), with y downwards.
    pub(super) fn polygon(self) -> impl Iterator<Item = [f64; 2]> {
        (0..self.corners).map(move |corner| {
            let angle = TAU * (self.turn + f64::from(corner) / f64::from(self.corners));
            [angle.sin(), -angle.cos()]
        })
    }
}

/// Marker of published figures in bars.
pub(super) const DIAMOND: Marker = marker('◆', 4, 0.0);

/// Markers of neighbouring families.
const MARKERS: [Marker; 7] = [
    marker('●', 16, 0.0),
    marker('■', 4, 0.125),
    marker('▲', 3, 0.0),
    DIAMOND,
    marker('▼', 3, 0.5),
    marker('⬟', 5, 0.0),
    marker('⬢', 6, 0.0),
];

const fn marker(sign: char, corners: u32, turn: f64) -> Marker {
    Marker {
        sign,
        corners,
        turn,
    }
}

/// Look of one contender.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Look {
    family: &'static str,
    marker: Marker,
    /// Number of the line style; 0 is an unbroken line.
    dash: usize,
}

impl Default for Look {
    fn default() -> Self {
        Self::of(OTHER, 0)
    }
}

impl Look {
    /// Look of the contender of a family that has so many before it on the page.
    fn of(family: &'static str, variant: usize) -> Self {
        let known = FAMILIES.iter().position(|(_, known)| *known == family);
        let place = known.unwrap_or(FAMILIES.len());
        Self {
            family,
            marker: MARKERS[(place + variant) % MARKERS.len()],
            // Families that share a marker differ in the line.
            dash: variant + place / MARKERS.len(),
        }
    }

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

    /// Marker of the points.
    pub(super) fn marker(&self) -> Marker {
        self.marker
    }

    /// Number of the line style; 0 is an unbroken line.
    pub(super) fn dash(&self) -> usize {
        self.dash
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
        let look = Look::of(family, before.count());
        looks.push((name.to_owned(), look));
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
            "clear+pep",
            "prefetch:tls=none",
            "trusted",
        ];
        assert_eq!(
            families.map(family),
            [
                "plain",
                "ipsec",
                "bentpipe",
                "sle",
                "sle",
                "other",
                "accelerator",
                "prefetch",
                "prefetch"
            ]
        );
        let all = looks(["bentpipe"].into_iter());
        assert_eq!(all[0].1.rgb(), [0x00, 0x72, 0xb2]);
    }

    #[test]
    fn two_of_a_family_differ() {
        let looks = looks(["bentpipe", "plain", "bentpipe", "bentpipe-bbr3"].into_iter());
        let found: Vec<_> = looks
            .iter()
            .map(|(name, look)| (name.as_str(), look.family, look.marker.sign, look.dash))
            .collect();
        assert_eq!(
            found,
            [
                ("bentpipe", "bentpipe", '■', 1),
                ("plain", "plain", '●', 0),
                ("bentpipe-bbr3", "bentpipe", '▲', 2)
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
