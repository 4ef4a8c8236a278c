//! What goes on to the origin, what comes back, and what is turned away.

use super::*;

fn request(text: &str) -> Result<RequestHead, ConnectError> {
    match decode(text.as_bytes())? {
        Some((Asked::Forward(head), used)) => {
            assert_eq!(used, text.find("\r\n\r\n").expect("a head") + 4);
            Ok(*head)
        }
        other => panic!("{other:?}"),
    }
}

fn head(text: &str) -> String {
    String::from_utf8(request(text).expect("a request").head).expect("text")
}

#[test]
fn a_request_goes_on_in_origin_form_without_hop_by_hop_fields() {
    let text = "GET http://Example.com:8080/a?b=c HTTP/1.1\r\nHost: other\r\nProxy-Connection: keep-alive\r\n\
                Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\n\
                Accept: */*\r\n\r\n";
    assert_eq!(
        head(text),
        "GET /a?b=c HTTP/1.1\r\nHost: Example.com:8080\r\nAccept: */*\r\nVia: 1.1 bentpipe\r\nConnection: close\r\n\r\n"
    );
    let request = request(text).expect("a request");
    assert_eq!(request.destination.to_string(), "example.com:8080");
    assert!(request.keeps && !request.upgrades && !request.is_head);
    assert_eq!(request.body, Framing::Length(0));
}

#[test]
fn addresses_are_understood() {
    for (target, destination, line) in [
        ("http://a", "a:80", "/"),
        ("HTTP://a:81", "a:81", "/"),
        ("http://a:?x", "a:80", "/?x"),
        ("http://[2001:db8::1]/", "[2001:db8::1]:80", "/"),
        ("http://[2001:db8::1]:8080/p", "[2001:db8::1]:8080", "/p"),
        (
            "http://10.30.0.2:8000/peer.py",
            "10.30.0.2:8000",
            "/peer.py",
        ),
    ] {
        let request = request(&format!("GET {target} HTTP/1.1\r\n\r\n")).expect(target);
        assert_eq!(request.destination.to_string(), destination);
        assert!(
            request
                .head
                .starts_with(format!("GET {line} HTTP/1.1\r\n").as_bytes())
        );
    }
    let options = request("OPTIONS http://a HTTP/1.1\r\n\r\n").expect("a request");
    assert!(options.head.starts_with(b"OPTIONS * HTTP/1.1\r\n"));
    for bad in [
        "http://",
        "http://u:p@a/",
        "http://a:b/",
        "http://a:99999/",
        "http://a/#x",
    ] {
        let text = format!("GET {bad} HTTP/1.1\r\n\r\n");
        assert_eq!(request(&text), Err(ConnectError::Target), "{bad}");
    }
    for other in ["/", "*", "https://a/", "ftp://a/", "httq://a/"] {
        let text = format!("GET {other} HTTP/1.1\r\n\r\n");
        assert_eq!(request(&text), Err(ConnectError::Form), "{other}");
    }
}

#[test]
fn whatever_leaves_room_for_doubt_is_turned_away() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length:\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Content-Length : 5\r\n",
        " Content-Length: 5\r\n",
        "A: b\r\n Content-Length: 5\r\n",
        "A: b\0c\r\n",
    ] {
        let text = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(request(&text), Err(ConnectError::Malformed), "{fields}");
    }
    let old = "POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(request(old), Err(ConnectError::Malformed));
    // What tells the end cannot be declared a matter of one hop.
    let hidden =
        head("POST http://a/ HTTP/1.1\r\nConnection: content-length\r\nContent-Length: 5\r\n\r\n");
    assert!(hidden.contains("Content-Length: 5\r\n"), "{hidden}");
}

