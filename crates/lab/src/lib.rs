//! Namespaces, links and workloads around the bentpipe binary.

pub mod emulator;
