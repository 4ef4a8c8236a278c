//! DSSL (PROTOCOL.md §21): first words of a terminal, frames of both ends of a hub connection, and all parties that read them.

use std::convert::Infallible;

use bentpipe_sealed::dssl::{
    DSSL_HELLO, DsslHello, HubFrame, HubFrameReader, HubNews, HubSession, MAX_ASKED, MAX_HUB_FRAME,
    Mode, OriginSession, Secrets, Terminal,
};

const HUB: [u8; 32] = [9; 32];

fn secrets() -> Secrets {
    let exported = Secrets::export(&HUB, |label, _, out| {
        out.fill(label[label.len() - 1]);
        Ok::<(), Infallible>(())
    });
    exported.expect("an exporter without faults")
}

fn read(bytes: &[u8], size: usize, longest: usize) -> (Vec<HubFrame>, bool) {
    let (mut reader, mut frames) = (HubFrameReader::new(longest), Vec::new());
    for piece in bytes.chunks(size.max(1)) {
        reader.push(piece);
        loop {
            match reader.read() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, false),
            }
        }
    }
    (frames, true)
}

fn encoded(frames: &[HubFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes
}

/// A connection, cut at will: the first byte says where. What is read is written the same; a terminal opens what the origin has
/// sealed and nothing else, each object once.
pub fn frames(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else {
        return;
    };
    if let Some(hello) = bytes.first_chunk::<DSSL_HELLO>()
        && let Ok(read) = DsslHello::decode(hello)
    {
        assert_eq!(read.encode(), *hello);
    }
    read(bytes, usize::from(size), MAX_ASKED);
    let (found, fine) = read(bytes, bytes.len(), MAX_HUB_FRAME);
    let (cut, also) = read(bytes, usize::from(size), MAX_HUB_FRAME);
    assert_eq!((encoded(&found), fine), (encoded(&cut), also));
    assert!(bytes.starts_with(&encoded(&found)));
    let now = crate::origin();
    let mut hub = HubSession::new(secrets().session());
    let mut terminal = Terminal::new(Mode::Quick, "h");
    terminal.begin();
    terminal.on_stream(now);
    terminal.on_k1(now, secrets());
    for frame in found {
        match hub.on_frame(frame) {
            Ok(HubNews::Ready(proof)) => drop(terminal.on_proof(now, &proof)),
            Ok(HubNews::Links(links)) => {
                for link in links {
                    terminal.on_promise(link.id, &link.target);
                }
            }
            Ok(HubNews::Object(id, chunk, sealed)) => {
                if let Ok(text) = terminal.on_object(id, chunk, &sealed) {
                    assert!(text == b"head"[..] || text == b"body"[..], "forged");
                }
            }
            Ok(HubNews::Failed(id)) => terminal.on_failed(id),
            Ok(HubNews::Refused) | Err(_) => {}
        }
    }
}

/// What an origin sends in whole sessions, and what a hub asks for.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let session = |objects: u64| {
        let mut origin = OriginSession::new(&secrets(), HUB, "h");
        let mut frames = vec![origin.key_for(&HUB).expect("the hub that was named")];
        let targets = (1..=objects).map(|index| (index, format!("/{index}")));
        let links = origin.announce(0, targets).expect("fresh numbers");
        frames.extend(links);
        for index in 1..=objects {
            let id = bentpipe_sealed::dssl::ObjectId::new(0, index).expect("few objects");
            let mut writer = origin.fetch(id).expect("announced");
            frames.extend(writer.seal(b"head", false));
            frames.extend(writer.seal(b"body", true));
        }
        frames
    };
    let id = bentpipe_sealed::dssl::ObjectId::new(0, 1).expect("few objects");
    let own = secrets().session();
    let asked = vec![HubFrame::KeyRequest(own), HubFrame::Fetch(own, id)];
    let refused = vec![
        HubFrame::Refused(own, Some(id)),
        HubFrame::Refused(own, None),
    ];
    let seed = |frames: Vec<HubFrame>| [vec![5], encoded(&frames)].concat();
    let hello = DsslHello { hub: Some(HUB) }.encode();
    vec![
        seed(session(1)),
        seed(session(3)),
        seed(asked),
        seed(refused),
        [&[5], &hello[..]].concat(),
    ]
}
