//! Linux: TUN, TPROXY, namespaces, nftables, privileges.
