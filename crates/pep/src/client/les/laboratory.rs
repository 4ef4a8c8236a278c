//! Messages under a pre-shared key, in a laboratory: counted while none is answered, and known again when one comes twice.

use std::cell::{Cell, RefCell};

use bentpipe_proto::tunnel::LesKind;
use bentpipe_sealed::Exporter;
use bentpipe_sealed::les::sa::Psk;
use zeroize::Zeroizing;

use crate::les::UNFIT;

/// A laboratory's pre-shared key, and what has become of the questions under it.
pub(super) struct Laboratory {
    psk: Psk,
    /// UDP port of the server.
    port: u16,
    /// Questions since one was answered.
    unanswered: Cell<u32>,
    /// Question that was answered last.
    answered: RefCell<Option<Zeroizing<Vec<u8>>>>,
}

/// A datagram that is to be a message of the server.
pub(super) enum LaboratoryAnswer<'a> {
    /// Answer to the question that waits.
    Fits(&'a [u8]),
    /// Answer to the last question, once more.
    Repeated,
    /// Neither; it has the form of an answer, or not.
    Unfit { has_form: bool },
}

impl Laboratory {
    pub(super) fn new(psk: Psk, port: u16) -> Self {
        Self {
            psk,
            port,
            unanswered: Cell::new(0),
            answered: RefCell::default(),
        }
    }

    /// Stands for the exporter of a tunnel, for association `count`.
    pub(super) fn exporter(&self, count: u32) -> Exporter {
        self.psk.exporter(count)
    }

    /// Datagram that carries the question `q1`; tells once that none is answered.
    pub(super) fn ask(&self, q1: &[u8]) -> Vec<u8> {
        let unanswered = self.unanswered.get().saturating_add(1);
        self.unanswered.set(unanswered);
        if unanswered == UNFIT + 1
            && let Some(text) = self.fault()
        {
            tracing::warn!("{text}");
        }
        self.psk.ask(q1)
    }

    /// Finds out what `datagram` is to the question that waits, if one does.
    pub(super) fn read<'a>(
        &self,
        datagram: &'a [u8],
        question: Option<&Zeroizing<Vec<u8>>>,
    ) -> LaboratoryAnswer<'a> {
        if let Some(q1) = question
            && let Some(body) = self.psk.answered(datagram, q1)
        {
            return LaboratoryAnswer::Fits(body);
        }
        let before = self.answered.borrow();
        let again = before.as_ref();
        match again.and_then(|q1| self.psk.answered(datagram, q1)) {
            Some(_) => LaboratoryAnswer::Repeated,
            None => LaboratoryAnswer::Unfit {
                has_form: Psk::has_form(LesKind::Q2, datagram),
            },
        }
    }

    /// The question was answered.
    pub(super) fn on_answered(&self, question: Option<Zeroizing<Vec<u8>>>) {
        self.unanswered.set(0);
        self.answered.replace(question);
    }

    /// Line for the log and `status` about a server that does not answer.
    pub(super) fn fault(&self) -> Option<String> {
        (self.unanswered.get() > UNFIT).then(|| {
            format!(
                "LES carries nothing: the server has answered none of {UNFIT} questions under the pre-shared key; give both ends the same file as `psk_file` of \
                 [les.laboratory], or open UDP port {} on the way",
                self.port
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let own = Laboratory::new(Psk::new(b"secret"), 4501);
        let (server, other) = (Psk::new(b"secret"), Psk::new(b"another"));
        let q1 = Zeroizing::new(b"question".to_vec());
        own.ask(&q1);
        let q2 = server.answer(b"answer", &q1);
        let read = |datagram: &[u8], q1: Option<&Zeroizing<Vec<u8>>>| match own.read(datagram, q1) {
            LaboratoryAnswer::Fits(_) => "fits",
            LaboratoryAnswer::Repeated => "repeated",
            LaboratoryAnswer::Unfit { has_form: true } => "forged",
            LaboratoryAnswer::Unfit { has_form: false } => "malformed",
        };
        assert_eq!(read(&q2, Some(&q1)), "fits");
        own.on_answered(Some(q1));
        assert_eq!(read(&q2, None), "repeated");
        let next = Zeroizing::new(b"another question".to_vec());
        assert_eq!(read(&q2, Some(&next)), "repeated");
        assert_eq!(read(&other.answer(b"answer", &next), Some(&next)), "forged");
        assert_eq!(read(&[0; 4], Some(&next)), "malformed");
        assert_eq!(read(&[0; 60], Some(&next)), "malformed");
    }

    #[test]
    fn a_server_that_answers_nothing_is_told_of() {
        let own = Laboratory::new(Psk::new(b"secret"), 4501);
        for _ in 0..UNFIT {
            own.ask(b"question");
        }
        assert!(own.fault().is_none());
        own.ask(b"question");
        let fault = own.fault().expect("a fault");
        assert!(
            fault.contains("psk_file") && fault.contains("4501"),
            "{fault}"
        );
        own.on_answered(None);
        assert!(own.fault().is_none());
    }
}
