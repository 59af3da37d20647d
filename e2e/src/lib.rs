//! The whole program, tried from outside. The tests are in `tests/`; this holds what several of them start from.

mod config_file;
#[cfg(feature = "engines")]
pub mod engines;
mod house;

pub use config_file::{ConfigFile, config_of};
pub use house::{House, before, chat, completion, header};
