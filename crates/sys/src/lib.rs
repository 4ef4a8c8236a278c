//! Linux: TUN, TPROXY, namespaces, nftables, packet sockets, privileges.
//!
//! The workspace's only crate with `unsafe`. It talks to the kernel for everybody else and decides
//! nothing: which traffic to intercept, which namespaces to build, is said by `pep` and `lab`.
//!
//! ```text
//!                lab (emulator)                     pep (client, server)
//!                  │        │                         │           │
//!                 tun     netns                    socket       hold
//!                  │        │                         │        │      │
//!                  │        └──────── command ────────┼────── nft   route      privilege
//!                  │                     │            │        │      │            │
//!  user   ═════════╪═════════════════════╪════════════╪════════╪══════╪════════════╪═══════
//!  kernel    /dev/net/tun            setns(2)    setsockopt  nftables  ip rule  capabilities
//! ```
//!
//! `watch`, `link`, `policy_rule` and `nftables` speak netlink: they tell what others change in the kernel, and what is there.
//!
//! Errors are `io::Error`: the kind is the kernel's, the text names the object and the mend.

pub mod capture;
pub mod claim;
pub mod clock;
pub mod command;
pub mod connections;
pub mod datagram;
pub mod device;
pub mod ethernet;
pub mod heap;
pub mod hold;
pub mod link;
pub mod live_sockets;
mod netlink;
pub mod netns;
pub mod nft;
pub mod nftables;
pub mod policy_rule;
pub mod privilege;
pub mod reach;
pub mod route;
pub mod sandbox;
pub mod schedule;
pub mod socket;
pub mod stand_in;
pub mod tcp_arrivals;
pub mod tun;
pub mod watch;
pub mod written_table;
