//! Epochs: the secret of an hour, from which keys of single connections come, and its end
//! (`PROTOCOL.md` §18.1).
//!
//! A seized process opens what was sent in the epochs that it still has, and nothing older. Secrets
//! are wiped when they are dropped; copies that the library makes on the stack for a moment are
//! not.

use std::fmt;
use std::time::{Duration, Instant};

use aws_lc_rs::{hkdf, hmac};
use zeroize::Zeroizing;

/// Time for which an epoch is still good after its successor has begun, 60 s.
pub const LINGER: Duration = Duration::from_secs(60);

/// Secret of 32 bytes that both ends of a tunnel have from its TLS session, and nobody else.
pub struct Exporter(Zeroizing<[u8; 32]>);

impl Exporter {
    /// Exporter with these bytes, as TLS gives them for one label.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Epoch `number` with the `random` bytes that crossed the tunnel for it.
    #[must_use]
    pub fn epoch(&self, number: u16, random: &[u8; 32]) -> Epoch {
        let secret = self.extract(random);
        Epoch { number, secret }
    }

    /// HKDF-Extract with SHA-256 (RFC 5869 §2.2) of `input`; the exporter is the salt.
    pub(crate) fn extract(&self, input: &[u8]) -> Zeroizing<[u8; 32]> {
        // The library's own would keep both inputs for as long as its result.
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.0);
        let mut secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(hmac::sign(&key, input).as_ref());
        secret
    }

    /// Bytes of the exporter.
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter(…)")
    }
}

/// Secret of one epoch.
pub struct Epoch {
    number: u16,
    secret: Zeroizing<[u8; 32]>,
}

impl Epoch {
    /// Number of the epoch in its tunnel, counted from 0.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Secret of 32 bytes for one `purpose` and `context`.
    pub(crate) fn derive(&self, purpose: &[u8], context: &[u8]) -> Zeroizing<[u8; 32]> {
        let mut secret = Zeroizing::new([0; 32]);
        expand(&self.secret, &[purpose, context], &mut *secret);
        secret
    }

    /// Bytes of the secret.
    #[cfg(test)]
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({}, …)", self.number)
    }
}

/// HKDF-Expand with SHA-256 (RFC 5869 §2.3): fills `out`, at most 8160 bytes.
pub(crate) fn expand(secret: &[u8; 32], info: &[&[u8]], out: &mut [u8]) {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret)
        .expand(info, Length(out.len()))
        .and_then(|okm| okm.fill(out))
        .expect("no key is as long as 255 hashes");
}

/// Epoch that was to begin, and is not the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "epoch {number} cannot begin: epoch {current} is followed by its successor alone; renew the tunnel"
)]
pub struct OutOfOrder {
    /// Number of the epoch that was to begin.
    pub number: u16,
    /// Number of the epoch in use.
    pub current: u16,
}

/// Reason why there are no keys of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    /// The epoch is over, and its secret erased.
    #[error("epoch {0} is over")]
    Ended(u16),
    /// The epoch has not begun here: word of it may be on its way.
    #[error("epoch {0} has not begun")]
    Unknown(u16),
}

/// Epochs of one tunnel, each with what its user keeps for it: the current one, and for [`LINGER`]
/// the one before.
pub struct Epochs<T> {
    current: (Epoch, T),
    previous: Option<(Epoch, T)>,
    /// End of `previous`.
    until: Option<Instant>,
}

impl<T> Epochs<T> {
    /// Table with its first epoch.
    pub fn new(epoch: Epoch, kept: T) -> Self {
        Self {
            current: (epoch, kept),
            previous: None,
            until: None,
        }
    }

    /// Begins the next epoch. The current one stays for [`LINGER`], the one before is erased.
    ///
    /// # Errors
    /// [`OutOfOrder`]: `epoch` is not the successor of the current one. Numbers do not wrap.
    pub fn begin(&mut self, now: Instant, epoch: Epoch, kept: T) -> Result<(), OutOfOrder> {
        let (number, current) = (epoch.number, self.current.0.number);
        if current.checked_add(1) != Some(number) {
            return Err(OutOfOrder { number, current });
        }
        self.previous = Some(std::mem::replace(&mut self.current, (epoch, kept)));
        self.until = Some(now + LINGER);
        Ok(())
    }

    /// Epoch in use for what begins now.
    pub fn current(&mut self) -> (&Epoch, &mut T) {
        (&self.current.0, &mut self.current.1)
    }

    /// Epoch of this `number`.
    ///
    /// # Errors
    /// [`Absent`]: the epoch is over or has not begun.
    pub fn get(&mut self, now: Instant, number: u16) -> Result<(&Epoch, &mut T), Absent> {
        self.handle_timeout(now);
        let current = self.current.0.number;
        let found = [Some(&mut self.current), self.previous.as_mut()];
        let mut found = found.into_iter().flatten();
        match found.find(|(epoch, _)| epoch.number == number) {
            Some((epoch, kept)) => Ok((epoch, kept)),
            None if number > current => Err(Absent::Unknown(number)),
            None => Err(Absent::Ended(number)),
        }
    }

