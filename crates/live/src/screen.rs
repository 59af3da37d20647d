//! The terminal: drawing a few times a second, keys, and leaving it as it was.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use admin::Source;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{cursor, execute, terminal};
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::{History, UpInfo, greeting, lines_needed, render};

/// Four pictures a second: quick enough to look alive, slow enough to read and to cost nothing.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// Why the live view ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The user asked for the end.
    Quit,
    /// `shutdown` was set.
    Shutdown,
}

/// Prints the greeting and keeps the live lines moving below it until the user presses `q` or Ctrl-C, or `shutdown`
/// is set.
///
/// Blocks; give it a thread of its own. While it runs nothing else may write to the terminal. When it returns, by
/// whatever way, a panic included, the terminal takes input as before and the cursor stands below the last picture.
/// It does not end the gateway: that is for the caller, who learns why it ended.
///
/// # Errors
/// When standard output is no terminal, the terminal does not say where its cursor is, or writing to it fails. The
/// greeting may have been printed by then; the caller goes on with log lines.
pub fn run_live(source: &dyn Source, info: &UpInfo, shutdown: &AtomicBool) -> io::Result<Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut snapshot = runtime.block_on(source.snapshot());
    io::stdout().write_all(greeting(info).as_bytes())?;
    let (_, rows) = terminal::size()?;
    let _raw = RawMode::enter()?;
    let lines = lines_needed(&snapshot).min(rows.saturating_sub(2).max(6));
    let mut terminal = Terminal::with_options(
        CrosstermBackend::new(io::stdout()),
        TerminalOptions { viewport: Viewport::Inline(lines) },
    )?;
    let mut history = History::default();
    let ended = loop {
        history.record(&snapshot);
        terminal.draw(|frame| render(frame, &snapshot, info, &history))?;
        let next = Instant::now() + DRAW_EVERY;
        if quit_pressed(next)? {
            break Ended::Quit;
        }
        if shutdown.load(Ordering::Acquire) {
            break Ended::Shutdown;
        }
        snapshot = runtime.block_on(source.snapshot());
    };
    // The last picture stays; what comes next starts on a line of its own below it.
    let area = terminal.get_frame().area();
    execute!(io::stdout(), cursor::MoveTo(0, area.bottom().saturating_sub(1)))?;
    drop(terminal);
    io::stdout().write_all(b"\r\n")?;
    Ok(ended)
}

/// Reads keys until `deadline`; true as soon as one of them asks for the end.
fn quit_pressed(deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if !event::poll(left)? {
            return Ok(false);
        }
        if let Event::Key(key) = event::read()?
            && asks_for_the_end(key)
        {
            return Ok(true);
        }
    }
}

fn asks_for_the_end(key: KeyEvent) -> bool {
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('q' | 'Q') => true,
            // In raw mode these are keys, not signals.
            KeyCode::Char('c' | 'd') => key.modifiers.contains(KeyModifiers::CONTROL),
            _ => false,
        }
}

type PanicHook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Sync + Send>;

/// Raw mode for as long as it lives. A panic anywhere ends it first, so that its message is readable.
struct RawMode {
    previous_hook: Arc<PanicHook>,
}

impl RawMode {
    fn enter() -> io::Result<Self> {
        let previous_hook: Arc<PanicHook> = Arc::new(std::panic::take_hook());
        let in_panic = Arc::clone(&previous_hook);
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            in_panic(panic);
        }));
        let raw = RawMode { previous_hook };
        terminal::enable_raw_mode()?;
        Ok(raw)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        leave();
        // Hooks cannot be changed while panicking; this one is harmless then.
        if !std::thread::panicking() {
            let previous = Arc::clone(&self.previous_hook);
            std::panic::set_hook(Box::new(move |panic| previous(panic)));
        }
    }
}

fn leave() {
    // Nothing better can be done when the terminal is gone.
    let _ = terminal::disable_raw_mode();
    let _ = execute!(io::stdout(), cursor::Show);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_ctrl_c_ask_for_the_end() {
        let key = |code, modifiers| asks_for_the_end(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!key(KeyCode::Esc, KeyModifiers::NONE));
        let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert!(!asks_for_the_end(release));
    }
}
