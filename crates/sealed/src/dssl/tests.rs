//! The test vectors of `PROTOCOL.md` §21.6, all three parties together, and the times of their
//! handshakes.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use super::*;
use crate::page;

const HUB: [u8; 32] = [9; 32];
const HOST: &str = "shop.example.com";

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn origin() -> Instant {
    Instant::now()
}

/// Secrets of a connection whose exporter gives bytes that count up, from 0x00 for the session's
/// name, from 0x40 for K2, from 0x80 for objects.
fn secrets() -> Secrets {
    let exported = Secrets::export(&HUB, |label, context, out| {
        let first = match label {
            b"EXPORTER-bentpipe-dssl-id" => 0,
            b"EXPORTER-bentpipe-dssl-k2" => 0x40,
            b"EXPORTER-bentpipe-dssl-obj" => 0x80,
            other => panic!("label {other:?}"),
        };
        assert_eq!(context.len(), if first == 0x40 { 32 } else { 0 });
        for (byte, number) in out.iter_mut().zip(first..) {
            *byte = number;
        }
        Ok::<(), Infallible>(())
    });
    exported.unwrap()
}

fn encoded(frames: &[HubFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes
}

fn read(bytes: &[u8]) -> Vec<HubFrame> {
    let mut reader = HubFrameReader::new(MAX_HUB_FRAME);
    reader.push(bytes);
    std::iter::from_fn(|| reader.read().unwrap()).collect()
}

fn expect(name: &str, bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(page::vector("21.6", name) == bytes, "{name}: {hex}");
}

/// All three parties of one session, which has one page.
struct Parties {
    origin: OriginSession,
    hub: HubSession,
    terminal: Terminal,
}

impl Parties {
    /// Parties of a session whose hub has proved K2.
    fn new() -> Self {
        let now = origin();
        let mut parties = Self {
            origin: OriginSession::new(&secrets(), HUB, HOST),
            hub: HubSession::new(secrets().session()),
            terminal: Terminal::new(Mode::Quick, HOST),
        };
        parties.terminal.begin();
        parties.terminal.on_stream(now);
        let steps = parties.terminal.on_k1(now, secrets());
        assert!(steps.contains(&TerminalStep::NameSession(secrets().session())));
        let key = parties.origin.key_for(&HUB).unwrap();
        let Ok(HubNews::Ready(proof)) = parties.hub.on_frame(key) else {
            panic!("no proof");
        };
        assert!(parties.terminal.on_proof(now, &proof).1);
        parties
    }

    /// Objects `targets` of the page, as far as they are promised; what the hub asks for.
    fn announce(&mut self, page: u32, targets: &[&str]) -> Vec<Link> {
        let numbered = (1..).zip(targets.iter().map(|target| (*target).to_owned()));
        let frames = self.origin.announce(page, numbered).unwrap();
        let mut found = Vec::new();
        for frame in frames {
            let HubNews::Links(links) = self.hub.on_frame(frame).unwrap() else {
                panic!("no links");
            };
            found.extend(links);
        }
        for link in &found {
            assert!(self.terminal.on_promise(link.id, &link.target));
        }
        found
    }

    /// Chunks of an object as they leave the origin.
    fn sealed(&mut self, id: ObjectId, texts: &[&[u8]]) -> Vec<HubFrame> {
        let mut writer = self.origin.fetch(id).expect("announced");
        let last = texts.len() - 1;
        let texts = texts.iter().enumerate();
        texts
            .map(|(at, text)| writer.seal(text, at == last).unwrap())
            .collect()
    }

    fn brought(&mut self, frame: HubFrame) -> Result<bytes::Bytes, ObjectFault> {
        let HubNews::Object(id, chunk, sealed) = self.hub.on_frame(frame).unwrap() else {
            panic!("no object");
        };
        self.terminal.on_object(id, chunk, &sealed)
    }
}

#[test]
fn frames_are_those_of_the_protocol() {
    let mut parties = Parties::new();
    expect("DSSL: DSSL_HELLO", &DsslHello { hub: Some(HUB) }.encode());
    let key = OriginSession::new(&secrets(), HUB, HOST)
        .key_for(&HUB)
        .unwrap();
    expect("DSSL: KEYREQ, KEY", &encoded(&[parties.hub.request(), key]));
    expect("DSSL: proof", &secrets().links().proof(secrets().session()));
    let mut fresh = OriginSession::new(&secrets(), HUB, HOST);
    let targets = [(1, "/a.css".to_owned()), (2, "/b.js".to_owned())];
    expect(
        "DSSL: LINKS",
        &encoded(&fresh.announce(0, targets).unwrap()),
    );
    let links = parties.announce(0, &["/a.css", "/b.js"]);
    let fetch = parties.hub.fetch(links[1].id);
    let texts: [&[u8]; 2] = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"ab"];
    let mut frames = vec![fetch];
    frames.extend(parties.sealed(links[1].id, &texts));
    frames.push(HubFrame::Refused(secrets().session(), Some(links[0].id)));
    let bytes = encoded(&frames);
    expect("DSSL: FETCH, OBJECT, OBJECT, REFUSED", &bytes);
    let mut opened = Vec::new();
    for frame in read(&bytes) {
        if let HubFrame::Object { .. } = frame {
            opened.extend(parties.brought(frame).unwrap());
        }
    }
    assert_eq!(opened, texts.concat());
}

