//! Bytes of the control stream that wait to be sent or to be read. Random bytes of keys are among them.

use std::fmt;
use std::ops::Deref;

use zeroize::{Zeroize as _, Zeroizing};

/// Queue of bytes that leaves no copy behind: bytes are wiped once they are consumed, and where the queue has moved from.
#[derive(Default)]
pub struct WipedBytes {
    bytes: Zeroizing<Vec<u8>>,
    /// Bytes at the front that have been consumed, and wiped.
    start: usize,
}

impl WipedBytes {
    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.compact();
        let length = self.bytes.len() + bytes.len();
        if length > self.bytes.capacity() {
            // A vector that grows by itself frees its old place as it is.
            let mut grown = Zeroizing::new(Vec::with_capacity(length.next_power_of_two()));
            grown.extend_from_slice(&self.bytes);
            self.bytes = grown;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Wipes the first `count` bytes and moves on.
    pub fn consume(&mut self, count: usize) {
        let end = self.bytes.len().min(self.start.saturating_add(count));
        if let Some(consumed) = self.bytes.get_mut(self.start..end) {
            consumed.zeroize();
        }
        self.start = end;
        if end == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Moves what is left to the front.
    fn compact(&mut self) {
        if self.start > 0 {
            let left = self.bytes.len() - self.start;
            self.bytes.copy_within(self.start.., 0);
            if let Some(behind) = self.bytes.get_mut(left..) {
                behind.zeroize();
            }
            self.bytes.truncate(left);
            self.start = 0;
        }
    }
}

impl Deref for WipedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

impl fmt::Debug for WipedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WipedBytes({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_however_they_are_consumed() {
        let mut queue = WipedBytes::default();
        let (mut put, mut taken) = (0u8, 0u8);
        for step in 1..60usize {
            let bytes: Vec<u8> = (0..step % 7).map(|i| put.wrapping_add(i as u8)).collect();
            put = put.wrapping_add(bytes.len() as u8);
            queue.push(&bytes);
            let count = queue.len().min(step % 5);
            for byte in &queue[..count] {
                assert_eq!(*byte, taken);
                taken = taken.wrapping_add(1);
            }
            queue.consume(count);
        }
        assert_eq!(queue.len(), usize::from(put.wrapping_sub(taken)));
        queue.consume(usize::MAX);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_consumed_is_wiped_where_it_was() {
        let mut queue = WipedBytes::default();
        queue.push(&[7; 40]);
        queue.consume(30);
        assert_eq!(*queue.bytes, [[0; 30].as_slice(), &[7; 10]].concat());
        queue.push(&[8; 5]);
        assert_eq!(*queue, *[[7; 10].as_slice(), &[8; 5]].concat());
        assert_eq!(format!("{queue:?}"), "WipedBytes(15 bytes)");
    }
}