#[test]
fn bodies_and_connections_end_as_said() {
    let framing = |fields: &str| {
        let text = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n");
        request(&text).expect("a request").body
    };
    assert_eq!(framing("Content-Length: 5\r\n"), Framing::Length(5));
    assert_eq!(framing("Content-Length: 5, 5\r\n"), Framing::Length(5));
    assert_eq!(framing("transfer-encoding: Chunked\r\n"), Framing::Chunked);
    let keeps = |version: u8, fields: &str| {
        let text = format!("GET http://a/ HTTP/1.{version}\r\n{fields}\r\n");
        request(&text).expect("a request").keeps
    };
    assert!(keeps(1, "") && !keeps(1, "Connection: close\r\n"));
    assert!(!keeps(0, "") && keeps(0, "Connection: Keep-Alive\r\n"));
    assert!(!keeps(1, "Proxy-Connection: close\r\n"));
}

#[test]
fn another_protocol_may_follow() {
    let text = "GET http://a/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let asked = request(text).expect("a request");
    assert!(asked.upgrades);
    let head = String::from_utf8(asked.head.clone()).expect("text");
    assert!(
        head.contains("Upgrade: websocket\r\n") && head.ends_with("Connection: upgrade\r\n\r\n")
    );
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (response, _) = decode_response(answer.as_bytes(), &asked)
        .expect("one")
        .expect("whole");
    assert!(!response.is_interim() && response.status == 101);
    let plain = request("GET http://a/ HTTP/1.1\r\n\r\n").expect("a request");
    assert!(
        decode_response(answer.as_bytes(), &plain).is_err(),
        "nobody has asked"
    );
}

#[test]
fn responses_say_where_they_end_and_whether_more_may_follow() {
    let get = request("GET http://a/ HTTP/1.1\r\n\r\n").expect("a request");
    let decoded = |asked: &RequestHead, text: &str| {
        let (response, used) = decode_response(text.as_bytes(), asked)
            .expect("one")
            .expect("whole");
        assert_eq!(used, text.len());
        (
            response.body,
            response.keeps,
            String::from_utf8(response.head).expect("text"),
        )
    };
    let (body, keeps, head) = decoded(
        &get,
        "HTTP/1.0 200 OK\r\nServer: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\n",
    );
    assert_eq!((body, keeps), (Framing::Length(3), true));
    assert_eq!(
        head,
        "HTTP/1.0 200 OK\r\nServer: x\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\n"
    );
    let (body, keeps, head) = decoded(&get, "HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!((body, keeps), (Framing::End, false));
    assert!(head.contains("Connection: close"));
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (body, keeps, head) = decoded(&get, both);
    assert_eq!((body, keeps), (Framing::Chunked, true));
    assert!(!head.contains("Content-Length"));
    for bodiless in ["204 No Content", "304 Not Modified", "100 Continue"] {
        let text = format!("HTTP/1.1 {bodiless}\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(decoded(&get, &text).0, Framing::Length(0));
    }
    let head_only = request("HEAD http://a/ HTTP/1.1\r\n\r\n").expect("a request");
    let (body, keeps, _) = decoded(&head_only, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
    assert_eq!((body, keeps), (Framing::Length(0), true));
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n";
    assert!(decode_response(two.as_bytes(), &get).is_err());
}

#[test]
fn chunks_are_followed_to_their_end_however_they_are_cut() {
    let body = b"5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\nGET ";
    let end = body.len() - 4;
    for step in 1..body.len() {
        let mut chunks = Chunks::default();
        let mut taken = 0;
        for piece in body.chunks(step) {
            taken += chunks.take(piece).expect("chunks");
            if chunks.is_done() {
                break;
            }
        }
        assert_eq!(taken, end, "in pieces of {step}");
    }
    for bad in [
        "\r\n",
        "g\r\n",
        "5\nhello",
        "5\r\nhelloX",
        "5\r\nhello\n",
        "-1\r\n",
        "0x5\r\n",
        " 5\r\n",
        "11111111111111111\r\n",
        "5;a\nb\r\n",
        "0\r\nA: b\n\r\n",
    ] {
        assert_eq!(Chunks::default().take(bad.as_bytes()), None, "{bad:?}");
    }
    assert_eq!(Chunks::default().take(&[b'0'; 10_000]), None);
    let long = ["1;".as_bytes(), &[b'x'; 10_000]].concat();
    assert_eq!(Chunks::default().take(&long), None);
}
