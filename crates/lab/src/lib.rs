//! Namespaces, links and workloads around the bentpipe binary.
