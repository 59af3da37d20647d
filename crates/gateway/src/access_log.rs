//! The access log: one JSON line for each request, written by a thread of its own.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::settings::{AccessLog, Level, Notice, Notify};

/// A core hands its lines over when it has this many bytes, or at its next tick.
const FLUSH_BYTES: usize = 32 * 1024;

/// Batches that may wait for the writer. A log that cannot keep up loses lines, and says how many; it never
/// holds up a request.
const QUEUE: usize = 64;

/// Longest wait for the last lines at the end.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// Lines of one core.
pub struct LogBuffer {
    lines: Vec<u8>,
    count: u64,
    to: Option<SyncSender<Vec<u8>>>,
    lost: Arc<AtomicU64>,
    notify: Notify,
}

/// What a line says.
#[derive(Debug)]
pub struct Line<'a> {
    /// The request's id.
    pub id: &'a str,
    /// The client's address, without its port.
    pub client: std::net::IpAddr,
    /// The method.
    pub method: &'a str,
    /// The path without its query, which may hold secrets.
    pub path: &'a str,
    /// The model, by its label.
    pub model: &'a str,
    /// The endpoint's name.
    pub endpoint: &'a str,
    /// The status, or 499.
    pub status: u16,
    /// Endpoints tried.
    pub attempts: u32,
    /// Why the endpoint was picked.
    pub picked: &'a str,
    /// Bytes of the body received.
    pub bytes_in: u64,
    /// Bytes of the body sent.
    pub bytes_out: u64,
    /// Time to the answer's first byte, milliseconds.
    pub ttft_ms: Option<f64>,
    /// Whole time, milliseconds.
    pub duration_ms: f64,
    /// Tokens.
    pub usage: Option<api::Usage>,
    /// Code of a refusal, or of what went wrong.
    pub error: Option<&'a str>,
    /// Whose request it is, and with which key, where callers are asked who they are.
    pub tenant: Option<&'a str>,
    /// The name of the key.
    pub key: Option<&'a str>,
    /// Details of what went wrong.
    pub detail: Option<&'a str>,
}

impl LogBuffer {
    /// Whether lines go anywhere.
    pub fn is_on(&self) -> bool {
        self.to.is_some()
    }

    /// Adds a line.
    pub fn push(&mut self, line: &Line<'_>) {
        if self.to.is_none() {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let out = &mut self.lines;
        let _ = write!(out, "{{\"time\":{}.{:03},\"id\":", now.as_secs(), now.subsec_millis());
        string(out, line.id);
        let _ = write!(out, ",\"client\":\"{}\"", line.client);
        for (key, value) in [
            (",\"method\":", line.method),
            (",\"path\":", line.path),
            (",\"model\":", line.model),
            (",\"endpoint\":", line.endpoint),
            (",\"picked\":", line.picked),
        ] {
            out.extend_from_slice(key.as_bytes());
            string(out, value);
        }
        let _ = write!(
            out,
            ",\"status\":{},\"attempts\":{},\"bytes_in\":{},\"bytes_out\":{},\"duration_ms\":{:.3}",
            line.status, line.attempts, line.bytes_in, line.bytes_out, line.duration_ms
        );
        if let Some(ttft_ms) = line.ttft_ms {
            let _ = write!(out, ",\"ttft_ms\":{ttft_ms:.3}");
        }
        if let Some(usage) = &line.usage {
            let (prompt, output) = (usage.prompt_tokens, usage.completion_tokens);
            let _ = write!(out, ",\"prompt_tokens\":{prompt},\"output_tokens\":{output}");
            if let Some(cached) = usage.cached_tokens {
                let _ = write!(out, ",\"cached_tokens\":{cached}");
            }
        }
        for (key, value) in [
            (",\"tenant\":", line.tenant),
            (",\"key\":", line.key),
            (",\"error\":", line.error),
            (",\"detail\":", line.detail),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(key.as_bytes());
                string(out, value);
            }
        }
        out.extend_from_slice(b"}\n");
        self.count += 1;
        if self.lines.len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Hands the lines to the writer.
    pub fn flush(&mut self) {
        let (Some(to), false) = (&self.to, self.lines.is_empty()) else { return };
        let lines = std::mem::take(&mut self.lines);
        if to.try_send(lines).is_err() && self.lost.fetch_add(self.count, Relaxed) == 0 {
            let text = "the access log cannot keep up, or nobody reads it: lines are lost, and counted in \
                        ridge_access_log_lines_lost_total";
            (self.notify)(Notice { level: Level::Warning, text: text.into() });
        }
        self.count = 0;
    }
}

impl Drop for LogBuffer {
    /// Requests that are cut off at the end have their lines too.
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes a JSON string.
fn string(out: &mut Vec<u8>, text: &str) {
    // Writing to memory does not fail, and a str always has a JSON form.
    let _ = serde_json::to_writer(out, text);
}

/// The open log: makes a buffer for each core, and waits for the writer at the end.
pub struct Log {
    sender: Option<SyncSender<Vec<u8>>>,
    /// Lines lost so far.
    pub lost: Arc<AtomicU64>,
    notify: Notify,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl Log {
    /// Opens the log and starts its writer.
    pub fn open(to: Option<&AccessLog>, notify: Notify) -> std::io::Result<Self> {
        let lost = Arc::new(AtomicU64::new(0));
        let Some(to) = to else { return Ok(Self { sender: None, lost, notify, writer: None }) };
        let output: Box<dyn Write + Send> = match to {
            AccessLog::Stdout => Box::new(std::io::stdout()),
            AccessLog::Stderr => Box::new(std::io::stderr()),
            AccessLog::File(path) => {
                Box::new(std::fs::OpenOptions::new().create(true).append(true).open(path)?)
            }
        };
        let (sender, lines) = sync_channel(QUEUE);
        let (thread_lost, thread_notify) = (Arc::clone(&lost), Arc::clone(&notify));
        let writer = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(output, &lines, &thread_lost, &thread_notify))?;
        Ok(Self { sender: Some(sender), lost, notify, writer: Some(writer) })
    }

