//! Answers that wait until the kernel knows their addresses, where rules go by names.

use std::cell::RefCell;
use std::rc::Rc;

use bentpipe_proto::dns::Learned;
use tokio::sync::Notify;

use super::Asker;
use crate::client::frontend::direct::Decisions;
use crate::client::frontend::names::{Lesson, NoRoom};
use crate::process;

/// Queries made at once that wait together; beyond these hosts have to ask again.
const MAX_HELD: usize = 1024;

/// Answers that may be given out once `lessons` are known.
struct Batch {
    lessons: Vec<Lesson>,
    answers: Vec<(Asker, Vec<u8>)>,
}

/// The answers that wait.
pub(super) struct Held {
    decisions: Rc<Decisions>,
    batches: RefCell<Vec<Batch>>,
    more: Notify,
}

impl Held {
    pub(super) fn new(decisions: &Rc<Decisions>) -> Self {
        Self {
            decisions: decisions.clone(),
            batches: RefCell::default(),
            more: Notify::new(),
        }
    }

    /// Gives `answers` out as soon as what they tell is known.
    pub(super) fn give(&self, told: &[Learned], answers: Vec<(Asker, Vec<u8>)>) {
        let now = process::now();
        let names = self.decisions.names();
        let lessons = told.iter().map(|one| names.lessons(now, one));
        let lessons = match lessons.collect::<Result<Vec<_>, NoRoom>>() {
            Ok(lessons) => lessons.concat(),
            Err(NoRoom) => {
                tracing::warn!(
                    "a rule's `domains` have too many addresses: answers are withheld until some are old; name fewer domains"
                );
                return;
            }
        };
        if lessons.is_empty() {
            give_out(answers);
        } else if self.batches.borrow().len() < MAX_HELD {
            let batch = Batch { lessons, answers };
            self.batches.borrow_mut().push(batch);
            self.more.notify_one();
        }
    }

    /// Tells the kernel; never ends.
    pub(super) async fn teach(self: Rc<Self>) {
        loop {
            self.more.notified().await;
            let batches = self.batches.take();
            let all = batches.iter().flat_map(|batch| &batch.lessons).copied();
            if self.decisions.teach(all.collect()).await {
                give_out(batches.into_iter().flat_map(|batch| batch.answers));
                continue;
            }
            // One that cannot be taken in does not keep the others back.
            for batch in batches {
                if self.decisions.teach(batch.lessons).await {
                    give_out(batch.answers);
                }
            }
        }
    }
}

fn give_out(answers: impl IntoIterator<Item = (Asker, Vec<u8>)>) {
    for (asker, answer) in answers {
        match asker {
            Asker::Udp(asker) => asker.answer(&answer),
            // Gone, if it cannot be told.
            Asker::Tcp(channel) => drop(channel.send(answer)),
        }
    }
}
