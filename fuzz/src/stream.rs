//! Streamed answers.

use api::{Framing, Operation, StreamScan, Usage};

pub(crate) const TOKENS: &[&[u8]] = &[
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\r\n\r\n",
    b"data",
    b"data:",
    b"data: ",
    b"event: x\n",
    b": ping\n\n",
    b"id: 1\n",
    b"[DONE]",
    b"data: [DONE]\n\n",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\"usage\"",
    b"\"usage\":null",
    b"\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}",
    b"\\\"usage\\\":{",
    b"\"meta_info\":{",
    b"\"eval_count\":5",
    b"\"message\":{\"usage\":{\"input_tokens\":5}}",
    b"\"response\":{\"usage\":{}}",
    b"{",
    b"}",
    b"\0",
];

/// The first byte chooses call and framing, the second the cuts, the rest is the stream. However it is cut, the same
/// is seen.
pub fn sse_scan(input: &[u8]) {
    let [choice, cuts, stream @ ..] = input else { return };
    let operation = Operation::ALL[usize::from(choice >> 1) % Operation::ALL.len()];
    let framing = if choice & 1 == 0 { Framing::Sse } else { Framing::Lines };
    let whole = scan(operation, framing, stream, |_| usize::MAX);
    assert_eq!(scan(operation, framing, stream, |_| 1), whole, "byte by byte");
    let cut =
        |index: usize| 1 + (index.wrapping_mul(31) ^ usize::from(*cuts)) % (1 + usize::from(*cuts % 64));
    assert_eq!(scan(operation, framing, stream, cut), whole, "in pieces");
    let ends = stream.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count();
    assert!(whole.0 as usize <= ends + 1, "more events than lines");
}

fn scan(
    operation: Operation,
    framing: Framing,
    stream: &[u8],
    size: impl Fn(usize) -> usize,
) -> (u32, Option<Usage>, u32) {
    let mut scan = StreamScan::new(operation, framing);
    let (mut events, mut rest, mut index) = (0, stream, 0);
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(size(index).min(rest.len()));
        events += scan.push(chunk).events;
        (rest, index) = (after, index + 1);
    }
    events += scan.finish().events;
    (events, scan.usage(), scan.oversized_events())
}