    /// A buffer for one core.
    pub fn buffer(&self) -> LogBuffer {
        LogBuffer {
            lines: Vec::new(),
            count: 0,
            to: self.sender.clone(),
            lost: Arc::clone(&self.lost),
            notify: Arc::clone(&self.notify),
        }
    }

    /// Waits until all is written, but not for a reader that does not read. Every buffer must be gone.
    pub fn close(self) {
        drop(self.sender);
        let Some(writer) = self.writer else { return };
        let began = Instant::now();
        while !writer.is_finished() && began.elapsed() < CLOSE_TIME {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn write_lines(
    mut output: Box<dyn Write + Send>,
    lines: &Receiver<Vec<u8>>,
    lost: &AtomicU64,
    notify: &Notify,
) {
    let mut failing = false;
    // A full disk may have taken the beginning of a line: the next one starts on a line of its own.
    let mut cut = false;
    for batch in lines {
        let mut written = 0;
        match write_batch(&mut output, &batch, &mut cut, &mut written) {
            Err(error) => {
                cut |= written > 0 && batch[written - 1] != b'\n';
                lost.fetch_add(memchr::memchr_iter(b'\n', &batch[written..]).count() as u64, Relaxed);
                if !std::mem::replace(&mut failing, true) {
                    let text =
                        format!("the access log cannot be written: {error}; lines are lost until it can");
                    notify(Notice { level: Level::Warning, text });
                }
            }
            Ok(()) if std::mem::replace(&mut failing, false) => {
                let lost = lost.load(Relaxed);
                let text = format!("the access log is written again; {lost} lines were lost so far");
                notify(Notice { level: Level::Info, text });
            }
            Ok(()) => {}
        }
    }
}

/// Writes a batch, after a line end if the last one was cut; `written` says how much of it was written.
fn write_batch(
    output: &mut impl Write,
    batch: &[u8],
    cut: &mut bool,
    written: &mut usize,
) -> std::io::Result<()> {
    if *cut {
        output.write_all(b"\n")?;
        *cut = false;
    }
    while *written < batch.len() {
        match output.write(&batch[*written..]) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(more) => *written += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, then is full until it is given room.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let take = bytes.len().min(self.room);
            self.room -= take;
            self.bytes.extend_from_slice(&bytes[..take]);
            if take == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(take) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_cut_by_a_full_disk_spoils_no_other() {
        let mut disk = Disk { bytes: Vec::new(), room: 6 };
        let (mut cut, mut written) = (false, 0);
        assert!(write_batch(&mut disk, b"one\ntwo\n", &mut cut, &mut written).is_err());
        assert_eq!(written, 6);
        cut = true; // as the writer notes it: the sixth byte ends no line
        disk.room = 100;
        written = 0;
        write_batch(&mut disk, b"three\n", &mut cut, &mut written).unwrap();
        assert_eq!(disk.bytes, b"one\ntw\nthree\n");
    }
}
