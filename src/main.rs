//! The binary `bentpipe`.
fn main() {}