#[test]
fn k2_goes_to_the_hub_that_was_named_and_once() {
    let mut session = OriginSession::new(&secrets(), HUB, HOST);
    assert_eq!(session.key_for(&[8; 32]).unwrap_err(), KeyRefusal::OtherHub);
    assert!(session.key_for(&HUB).is_ok());
    assert_eq!(session.key_for(&HUB).unwrap_err(), KeyRefusal::Given);
}

#[test]
fn every_object_is_sealed_once() {
    let mut parties = Parties::new();
    let links = parties.announce(0, &["/a", "/b"]);
    assert!(parties.origin.fetch(links[0].id).is_some());
    assert!(parties.origin.fetch(links[0].id).is_none(), "again");
    let again = [(2, "/c".to_owned())];
    assert!(parties.origin.announce(0, again).is_none(), "a used number");
    parties.origin.begin_page(1);
    assert!(parties.origin.fetch(links[1].id).is_none(), "an old page's");
    let next = parties.announce(1, &["/a"]);
    assert_eq!((next[0].id.page(), next[0].id.index()), (1, 1));
    let mut writer = parties.origin.fetch(next[0].id).unwrap();
    assert!(
        writer.seal(&[0; MAX_CHUNK + 1], false).is_none(),
        "too long"
    );
    assert!(writer.seal(b"x", true).is_some());
    assert!(writer.seal(b"y", true).is_none(), "after the last");
}

/// What a hub, or whoever broke into one, may do to objects.
#[test]
fn objects_that_are_altered_swapped_cut_or_forged_are_dropped() {
    let texts: [&[u8]; 3] = [b"head", b"one", b"two"];
    let with = |change: fn(&mut Vec<HubFrame>, &mut Vec<HubFrame>)| {
        let mut parties = Parties::new();
        let links = parties.announce(0, &["/a", "/b"]);
        let mut first = parties.sealed(links[0].id, &texts);
        let mut second = parties.sealed(links[1].id, &texts);
        change(&mut first, &mut second);
        let mut opened = Vec::new();
        let mut whole = false;
        for frame in first {
            let HubFrame::Object {
                chunk, id, sealed, ..
            } = frame
            else {
                continue;
            };
            if let Ok(text) = parties.terminal.on_object(id, chunk, &sealed) {
                opened.extend_from_slice(&text);
                whole = chunk.is_last();
            }
        }
        assert!(texts.concat().starts_with(&opened), "another text");
        (whole, parties.terminal.dropped())
    };
    let object = |frame: &mut HubFrame, change: fn(&mut ObjectId, &mut Chunk, &mut Vec<u8>)| {
        if let HubFrame::Object {
            id, chunk, sealed, ..
        } = frame
        {
            let mut bytes = sealed.to_vec();
            change(id, chunk, &mut bytes);
            *sealed = bytes.into();
        }
    };
    assert_eq!(with(|_, _| {}), (true, 0));
    assert_eq!(with(|first, _| drop(first.pop())), (false, 0), "cut");
    assert_eq!(
        with(|first, _| drop(first.remove(1))),
        (false, 1),
        "a chunk missing"
    );
    assert_eq!(
        with(|first, _| first.insert(1, first[0].clone())),
        (false, 3),
        "twice"
    );
    let (whole, dropped) = with(|first, second| {
        // The other object in this one's place.
        let HubFrame::Object { id, .. } = first[0] else {
            return;
        };
        for frame in second.iter_mut() {
            if let HubFrame::Object { id: other, .. } = frame {
                *other = id;
            }
        }
        std::mem::swap(first, second);
    });
    assert!(!whole && dropped > 0, "swapped");
    let mut parties = Parties::new();
    let links = parties.announce(0, &["/a"]);
    let mut frames = parties.sealed(links[0].id, &texts);
    object(&mut frames[0], |_, chunk, _| {
        *chunk = Chunk::from_number(1 << 31);
    });
    let forged = parties.brought(frames.remove(0));
    assert_eq!(
        forged.unwrap_err(),
        ObjectFault::Tag(links[0].id.get()),
        "cut by its bit"
    );
}

