//! Bytes that objects of one page may have together, and what each object has of them.

use std::cell::Cell;
use std::rc::Rc;

use crate::{MAX_OBJECT, MAX_PAGE};

/// Bytes that nobody among a page's objects has yet.
#[derive(Debug)]
pub struct PageBytes(Rc<Cell<u64>>);

impl Default for PageBytes {
    fn default() -> Self {
        Self(Rc::new(Cell::new(MAX_PAGE)))
    }
}

impl PageBytes {
    /// Account of an object that begins, with nothing in it.
    #[must_use]
    pub fn object(&self) -> ObjectBytes {
        ObjectBytes {
            left: self.0.clone(),
            came: 0,
            own: 0,
        }
    }
}

/// Bytes of one object. What was set aside for it and has not come is its page's again when this is dropped, however the object ended.
#[derive(Debug)]
pub struct ObjectBytes {
    /// Bytes that are left of the object's own page, also when another has begun.
    left: Rc<Cell<u64>>,
    came: u64,
    /// Bytes that no other object can have: what has come, or more.
    own: u64,
}

impl ObjectBytes {
    /// Sets `bytes` aside, as many as the object says that it will have; false: these are too many, and nothing is to be sent of it.
    /// Without that objects that come abreast would all have had too little.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.own);
        let left = self.left.get().checked_sub(more);
        let Some(left) = left.filter(|_| bytes <= MAX_OBJECT) else {
            return false;
        };
        self.left.set(left);
        self.own += more;
        true
    }

    /// Counts `bytes` more that have come; false: these are too many, and the object has failed.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let came = self.came.saturating_add(bytes);
        let fits = self.reserve(came);
        if fits {
            self.came = came;
        }
        fits
    }
}

impl Drop for ObjectBytes {
    fn drop(&mut self) {
        self.left.set(self.left.get() + (self.own - self.came));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_come_is_given_back_once_however_an_object_ends() {
        let page = PageBytes::default();
        let mut whole = page.object();
        assert!(whole.reserve(1000) && whole.spend(400) && whole.spend(600));
        drop(whole);
        assert_eq!(page.0.get(), MAX_PAGE - 1000);
        let mut broken = page.object();
        assert!(broken.reserve(MAX_OBJECT) && broken.spend(5));
        assert_eq!(page.0.get(), MAX_PAGE - 1000 - MAX_OBJECT);
        assert!(!broken.reserve(MAX_OBJECT + 1) && !broken.spend(MAX_OBJECT));
        drop(broken);
        assert_eq!(page.0.get(), MAX_PAGE - 1005);
        drop(page.object());
        assert_eq!(page.0.get(), MAX_PAGE - 1005);
    }

    #[test]
    fn objects_have_no_more_than_their_page() {
        let page = PageBytes::default();
        let mut all: Vec<_> = (0..5).map(|_| page.object()).collect();
        let fit: Vec<_> = all.iter_mut().map(|one| one.reserve(MAX_OBJECT)).collect();
        assert_eq!(fit, [true, true, true, true, false]);
        assert!(!all[4].spend(1));
        all.remove(0);
        assert!(all[3].spend(MAX_OBJECT));
        assert_eq!(page.0.get(), 0);
        // Of a page that is over nothing goes to the next.
        let next = PageBytes::default();
        all.clear();
        assert_eq!(
            (page.0.get(), next.0.get()),
            (MAX_PAGE - MAX_OBJECT, MAX_PAGE)
        );
    }
}
