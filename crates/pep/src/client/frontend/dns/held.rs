//! Answers that wait until the kernel knows their addresses, where rules go by names.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use bentpipe_proto::dns::Learned;
use tokio::sync::Notify;

use super::Asker;
use crate::client::frontend::direct::Decisions;
use crate::client::frontend::names::{Lesson, MAX_ADDRESSES, NoRoom};
use crate::process;
use crate::throttle::Throttle;

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
    /// Answers that were not given out.
    withheld: Cell<u64>,
    /// Throttle of the line about rules without room: whoever asks names a rule's addresses.
    full: Throttle,
}

impl Held {
    pub(super) fn new(decisions: &Rc<Decisions>) -> Self {
        Self {
            decisions: decisions.clone(),
            batches: RefCell::default(),
            more: Notify::new(),
            withheld: Cell::default(),
            full: Throttle::new(),
        }
    }

    /// Answers that were not given out so far: the kernel was not told of their addresses.
    pub(super) fn withheld(&self) -> u64 {
        self.withheld.get()
    }

    fn withhold(&self, answers: &[(Asker, Vec<u8>)]) {
        self.withheld.set(self.withheld() + answers.len() as u64);
    }

    /// The line for the log about a rule without room, unless it has had one just now.
    fn on_full(&self, now: Instant, NoRoom { rule }: &NoRoom) -> Option<String> {
        self.full.is_due(now).then(|| {
            format!(
                "rule {}: its domains have {MAX_ADDRESSES} addresses, and answers with more of them are withheld until some are old; \
                 name fewer domains",
                self.decisions.place(*rule)
            )
        })
    }

    /// Gives `answers` out as soon as what they tell is known.
    pub(super) fn give(&self, told: &[Learned], answers: Vec<(Asker, Vec<u8>)>) {
        let now = process::now();
        let names = self.decisions.names();
        let lessons = told.iter().map(|one| names.lessons(now, one));
        let lessons = match lessons.collect::<Result<Vec<_>, NoRoom>>() {
            Ok(lessons) => lessons.concat(),
            Err(full) => {
                if let Some(line) = self.on_full(now, &full) {
                    tracing::warn!("{line}");
                }
                self.withhold(&answers);
                return;
            }
        };
        if lessons.is_empty() {
            give_out(answers);
        } else if self.batches.borrow().len() < MAX_HELD {
            let batch = Batch { lessons, answers };
            self.batches.borrow_mut().push(batch);
            self.more.notify_one();
        } else {
            self.withhold(&answers);
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
                } else {
                    self.withhold(&batch.answers);
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::config::FrontEnds;

    fn held() -> Held {
        let config = FrontEnds::of_rules(&[
            "ports = [25]\noptimistic = false",
            "domains = [\"example.net\"]\naction = \"block\"",
        ]);
        Held::new(&Rc::new(Decisions::new(&config)))
    }

    #[test]
    fn what_a_full_rule_withholds_is_counted_and_told_once_a_minute() {
        let held = held();
        let address =
            |number: usize| -> IpAddr { Ipv4Addr::from(u32::try_from(number).unwrap()).into() };
        let now = process::now();
        let lessons = (0..MAX_ADDRESSES).map(|number| Lesson {
            rule: 0,
            address: address(number),
            time: Duration::from_secs(3600),
        });
        let lessons: Vec<_> = lessons.collect();
        held.decisions.names().told(now, &lessons);
        let (asker, mut answers) = unbounded_channel();
        for number in 0..3 {
            let told = Learned {
                name: "example.net".into(),
                addresses: vec![address(MAX_ADDRESSES + number)],
                ttl: Duration::from_secs(60),
            };
            held.give(&[told], vec![(Asker::Tcp(asker.clone()), vec![7])]);
        }
        assert_eq!((answers.try_recv().ok(), held.withheld()), (None, 3));
        let full = NoRoom { rule: 0 };
        assert_eq!(held.on_full(process::now(), &full), None, "told just now");
        let later = process::now() + Duration::from_secs(60);
        let line = held.on_full(later, &full).expect("a line");
        assert!(
            line.starts_with("rule 2: its domains have 16384 addresses"),
            "{line}"
        );
    }
}