    /// Moment at which an epoch is to be erased, if one is.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Erases the previous epoch once its time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now >= until) {
            (self.previous, self.until) = (None, None);
        }
    }
}

impl<T> fmt::Debug for Epochs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs")
            .field("current", &self.current.0)
            .field("previous", &self.previous.as_ref().map(|it| &it.0))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn exporter() -> Exporter {
        Exporter::new(Zeroizing::new([7; 32]))
    }

    fn epoch(number: u16) -> Epoch {
        exporter().epoch(number, &[number.to_be_bytes()[1]; 32])
    }

    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn origin() -> Instant {
        Instant::now()
    }

    /// RFC 5869, appendix A.1: the extraction with its salt and input, the expansion with its info.
    #[test]
    fn extraction_and_expansion_are_hkdf() {
        let key = hmac::Key::new(
            hmac::HMAC_SHA256,
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        );
        let secret = hmac::sign(&key, &[0x0b; 22]);
        let secret: [u8; 32] = secret.as_ref().try_into().unwrap();
        assert_eq!(secret[..4], [0x07, 0x77, 0x09, 0x36]);
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let mut out = [0; 42];
        expand(&secret, &[&info[..3], &info[3..]], &mut out);
        assert_eq!(out[..4], [0x3c, 0xb2, 0x5f, 0x25]);
        assert_eq!(out[38..], [0x87, 0x18, 0x58, 0x65]);
    }

    #[test]
    fn every_input_changes_the_secret() {
        let secret = |it: &Epoch| *it.derive(b"purpose", b"context");
        let own = secret(&epoch(1));
        assert_eq!(own, secret(&epoch(1)));
        assert_ne!(own, secret(&epoch(2)));
        let other = Exporter::new(Zeroizing::new([8; 32]));
        assert_ne!(own, secret(&other.epoch(1, &[1; 32])));
        assert_ne!(own, *epoch(1).derive(b"purpose", b"Context"));
        assert_ne!(own, *epoch(1).derive(b"purposE", b"context"));
    }

    #[test]
    fn an_epoch_is_erased_60_s_after_its_successor_began() {
        let (now, kept) = (origin(), Rc::new(()));
        let mut epochs = Epochs::new(epoch(0), Rc::clone(&kept));
        assert_eq!((epochs.deadline(), Rc::strong_count(&kept)), (None, 2));
        epochs.begin(now, epoch(1), Rc::new(())).unwrap();
        assert_eq!(epochs.deadline(), Some(now + LINGER));
        let last = now + LINGER - Duration::from_nanos(1);
        epochs.handle_timeout(last);
        assert_eq!(epochs.get(last, 0).unwrap().0.number(), 0);
        assert_eq!(Rc::strong_count(&kept), 2, "still there");
        epochs.handle_timeout(now + LINGER);
        assert_eq!(Rc::strong_count(&kept), 1, "erased");
        let ended = epochs.get(now, 0).unwrap_err();
        assert_eq!(
            (ended, ended.to_string()),
            (Absent::Ended(0), "epoch 0 is over".to_owned())
        );
        assert_eq!(epochs.get(now, 2).unwrap_err(), Absent::Unknown(2));
        assert_eq!(epochs.current().0.number(), 1);
    }

    #[test]
    fn a_look_up_erases_as_a_timer_does() {
        let now = origin();
        let mut epochs = Epochs::new(epoch(0), ());
        epochs.begin(now, epoch(1), ()).unwrap();
        let late = now + LINGER;
        assert_eq!(epochs.get(late, 0).unwrap_err(), Absent::Ended(0));
    }

    #[test]
    fn two_epochs_are_kept_and_no_third() {
        let now = origin();
        let mut epochs = Epochs::new(epoch(0), ());
        epochs.begin(now, epoch(1), ()).unwrap();
        epochs.begin(now, epoch(2), ()).unwrap();
        assert_eq!(epochs.get(now, 0).unwrap_err(), Absent::Ended(0));
        assert!(epochs.get(now, 1).is_ok() && epochs.get(now, 2).is_ok());
    }

    #[test]
    fn epochs_begin_in_order_and_never_again() {
        let now = origin();
        let mut epochs = Epochs::new(epoch(5), ());
        for number in [0, 4, 5, 7] {
            let fault = epochs.begin(now, epoch(number), ()).unwrap_err();
            assert_eq!(fault, OutOfOrder { number, current: 5 });
        }
        let mut last = Epochs::new(epoch(u16::MAX), ());
        assert!(
            last.begin(now, epoch(0), ()).is_err(),
            "numbers do not wrap"
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let text = format!(
            "{:?} {:?} {:?}",
            exporter(),
            epoch(3),
            Epochs::new(epoch(3), ())
        );
        let expected =
            "Exporter(…) Epoch(3, …) Epochs { current: Epoch(3, …), previous: None, .. }";
        assert_eq!(text, expected);
    }

    /// Fails to compile where a secret is held in anything that is not wiped.
    #[test]
    fn secrets_are_wiped_when_dropped() {
        fn wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        wiped(&exporter().0);
        wiped(&epoch(0).secret);
        wiped(&epoch(0).derive(b"", b""));
    }
}
