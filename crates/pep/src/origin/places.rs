//! Places for fetches of one page's objects at one time.

use bentpipe_web::{MAX_AT_ONCE, MAX_BLOCKING};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Places of one session.
pub(super) struct FetchPlaces {
    all: Semaphore,
    /// Places for objects that block what a browser shows.
    beside: Semaphore,
}

impl Default for FetchPlaces {
    fn default() -> Self {
        Self {
            all: Semaphore::new(MAX_AT_ONCE),
            beside: Semaphore::new(MAX_BLOCKING),
        }
    }
}

impl FetchPlaces {
    /// Waits for a place for an object, `blocking` or not; `None`: the session is over.
    pub(super) async fn take(&self, blocking: bool) -> Option<SemaphorePermit<'_>> {
        let place = tokio::select! {
            biased;
            place = self.beside.acquire(), if blocking => place,
            place = self.all.acquire() => place,
        };
        place.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn objects_that_block_have_places_beside_those_of_others() {
        let places = FetchPlaces::default();
        let take = async |blocking| {
            let taken = timeout(Duration::ZERO, places.take(blocking)).await;
            taken.ok().flatten()
        };
        let (mut images, mut sheets) = (Vec::new(), Vec::new());
        for _ in 0..MAX_AT_ONCE {
            images.extend(take(false).await);
        }
        assert_eq!(images.len(), MAX_AT_ONCE);
        assert!(take(false).await.is_none(), "one image too many");
        for _ in 0..MAX_BLOCKING {
            sheets.extend(take(true).await);
        }
        assert_eq!(sheets.len(), MAX_BLOCKING);
        assert!(take(true).await.is_none(), "one sheet too many");
        drop(images);
        assert!(take(true).await.is_some(), "a place of the others");
    }
}
