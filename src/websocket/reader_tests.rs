use super::*;

/// A frame as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut out = vec![first];
    match payload.len() {
        length @ 0..=125 => out.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

const LIMIT: usize = 200_000;

/// Everything that is heard when the bytes come in pieces of so many.
fn read_in(pieces: usize, bytes: &[u8]) -> (Vec<Message>, Result<(), Fault>) {
    let mut reader = Reader::new(LIMIT);
    let mut heard = Vec::new();
    for piece in bytes.chunks(pieces) {
        if let Err(fault) = reader.read(piece, &mut |message| heard.push(message)) {
            return (heard, Err(fault));
        }
    }
    (heard, Ok(()))
}

fn binary(bytes: &[u8]) -> Message {
    Message::Binary(Bytes::copy_from_slice(bytes))
}

#[test]
fn messages_are_the_same_however_their_bytes_are_cut() {
    let long: Vec<u8> = (0..70_000_u32).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
    let bytes = [
        frame(0x82, b"small"),
        frame(0x81, "gr\u{fc}n \u{1f427}".as_bytes()),
        frame(0x82, &[]),
        frame(0x02, b"one, "),
        frame(0x89, b"ping inside"),
        frame(0x00, b"two, "),
        frame(0x00, &[]),
        frame(0x80, b"three"),
        frame(0x82, &long[..300]),
        frame(0x82, &long),
        frame(0x8a, b"unasked"),
        frame(0x01, "\u{1f427}".as_bytes().get(..2).unwrap()),
        frame(0x80, "\u{1f427}".as_bytes().get(2..).unwrap()),
        frame(0x88, &[0x03, 0xe8, b'b', b'y', b'e']),
    ]
    .concat();
    let expected = [
        binary(b"small"),
        Message::Text("gr\u{fc}n \u{1f427}".into()),
        binary(b""),
        Message::Ping(Bytes::from_static(b"ping inside")),
        binary(b"one, two, three"),
        binary(&long[..300]),
        binary(&long),
        Message::Pong,
        Message::Text("\u{1f427}".into()),
        Message::Close(Some(CloseFrame { code: 1000, reason: "bye".into() })),
    ];
    for pieces in [1, 2, 3, 5, 7, 13, 14, 100, 4096, 65_536, bytes.len()] {
        let (heard, outcome) = read_in(pieces, &bytes);
        assert_eq!(outcome, Ok(()), "in pieces of {pieces}");
        assert!(heard == expected, "in pieces of {pieces}: {} messages", heard.len());
    }
}

#[test]
fn broken_frames_are_named_and_what_came_before_is_heard() {
    let whole = frame(0x82, b"before");
    let cases: [(&str, Vec<u8>, Fault); 14] = [
        ("not masked", vec![0x82, 1, b'x'], Fault::Protocol("a frame of a client that is not masked")),
        ("reserved bit", frame(0xc2, b"x"), Fault::Protocol("a reserved bit without an extension")),
        ("reserved data opcode", frame(0x83, b""), Fault::Protocol("a reserved opcode")),
        ("reserved control opcode", frame(0x8b, b""), Fault::Protocol("a reserved opcode")),
        ("ping in pieces", frame(0x09, b"x"), Fault::Protocol("a control frame in pieces")),
        ("long ping", frame(0x89, &[0; 126]), Fault::Protocol("a control frame over 125 bytes")),
        ("continues nothing", frame(0x80, b"x"), Fault::Protocol("a continuation of nothing")),
        (
            "message in message",
            [frame(0x02, b"x"), frame(0x82, b"y")].concat(),
            Fault::Protocol("a new message inside another"),
        ),
        ("close of one byte", frame(0x88, &[3]), Fault::Protocol("a close of one byte")),
        (
            "close code that is never sent",
            frame(0x88, &[0x03, 0xed]),
            Fault::Protocol("a close code that is not for the wire"),
        ),
        ("close reason", frame(0x88, &[0x03, 0xe8, 0xff]), Fault::Utf8),
        ("text", frame(0x81, &[0xff]), Fault::Utf8),
        ("text that ends early", frame(0x81, &[0xf0, 0x9f]), Fault::Utf8),
        ("surrogate", frame(0x81, &[0xed, 0xa0, 0x80]), Fault::Utf8),
    ];
    for (what, bytes, fault) in cases {
        for pieces in [1, 1000] {
            let (heard, outcome) = read_in(pieces, &[whole.clone(), bytes.clone()].concat());
            assert_eq!((heard, outcome), (vec![binary(b"before")], Err(fault)), "{what}");
        }
    }
}

#[test]
fn a_text_in_pieces_is_refused_at_the_first_byte_that_cannot_be_right() {
    let mut reader = Reader::new(LIMIT);
    let mut heard = |_| panic!("nothing is whole");
    assert_eq!(reader.read(&frame(0x01, "gr\u{fc}n".as_bytes()), &mut heard), Ok(()));
    let frame = frame(0x00, &[0xff, b'a', b'b']);
    assert_eq!(reader.read(frame.get(..7).unwrap(), &mut heard), Err(Fault::Utf8));
}

#[test]
fn the_limit_counts_all_pieces_and_is_judged_by_the_header() {
    let header = |length: u64, first| {
        let mut out = vec![first, 0xff];
        out.extend(length.to_be_bytes());
        out.extend([0; 4]);
        out
    };
    for length in [LIMIT as u64 + 1, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
        assert_eq!(read_in(100, &header(length, 0x82)).1, Err(Fault::TooLarge), "{length}");
    }
    let most = read_in(1 << 20, &frame(0x82, &vec![7; LIMIT]));
    assert_eq!(most.1, Ok(()));
    assert_eq!(most.0.len(), 1);
    let pieces = [frame(0x02, &vec![7; LIMIT]), frame(0x80, b"x")].concat();
    assert_eq!(read_in(1 << 20, &pieces).1, Err(Fault::TooLarge));
}

#[test]
fn a_header_reserves_no_more_than_the_first_bytes_and_an_idle_reader_nothing() {
    let mut reader = Reader::new(1 << 30);
    let mut heard = Vec::new();
    let mut bytes = vec![0x82, 0xff];
    bytes.extend((1_u64 << 30).to_be_bytes());
    bytes.extend([0, 0, 0, 0, b'x']);
    reader.read(&bytes, &mut |message| heard.push(message)).unwrap();
    let reserved = reader.partial.as_ref().unwrap().data.capacity();
    assert!((1..=2 * FIRST_RESERVE).contains(&reserved), "{reserved}");

    let mut reader = Reader::new(LIMIT);
    for byte in [frame(0x02, &[1; 1000]), frame(0x89, b"p"), frame(0x80, &[2; 1000])].concat() {
        reader.read(&[byte], &mut |message| heard.push(message)).unwrap();
    }
    assert!(reader.partial.is_none() && reader.frame.is_none() && reader.header_length == 0);
    assert_eq!(heard.len(), 2);
}

#[test]
fn a_long_message_of_tiny_frames_is_not_copied_for_each_of_them() {
    let mut reader = Reader::new(LIMIT);
    let mut heard = Vec::new();
    let (mut grown, mut capacity) = (0, 0);
    for n in 0..LIMIT {
        let first = if n == 0 { 0x02 } else { 0x00 };
        reader.read(&frame(first, b"x"), &mut |message| heard.push(message)).unwrap();
        let now = reader.partial.as_ref().unwrap().data.capacity();
        grown += usize::from(now != capacity);
        capacity = now;
    }
    assert!(grown < 20, "{grown} times");
}

#[test]
fn so_many_frames_are_begun_and_the_rest_comes_back() {
    let bytes =
        [frame(0x82, b"first"), frame(0x02, b"sec"), frame(0x80, b"ond"), frame(0x82, b"third")].concat();
    for at_a_time in 1..=5 {
        let mut reader = Reader::new(LIMIT);
        let mut heard = Vec::new();
        let mut rest = bytes.as_slice();
        let mut looks = 0;
        while !rest.is_empty() {
            let mut frames = at_a_time;
            rest = reader.read_some(rest, &mut frames, &mut |message| heard.push(message)).unwrap();
            looks += 1;
        }
        assert_eq!(looks, 4_usize.div_ceil(at_a_time));
        assert_eq!(heard, [binary(b"first"), binary(b"second"), binary(b"third")]);
    }
}
