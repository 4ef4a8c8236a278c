//! Rules of the uplink at both of its ends, as text.

use std::net::Ipv4Addr;

use super::mark::Mark;
use crate::topology::LINK_DEVICE;

/// Name of the table, at both ends.
pub(super) const TABLE: &str = "bentpipe_uplink";

/// Answer to what may not pass, so that nobody waits for it.
const REFUSE: &str = "reject with icmpx type admin-prohibited";

/// The gateway's: what comes over the link may leave by `device` under its address, and only answers come back.
pub(super) fn of_gateway(device: &str) -> String {
    format!(
        "  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname \"{device}\" ct state established,related accept
    iifname \"{device}\" drop
    oifname \"{device}\" iifname != \"{LINK_DEVICE}\" {REFUSE}
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname \"{device}\" ct state established,related accept
    iifname \"{device}\" drop
  }}
  chain leave {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname \"{device}\" masquerade
  }}
"
    )
}

/// The machine's: what `gateway` sends by `device` may leave by `interface` under its address, and only answers come back. The
/// machine itself takes nothing from there. Where it did not forward before, nothing else that comes by the interface is. The table
/// has the text of `mark` as its comment, for whoever finds it without the device.
pub(super) fn of_machine(device: &str, gateway: Ipv4Addr, mark: &Mark) -> String {
    let interface = mark.interface();
    let others = match mark.forwarded() {
        true => String::new(),
        false => format!("    meta nfproto ipv4 iifname \"{interface}\" drop\n"),
    };
    format!(
        "  comment \"{mark}\"
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname \"{device}\" oifname \"{interface}\" ip saddr {gateway} accept
    iifname \"{device}\" {REFUSE}
    oifname \"{device}\" iifname \"{interface}\" ct state established,related accept
    oifname \"{device}\" drop
{others}  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname \"{device}\" ct state established,related accept
    iifname \"{device}\" {REFUSE}
  }}
  chain leave {{
    type nat hook postrouting priority srcnat; policy accept;
    iifname \"{device}\" oifname \"{interface}\" masquerade
  }}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_forwarded_before_goes_on_for_others() {
        let gateway = Ipv4Addr::new(198, 18, 255, 254);
        let drops = |forwarded| {
            let mark = Mark::here("eth0", forwarded).unwrap();
            let text = of_machine("bp-uplink", gateway, &mark);
            text.contains("    meta nfproto ipv4 iifname \"eth0\" drop\n")
        };
        assert!(drops(false));
        assert!(!drops(true));
    }
}