#[test]
fn every_bit_of_a_chunk_counts() {
    let mut parties = Parties::new();
    let links = parties.announce(0, &["/a"]);
    let frame = parties.sealed(links[0].id, &[b"text"]).remove(0);
    let HubFrame::Object {
        id, chunk, sealed, ..
    } = frame
    else {
        panic!("no object");
    };
    for bit in 0..sealed.len() * 8 {
        let mut bytes = sealed.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut opener = ObjectOpener::new(&secrets());
        assert!(opener.expect(id, "https://shop.example.com/a"));
        assert!(opener.open(id, chunk, &bytes).is_err(), "bit {bit}");
    }
    for url in ["https://shop.example.com/b", "https://other.example.com/a"] {
        let mut opener = ObjectOpener::new(&secrets());
        assert!(opener.expect(id, url));
        assert_eq!(
            opener.open(id, chunk, &sealed),
            Err(ObjectFault::Tag(id.get()))
        );
    }
}

#[test]
fn false_links_end_a_hubs_session() {
    for byte in 0..60 {
        let mut parties = Parties::new();
        let targets = [(1, "/a.css".to_owned()), (2, "/b.js".to_owned())];
        let frame = parties.origin.announce(0, targets).unwrap().remove(0);
        let HubFrame::Links {
            session,
            counter,
            sealed,
        } = frame
        else {
            panic!("no links");
        };
        let mut forged = sealed.to_vec();
        let Some(place) = forged.get_mut(byte) else {
            return;
        };
        *place ^= 1;
        let sealed = forged.into();
        let frame = HubFrame::Links {
            session,
            counter,
            sealed,
        };
        let dropped = parties.hub.on_frame(frame).unwrap_err();
        assert_eq!(dropped, HubDropped::Links(LinkFault::Tag));
        assert!(parties.hub.is_over());
    }
}

#[test]
fn a_hub_gives_on_only_what_it_has_asked_for() {
    let mut parties = Parties::new();
    let links = parties.announce(0, &["/a"]);
    let frames = parties.sealed(links[0].id, &[b"x"]);
    assert!(parties.hub.on_frame(frames[0].clone()).is_ok());
    let again = parties.hub.on_frame(frames[0].clone()).unwrap_err();
    assert_eq!(again, HubDropped::Object);
    let other = SessionId::new([1; 16]);
    let key = secrets().links().clone();
    let stranger = parties.hub.on_frame(HubFrame::Key(other, key.clone()));
    assert_eq!(stranger.unwrap_err(), HubDropped::Session);
    let second = parties
        .hub
        .on_frame(HubFrame::Key(secrets().session(), key));
    assert_eq!(second.unwrap_err(), HubDropped::Place);
}

#[test]
fn a_terminal_believes_no_hub_without_proof() {
    let now = origin();
    let mut terminal = Terminal::new(Mode::Full, HOST);
    assert_eq!(terminal.begin(), [TerminalStep::OpenStream(false)]);
    assert_eq!(terminal.on_stream(now), [TerminalStep::OpenK1]);
    let named = TerminalStep::NameSession(secrets().session());
    assert_eq!(terminal.on_k1(now, secrets()), [named]);
    let id = ObjectId::new(0, 1).unwrap();
    assert!(!terminal.on_promise(id, "/a"), "no proof yet");
    let (steps, proved) = terminal.on_proof(now, &[0; PROOF]);
    assert_eq!((&steps[..], proved), (&[TerminalStep::Request][..], false));
    assert!(!terminal.on_promise(id, "/a"), "a false proof");
    assert!(
        terminal
            .on_object(id, Chunk::from_number(0), &[0; 20])
            .is_err()
    );
    assert_eq!(terminal.dropped(), 1);
}

