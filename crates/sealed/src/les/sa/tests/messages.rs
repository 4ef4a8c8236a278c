//! Messages: what is written is read, in whole alone, and nothing else is.

use super::*;
use crate::les::{EndToken, HeaderRoot, Roots, SpiPair, Writer};
use crate::page;

fn run(first: u8) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(std::array::from_fn(|at| first + at as u8))
}

fn spis() -> SpiPair {
    let [to_b, to_a] = [0x0a0b_0c0d, 0x0102_0304].map(|number| Spi::new(number).unwrap());
    SpiPair { to_b, to_a }
}

fn proposal(handshake: Handshake) -> Proposal {
    let paper = handshake == Handshake::Paper;
    let psk = handshake == Handshake::Psk;
    Proposal {
        count: 5,
        handshake,
        at_once: !paper,
        random: Random::new(run(0x20)),
        to_a: (paper || psk).then_some(spis().to_a),
        ended: psk.then(|| EndToken::new(run(0x80))),
        selectors: plan(handshake).selectors,
        peps: PEPS.to_vec(),
    }
}

fn accepted() -> Answer {
    Answer {
        count: 5,
        code: AnswerCode::Accepted,
        known: vec![true; 2],
        own: Some((Random::new(run(0x40)), spis().to_b)),
    }
}

fn grant() -> Grant {
    Grant {
        spis: spis(),
        ends: plan(Handshake::Short).ends,
        selectors: plan(Handshake::Short).selectors,
        writer: Writer::FIRST_PEP,
        root: HeaderRoot::new(run(0x60)),
        lifetime: Duration::from_secs(3780),
        renewed: true,
    }
}

#[test]
fn messages_are_those_of_the_page() {
    let vector = |name: &str| page::vector("20.8", name);
    let (short, paper) = (proposal(Handshake::Short), proposal(Handshake::Paper));
    assert_eq!(*short.encode(), vector("LES: Q1, short"));
    assert_eq!(*paper.encode(), vector("LES: Q1, paper"));
    assert_eq!(*accepted().encode(), vector("LES: Q2, paper"));
    let refused = Answer {
        code: AnswerCode::PepUnknown,
        known: vec![true, false],
        own: None,
        ..accepted()
    };
    assert_eq!(*refused.encode(), vector("LES: Q2, a PEP is unknown"));
    let exporter = Exporter::new(run(0));
    let roots = Roots::derive(&exporter, 5, &run(0x20), Some(&run(0x40)), spis());
    let code = roots.prove(&paper.encode(), &accepted().encode());
    let proof = Proof { count: 5, code };
    assert_eq!(*proof.encode(), vector("LES: Q3"));
    assert_eq!(*grant().encode(), vector("LES: Q4"));
    let pre_shared = proposal(Handshake::Psk);
    for proposal in [short, paper, pre_shared] {
        assert_eq!(Proposal::parse(&proposal.encode()), Ok(proposal));
    }
    for answer in [accepted(), refused] {
        assert_eq!(Answer::parse(&answer.encode()), Ok(answer));
    }
    assert_eq!(Proof::parse(&proof.encode()), Ok(proof));
    let read = Grant::parse(&grant().encode()).unwrap();
    assert_eq!(*read.encode(), *grant().encode());
}

#[test]
fn datagrams_of_the_pre_shared_key_are_those_of_the_page() {
    let vector = |name: &str| page::vector("20.8", name);
    let (psk, q1) = (Psk::new(b"secret"), proposal(Handshake::Psk).encode());
    let asked = psk.ask(&q1);
    assert_eq!(asked, vector("LES: Q1, PSK"));
    assert_eq!(psk.asked(&asked), Some(&q1[..]));
    let q2 = accepted().encode();
    let answer = psk.answer(&q2, &q1);
    assert_eq!(answer, vector("LES: Q2, PSK"));
    assert_eq!(psk.answered(&answer, &q1), Some(&q2[..]));
    let exporter = Exporter::new(run(0));
    let roots = Roots::derive(&exporter, 5, &run(0x20), Some(&run(0x40)), spis());
    assert_eq!(
        roots.end_token().bytes()[..],
        vector("LES: token of an end")
    );
}

/// What reads one message, and writes it again.
type Reader = fn(&[u8]) -> Result<Vec<u8>, MessageFault>;

