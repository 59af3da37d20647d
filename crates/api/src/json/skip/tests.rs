use proptest::prelude::*;

use super::*;

/// The fast way says the same as the exact way, or leaves it to it.
fn agree<const UTF8: bool>(body: &[u8], start: usize) {
    let exact = after_any_string::<UTF8>(body, start);
    assert_eq!(
        after_string::<UTF8>(body, start - 1),
        exact,
        "in {:?}",
        body[start..].escape_ascii().to_string()
    );
    match after_text::<UTF8>(body, start) {
        Some(end) => assert_eq!(Ok(end), exact, "in {:?}", body[start..].escape_ascii().to_string()),
        // It may leave to the exact way what is not UTF-8 only after the string, and nothing else that is good.
        None if cfg!(target_arch = "x86_64") && is_x86_feature_detected!("avx2") => {
            assert!(exact.is_err() || UTF8 && std::str::from_utf8(&body[start..]).is_err());
        }
        None => {}
    }
}

/// Text as it stands in a body, with faults.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let text = |text: &'static str| Just(text.as_bytes().to_vec());
    prop_oneof![
        6 => "[a-z ]{0,40}".prop_map(String::into_bytes),
        4 => proptest::sample::select(&["\\n", "\\\"", "\\\\", "\\/", "\\b", "\\f", "\\r", "\\t", "\\u00eF"][..])
            .prop_map(|escape| escape.as_bytes().to_vec()),
        2 => (0..70_usize).prop_map(|count| b"\\".repeat(count)),
        2 => (0..12_usize).prop_map(|count| b"\\ud55c".repeat(count)),
        2 => "\\PC{0,12}".prop_map(|text| text.replace(['"', '\\'], "").into_bytes()),
        2 => text("하한🦀é\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}"),
        1 => text("\""),
        1 => proptest::sample::select(&["\\x", "\\u12", "\\u12g4", "\\U0041", "\n", "\0", "\x1f"][..])
            .prop_map(|fault| fault.as_bytes().to_vec()),
        1 => proptest::collection::vec(0x80..=0xff_u8, 1..5),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_agree_on_where_a_string_ends(
        before in 0..3_usize,
        pieces in proptest::collection::vec(piece(), 0..24),
        after in prop_oneof![Just(Vec::new()), piece(), Just(b",\n  \"next\":\"\xff\"".repeat(9))],
        is_closed in proptest::bool::weighted(0.9),
    ) {
        let mut body = b" ".repeat(before);
        body.push(b'"');
        let start = body.len();
        body.extend(pieces.concat());
        body.extend(is_closed.then_some(b'"'));
        body.extend(after);
        agree::<true>(&body, start);
        agree::<false>(&body, start);
    }
}

#[test]
fn both_ways_agree_at_every_length_and_place() {
    for len in 0..150 {
        let mut body = vec![b'x'; len];
        body.insert(0, b'"');
        agree::<true>(&body, 1);
        body.push(b'"');
        agree::<true>(&body, 1);
        for at in (1..=len).step_by(1 + len / 70) {
            for special in [b'"', b'\\', b'\n', 0x80, 0xc3] {
                body[at] = special;
                agree::<true>(&body, 1);
                body[at] = b'x';
            }
        }
    }
}

/// Every sequence of four bytes from those where a rule of UTF-8 begins or ends, over the edges of half blocks.
#[test]
fn utf8_is_what_the_standard_library_says() {
    const EDGES: [u8; 17] = [
        b'a', 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5,
    ];
    let mut body = [b'x'; 160];
    (body[0], body[159]) = (b'"', b'"');
    for sequence in 0..EDGES.len().pow(4) {
        let place = [1, 14, 30, 31, 62, 63, 64, 127][sequence % 8];
        let bytes = [0, 1, 2, 3].map(|digit| EDGES[sequence / EDGES.len().pow(digit) % EDGES.len()]);
        body[place..place + 4].copy_from_slice(&bytes);
        let is_text = std::str::from_utf8(&bytes).is_ok();
        assert_eq!(after_string::<true>(&body, 0).is_ok(), is_text, "{bytes:x?} at {place}");
        body[place..place + 4].fill(b'x');
    }
    for pair in 0..=0xffff_u16 {
        body[64..66].copy_from_slice(&pair.to_be_bytes());
        // Lower ones may be quotes, backslashes or control characters.
        if pair.to_be_bytes().iter().all(|byte| *byte >= b'a') {
            let is_text = std::str::from_utf8(&body).is_ok();
            assert_eq!(after_string::<true>(&body, 0).is_ok(), is_text, "{pair:x}");
        }
    }
}
