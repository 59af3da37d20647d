//! What is sent and answered: all of it follows from a number in the request, so that both ends can check every byte.

/// A step of splitmix64: numbers that look random and can be had again.
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn text(number: u64, length: usize) -> String {
    let mut state = number;
    let mut out = String::with_capacity(length + 16);
    while out.len() < length {
        out.push_str(&format!("{:016x}", random(&mut state)));
    }
    out.truncate(length);
    out
}

/// A request: its body has a prompt of `length` bytes; a streamed answer has `events` events.
pub fn request(number: u64, length: usize, events: usize) -> String {
    let stream = events > 0;
    format!(
        r#"{{"model":"m","stream":{stream},"user":"{number} {length} {events} ","prompt":"{}"}}"#,
        text(number, length)
    )
}

/// Reads a request's numbers, and whether every byte of it is as it was sent.
fn read(body: &[u8]) -> (u64, usize, bool) {
    let text = String::from_utf8_lossy(body);
    let mut numbers = text
        .split_once(r#""user":""#)
        .map_or("", |(_, rest)| rest)
        .split(' ')
        .map(|word| word.parse().unwrap_or(0));
    let number: u64 = numbers.next().unwrap_or(0);
    let length = usize::try_from(numbers.next().unwrap_or(0)).unwrap_or(0);
    let events = usize::try_from(numbers.next().unwrap_or(0)).unwrap_or(0);
    let whole = length < 1 << 24 && request(number, length, events).as_bytes() == body;
    (number, events, whole)
}

/// Whether the answer is a stream.
pub fn streams(body: &[u8]) -> bool {
    read(body).1 > 0
}

/// The whole answer to a request.
pub fn answer(body: &[u8]) -> String {
    let (number, _, whole) = read(body);
    format!(r#"{{"whole":{whole},"text":"{}"}}"#, text(number ^ 1, 1500))
}

/// The events of a streamed answer.
pub fn events(body: &[u8]) -> impl Iterator<Item = String> {
    let (number, events, whole) = read(body);
    (0..events as u64)
        .map(move |at| format!("data: {whole} {at} {}\n\n", text(number ^ at, 40 + (at as usize * 37) % 400)))
}

/// What the client is to get.
pub fn expected(request: &str, events_count: usize) -> Vec<u8> {
    match events_count {
        0 => answer(request.as_bytes()).into_bytes(),
        _ => events(request.as_bytes()).collect::<String>().into_bytes(),
    }
}
