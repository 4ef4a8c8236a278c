//! Scenarios by name. Each is a file of `presets/`, as anybody would write one, and is read like any other.

/// The presets as pairs of name and text, from the names.
macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// The names that [`preset`] knows.
        pub const PRESETS: &[&str] = &[$($name),*];

        /// The scenario of that name, as the text of a file.
        pub fn preset(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../../presets/", $name, ".toml"))),)*
                _ => None,
            }
        }
    };
}

presets![
    "geo",
    "leo",
    "g1",
    "g2",
    "g2-bursts",
    "g2-periodic",
    "g3",
    "g4",
    "g5",
    "g6",
    "g7",
    "g8",
    "d1",
    "d2",
    "p1",
    "l1",
    "l1-200ms",
    "r1",
    "r1-out",
    "s1",
    "s1-trace",
    "m1",
    "m1-2",
    "m1-50",
    "paper-geo",
    "paper-atten",
    "paper-plr",
    "paper-leo",
    "cnes-geo",
    "cnes-geo-loss",
    "cnes-leo",
    "cnes-leo-loss",
    "starlink-like",
    "oneweb-like",
    "opensand-default",
];
