//! Changes in the kernel of which notices came: whether they call for a look, and who has made them.

use bentpipe_sys::watch::{Change, Object};

use super::Subject;

/// Changes that were noticed since the last look that found all in order, the oldest first.
#[derive(Default)]
pub(super) struct Noticed(Vec<Change>);

impl Noticed {
    /// Takes in what is `new`, which `subject` hears of; true if it calls for a look: what a routing daemon does with its own
    /// routes takes away none of ours.
    pub(super) fn take_in(&mut self, new: Vec<Change>, subject: &mut impl Subject) -> bool {
        if new.is_empty() {
            return false;
        }
        subject.notice(&new);
        let is_ours = |change: &Change| !matches!(change.object, Object::DaemonRoute(_));
        let before = self.0.len();
        self.0.extend(new.into_iter().filter(is_ours));
        self.0.len() > before
    }

    /// Program that took away something of `object` last.
    pub(super) fn culprit(&self, object: &Object) -> Option<String> {
        let touches = |change: &&Change| match (&change.object, object) {
            // By now it may have another name or number.
            (Object::Link(_), Object::Link(_)) | (Object::Address(_), Object::Address(_)) => true,
            // With a device go its addresses and routes.
            (Object::Link(_), Object::Address(_) | Object::Route(_)) => change.removed,
            (one, other) => one == other,
        };
        let touching = self.0.iter().rev().filter(touches);
        let mut by = touching.filter_map(|change| change.by.as_ref());
        by.next().map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::{Faults, KernelPart};
    use super::*;

    /// Keeps nothing.
    struct Nothing;

    impl KernelPart for () {
        fn name(&self) -> String {
            "nothing".into()
        }

        fn object(&self) -> Object {
            Object::Rule
        }
    }

    impl Subject for Nothing {
        type Part = ();

        fn compare(&mut self) -> io::Result<Faults<()>> {
            Ok(Faults::new())
        }

        fn repair(&mut self, (): &()) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn routes_of_a_routing_daemon_call_for_no_look() {
        let change = |object| Change {
            object,
            removed: true,
            by: None,
        };
        let daemon = || change(Object::DaemonRoute(254));
        let mut noticed = Noticed::default();
        assert!(!noticed.take_in(vec![daemon(), daemon()], &mut Nothing));
        assert!(noticed.0.is_empty());
        let mixed = vec![daemon(), change(Object::Route(254)), daemon()];
        assert!(noticed.take_in(mixed, &mut Nothing));
        assert_eq!(noticed.0, [change(Object::Route(254))]);
    }
}
