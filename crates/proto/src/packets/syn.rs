//! SYNs of TCP that somebody in the middle of the path is to answer for: options and flags are taken out that only the ends
//! themselves could keep.

const SYN: u8 = 0x02;
/// ECE and CWR, with which a SYN negotiates ECN (RFC 3168 §6.1.1).
const ECN: u8 = 0xc0;
/// AE, a bit of ECN beside the data offset (RFC 9768).
const AE: u8 = 0x01;

/// Length of a TCP header without options, bytes.
const HEADER: usize = 20;

/// Kinds of TCP options (RFC 9293 §3.2, RFC 7323).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const TIMESTAMPS: u8 = 8;

/// Takes timestamps and ECN out of a SYN, and bounds its MSS by `most` bytes. `header` is a whole TCP header, whose checksum
/// stays as it is.
///
/// `false`: the header is as it was, because there was nothing to take out, or it is no SYN.
pub fn tidy_syn(header: &mut [u8], most: u16) -> bool {
    let Some((head, options)) = header.split_at_mut_checked(HEADER) else {
        return false;
    };
    if head[13] & SYN == 0 {
        return false;
    }
    let negotiates = head[12] & AE != 0 || head[13] & ECN != 0;
    head[12] &= !AE;
    head[13] &= !ECN;
    tidy_options(options, most) || negotiates
}

fn tidy_options(mut rest: &mut [u8], most: u16) -> bool {
    let mut changed = false;
    while let Some(&kind) = rest.first() {
        let length = match kind {
            // The kernel reads nothing behind it either.
            END_OF_OPTIONS => break,
            NO_OPERATION => 1,
            _ => rest.get(1).map_or(0, |length| usize::from(*length)),
        };
        let option = match rest.split_at_mut_checked(length) {
            Some((option, after)) if !option.is_empty() => {
                rest = after;
                option
            }
            _ => break,
        };
        match option {
            [TIMESTAMPS, ..] => {
                option.fill(NO_OPERATION);
                changed = true;
            }
            [MSS, 4, high, low] => {
                let named = u16::from_be_bytes([*high, *low]);
                changed |= named > most;
                [*high, *low] = named.min(most).to_be_bytes();
            }
            _ => {}
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SYN of Linux: MSS 1460, SACK permitted, timestamps, no operation, window scale; ECE and CWR.
    const SYN_HEADER: [u8; 40] = [
        0xc7, 0x38, 1, 0xbb, 1, 2, 3, 4, 0, 0, 0, 0, 0xa0, 0xc2, 0xff, 0xff, 0x28, 0xc0, 0, 0, 2,
        4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7,
    ];

    #[test]
    fn timestamps_and_ecn_go_and_all_else_stays() {
        let mut tidy = SYN_HEADER;
        assert!(tidy_syn(&mut tidy, u16::MAX));
        let mut wanted = SYN_HEADER;
        wanted[13] = SYN;
        wanted[26..36].fill(NO_OPERATION);
        assert_eq!(tidy, wanted);
        assert!(!tidy_syn(&mut tidy, u16::MAX), "nothing is left to do");
        assert!(tidy_syn(&mut tidy, 1384));
        assert_eq!(tidy[22..24], 1384_u16.to_be_bytes());
    }

    #[test]
    fn other_segments_and_broken_options_are_left_alone() {
        let mut ack = SYN_HEADER;
        ack[13] = 0x10;
        let before = ack;
        assert!(!tidy_syn(&mut ack, 536));
        assert_eq!(ack, before);
        for length in 0..SYN_HEADER.len() {
            let mut cut = SYN_HEADER[..length].to_vec();
            tidy_syn(&mut cut, 536);
        }
        let mut endless = SYN_HEADER;
        endless[20..22].copy_from_slice(&[99, 0]);
        endless[13] = SYN;
        assert!(!tidy_syn(&mut endless, u16::MAX));
    }
}
