//! What the protocol's machines make of input: names, headers and queries, hostile ones too, and the vectors of PROTOCOL.md.

mod address;
mod dns;
mod released;
mod tunnel;
mod vectors;