#[test]
fn every_cut_is_a_fault_and_every_other_byte_is_kept_or_refused() {
    let all: [(Zeroizing<Vec<u8>>, Reader); 7] = [
        (proposal(Handshake::Psk).encode(), |bytes| {
            Proposal::parse(bytes).map(|it| it.encode().to_vec())
        }),
        (proposal(Handshake::Paper).encode(), |bytes| {
            Proposal::parse(bytes).map(|it| it.encode().to_vec())
        }),
        (accepted().encode(), |bytes| {
            Answer::parse(bytes).map(|it| it.encode().to_vec())
        }),
        (
            Proof {
                count: 5,
                code: [1; 32],
            }
            .encode(),
            |bytes| Proof::parse(bytes).map(|it| it.encode().to_vec()),
        ),
        (grant().encode(), |bytes| {
            Grant::parse(bytes).map(|it| it.encode().to_vec())
        }),
        (Word::Grant(Box::new(grant())).encode(), |bytes| {
            Word::parse(bytes).map(|it| it.encode().to_vec())
        }),
        (Word::Ended(spis()).encode(), |bytes| {
            Word::parse(bytes).map(|it| it.encode().to_vec())
        }),
    ];
    for (index, (whole, read)) in all.into_iter().enumerate() {
        for cut in 0..whole.len() {
            // Q2 of the short flow ends before what B adds in the paper's.
            let short = index == 2 && cut == 8;
            assert_eq!(read(&whole[..cut]).is_ok(), short, "{index} {cut}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(matches!(read(&longer), Err(MessageFault::Long(_, 1))));
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut other = whole.to_vec();
                other[at] = byte;
                // A word of another kind may be whole as well.
                assert!(read(&other).is_ok_and(|again| again == other) || read(&other).is_err());
            }
        }
    }
}

#[test]
fn values_that_cannot_be_are_named() {
    let fault = |at: usize, byte: u8| {
        let mut bytes = proposal(Handshake::Short).encode();
        bytes[at] = byte;
        Proposal::parse(&bytes).unwrap_err().to_string()
    };
    assert_eq!(fault(4, 3), "Q1: the flow cannot be 3");
    assert_eq!(fault(38, 17), "Q1: the number of selectors cannot be 17");
    assert_eq!(fault(39, 5), "Q1: the kind of an address cannot be 5");
    assert_eq!(fault(44, 33), "Q1: the length of a prefix cannot be 33");
    assert_eq!(fault(44, 22), "Q1: the length of a prefix cannot be 22");
    let none = Proposal {
        selectors: vec![],
        ..proposal(Handshake::Short)
    };
    let text = Proposal::parse(&none.encode()).unwrap_err().to_string();
    assert_eq!(text, "Q1: the number of selectors cannot be 0");
}

#[test]
fn most_of_everything_fits_into_a_control_frame() {
    let full = Proposal {
        selectors: vec![prefix("2001:db8::/32"); MAX_SELECTORS],
        peps: vec![PEPS[0]; MAX_PEPS],
        ..proposal(Handshake::Paper)
    };
    let encoded = full.encode();
    assert!(encoded.len() <= 1024, "{}", encoded.len());
    assert_eq!(encoded.capacity(), 1024, "it did not grow");
    assert_eq!(Proposal::parse(&encoded), Ok(full));
}

#[test]
fn words_to_a_pep_are_those_of_the_page_and_no_longer_than_they_may_be() {
    let vector = |name: &str| page::vector("20.8", name);
    assert_eq!(*Word::Ended(spis()).encode(), vector("LES: ENDED"));
    let word = Word::Grant(Box::new(grant())).encode();
    assert_eq!(*word, [&[0], &*vector("LES: Q4")].concat());
    let full = Grant {
        ends: ["2001:db8::1".parse().unwrap(); 2],
        selectors: vec![prefix("2001:db8::/32"); MAX_SELECTORS],
        ..grant()
    };
    let word = Word::Grant(Box::new(full)).encode();
    assert!(word.len() <= MAX_WORD, "{}", word.len());
}

#[test]
fn secrets_are_not_printed() {
    let text = format!("{:?} {:?}", proposal(Handshake::Paper), grant());
    assert!(text.contains("Random(…)") && text.contains("HeaderRoot(…)"));
}
