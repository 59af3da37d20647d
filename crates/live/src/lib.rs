//! The live view of `ridge up`: where to send traffic, and one line an endpoint that moves.
//!
//! [`greeting`] is plain text, printed once: what people copy must wrap and scroll like any text. Below it
//! [`run_live`] keeps a few lines moving without taking the screen, so that after the end the last picture and all
//! that was printed are still there. [`render`] draws those lines on any ratatui frame.
//!
//! ```
//! let info = live::UpInfo {
//!     gateway_url: "http://127.0.0.1:8080".into(),
//!     model: Some("sim".into()),
//!     ..live::UpInfo::default()
//! };
//! assert!(live::greeting(&info).contains("curl http://127.0.0.1:8080/v1/chat/completions"));
//! ```
//!
//! It needs a terminal. When standard output is none, the caller writes log lines instead.

mod greeting;
mod history;
mod screen;
mod view;

pub use greeting::{UpInfo, greeting};
pub use history::History;
pub use screen::{Ended, run_live};
pub use view::{lines_needed, render};
