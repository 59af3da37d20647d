//! The whole program, tried from outside. The tests are in `tests/`; this holds what several of them start from.

#[cfg(feature = "engines")]
pub mod engines;
mod house;

pub use house::{House, before, chat, completion, header};
