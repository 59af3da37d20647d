//! Real engines
