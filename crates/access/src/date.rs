//! Dates of keys: UTC, `2027-01-31` or `2027-01-31T12:00:00Z`.

/// Seconds since 1970 of a date; a day alone means its beginning.
///
/// ```
/// assert_eq!(access::parse_date("2000-03-01"), Some(951_868_800));
/// assert_eq!(access::parse_date("2000-02-30"), None);
/// ```
pub fn parse_date(text: &str) -> Option<u64> {
    let (day, time) = match text.split_once('T') {
        Some((day, time)) => (day, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    if year < 1970 || !(1..=12).contains(&month) || day == 0 || day > days_in(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum::<u64>()
        + (1..month).map(|month| days_in(year, month)).sum::<u64>()
        + day
        - 1;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// A date as [`parse_date`] reads it.
pub fn show_date(unix_s: u64) -> String {
    let (mut days, rest) = (unix_s / 86_400, unix_s % 86_400);
    let (mut year, mut month) = (1970, 1);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length || year == 9999 {
            break;
        }
        days -= length;
        year += 1;
    }
    while month < 12 && days >= days_in(year, month) {
        days -= days_in(year, month);
        month += 1;
    }
    let day = days.min(30) + 1;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut out = [0; 3];
    for (number, width) in out.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(out)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_shown() {
        assert_eq!(parse_date("2026-12-04T22:12:19Z"), Some(1_796_422_339));
        assert_eq!(show_date(1_796_422_339), "2026-12-04T22:12:19Z");
        for unix_s in (0..253_402_300_799).step_by(86_399 * 3701) {
            assert_eq!(parse_date(&show_date(unix_s)), Some(unix_s));
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "2027",
            "2027-13-01",
            "2027-00-01",
            "2027-02-29",
            "2027-1-1",
            "1969-12-31",
            "+027-01-01",
            "2027-01-01T24:00:00Z",
            "2027-01-01T00:00:00",
            "2027-01-01-01",
            "2027-01-01T00:00:00+01:00",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }
}
