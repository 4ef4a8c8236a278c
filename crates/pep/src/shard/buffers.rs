//! Memory for datagrams that have come, used again once nothing holds a part of one any more.
//!
//! quinn takes each datagram in a buffer of its own and hands out slices of it. To allocate and free one for each is what
//! receiving costs most after decryption. Each datagram still has its own: what is held keeps no other in memory.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Room for one datagram in an IP packet of 1500 bytes. Shorter than half of that a datagram has a buffer of its size: else a
/// few held bytes would keep many times what they are accounted for.
const SIZE: usize = 1500;

/// Most buffers that are kept, in a shard: several turns of its driver. Fewer would all be held by what flows have not yet passed on.
const MOST: usize = 1024;

/// Buffers that were lent, the oldest first.
#[derive(Default)]
pub(super) struct Buffers {
    lent: VecDeque<BytesMut>,
    /// Times that one was lent since the last rest.
    lately: usize,
}

impl Buffers {
    /// A copy of `datagram`.
    pub(super) fn copy(&mut self, datagram: &[u8]) -> BytesMut {
        if !(SIZE / 2..=SIZE).contains(&datagram.len()) {
            return BytesMut::from(datagram);
        }
        let oldest = self.lent.pop_front_if(|buffer| buffer.try_reclaim(SIZE));
        let mut buffer = oldest.unwrap_or_else(|| {
            if self.lent.len() >= MOST {
                self.lent.pop_front();
            }
            BytesMut::with_capacity(SIZE)
        });
        buffer.extend_from_slice(datagram);
        let copy = buffer.split();
        self.lent.push_back(buffer);
        self.lately += 1;
        copy
    }

    /// Frees the buffers if few were needed lately. To be called every second.
    pub(super) fn rest(&mut self) {
        if std::mem::take(&mut self.lately) < MOST {
            self.lent = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_lent_again_once_nothing_of_it_is_held() {
        let mut buffers = Buffers::default();
        let first = buffers.copy(&[1; 1472]);
        let at = first.as_ptr();
        let held = first.freeze().slice(7..9);
        let second = buffers.copy(&[2; 1200]);
        assert_ne!(second.as_ptr(), at);
        assert_eq!((&held[..], &second[..]), (&[1; 2][..], &[2; 1200][..]));
        drop((held, second));
        let third = buffers.copy(&[3; 1000]);
        assert_eq!(third.as_ptr(), at);
        assert_eq!(&third[..], [3; 1000]);
        assert_eq!(buffers.lent.len(), 2);
    }

    #[test]
    fn what_is_held_keeps_less_than_twice_its_datagram() {
        let mut buffers = Buffers::default();
        for size in [1, 40, 749, 1501, 9000] {
            assert_eq!(buffers.copy(&vec![0; size]).len(), size);
            assert!(buffers.lent.is_empty());
        }
        let held: Vec<_> = (0..2 * MOST).map(|_| buffers.copy(&[0; 750])).collect();
        assert_eq!((held.len(), buffers.lent.len()), (2 * MOST, MOST));
        buffers.rest();
        assert_eq!(buffers.lent.len(), MOST, "they were needed");
        buffers.rest();
        assert!(buffers.lent.is_empty());
    }
}
