//! Test vectors of `PROTOCOL.md`, as its sections show them.

const PROTOCOL: &str = include_str!("../../../PROTOCOL.md");

/// Bytes that `hex` stands for.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Vector called `name` in this `section`: the lines of its code block, joined.
pub(crate) fn vector(section: &str, name: &str) -> Vec<u8> {
    let (_, text) = PROTOCOL
        .split_once(&format!("\n### {section}"))
        .unwrap_or_else(|| panic!("no section {section}"));
    let (_, own) = text
        .split_once(&format!("\n**{name}**"))
        .unwrap_or_else(|| panic!("no vector {name}"));
    let block = own.split("```").nth(1).expect("a code block");
    let digits: String = block
        .trim_start_matches("text")
        .split_whitespace()
        .collect();
    bytes(&digits)
}
