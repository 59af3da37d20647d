//! The head of an HTTP/1.1 message: the start line and the header lines, kept as they came.

/// Where the head in `bytes` ends (after the blank line), if all of it is there.
pub(crate) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The header lines of `head` as (name, value), in order; bytes that are not UTF-8 are shown as U+FFFD.
pub(crate) fn header_lines(head: &[u8]) -> Vec<(String, String)> {
    String::from_utf8_lossy(head)
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// All values of the header `name`, in order.
pub(crate) fn header_values(head: &[u8], name: &str) -> Vec<String> {
    header_lines(head)
        .into_iter()
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect()
}

/// The first line of `head`.
pub(crate) fn start_line(head: &[u8]) -> String {
    let end = head.windows(2).position(|window| window == b"\r\n").unwrap_or(head.len());
    String::from_utf8_lossy(&head[..end]).into_owned()
}