#[test]
fn requests_go_without_a_hub_that_is_lost_or_silent() {
    let now = origin();
    for mode in [Mode::Full, Mode::TwoPhase, Mode::Quick] {
        let mut terminal = Terminal::new(mode, HOST);
        terminal.begin();
        let steps = terminal.on_hub_lost(now);
        assert_eq!(steps.contains(&TerminalStep::OpenK1), mode != Mode::Quick);
        assert_eq!(terminal.on_k1(now, secrets()), [TerminalStep::Request]);
        assert!(terminal.on_request(now).is_empty());
    }
    let mut terminal = Terminal::new(Mode::Full, HOST);
    terminal.begin();
    terminal.on_stream(now);
    terminal.on_k1(now, secrets());
    let deadline = terminal.deadline().unwrap();
    assert!(terminal.handle_timeout(now).is_empty());
    assert_eq!(terminal.handle_timeout(deadline), [TerminalStep::Request]);
}

/// Time from nothing to the first request, with a satellite round trip of `s` and a terrestrial one
/// of `t`: each step costs what the messages below it cross.
fn handshake(mode: Mode, s: Duration, t: Duration) -> Duration {
    let began = origin();
    let mut terminal = Terminal::new(mode, HOST);
    let mut due: Vec<(Instant, TerminalStep)> = Vec::new();
    let add = |due: &mut Vec<_>, at: Instant, steps: Vec<TerminalStep>| {
        due.extend(steps.into_iter().map(|step| (at, step)));
    };
    add(&mut due, began, terminal.begin());
    loop {
        due.sort_by_key(|(at, _)| *at);
        let (at, step) = due.remove(0);
        // Each answer is handled when it is the next: no two cross in these modes.
        match step {
            TerminalStep::OpenStream(_) => {
                let then = at + s;
                let steps = terminal.on_stream(then);
                add(&mut due, then, steps);
            }
            // TCP and TLS behind the hub, the finished handshake in the request's own flight.
            TerminalStep::OpenK1 => {
                let then = at + s + 2 * t;
                let steps = terminal.on_k1(then, secrets());
                add(&mut due, then, steps);
            }
            // The hub connects, speaks TLS, and asks for K2.
            TerminalStep::NameSession(session) => {
                let connected = mode == Mode::Quick;
                let then = at + s + if connected { t } else { 3 * t };
                let proof = secrets().links().proof(session);
                let (steps, proved) = terminal.on_proof(then, &proof);
                assert!(proved);
                add(&mut due, then, steps);
            }
            TerminalStep::Request => return at - began,
        }
    }
}

#[test]
fn handshakes_take_the_round_trips_that_they_need() {
    let (s, t) = (Duration::from_millis(520), Duration::from_millis(40));
    assert_eq!(handshake(Mode::Full, s, t), 3 * s + 5 * t);
    assert_eq!(handshake(Mode::TwoPhase, s, t), 2 * s + 2 * t);
    assert_eq!(handshake(Mode::Quick, s, t), s + 2 * t);
    let printed = [Mode::Full, Mode::TwoPhase, Mode::Quick].map(|mode| handshake(mode, s, t));
    assert_eq!(printed.map(|time| time.as_millis()), [1760, 1120, 600]);
}

#[test]
fn frames_come_in_any_cuts_and_are_bounded() {
    let mut parties = Parties::new();
    let links = parties.announce(0, &["/a"]);
    let bytes = encoded(&parties.sealed(links[0].id, &[b"x", b"y"]));
    for size in [1, 3, 7, bytes.len()] {
        let mut reader = HubFrameReader::new(MAX_HUB_FRAME);
        let mut count = 0;
        for piece in bytes.chunks(size) {
            reader.push(piece);
            while reader.read().unwrap().is_some() {
                count += 1;
            }
        }
        assert_eq!(count, 2);
    }
    let mut reader = HubFrameReader::new(MAX_ASKED);
    reader.push(&bytes[..4]);
    assert!(matches!(reader.read(), Err(HubFrameError::TooLong(_))));
}
