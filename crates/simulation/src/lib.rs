//! Inference engines as pure state machines
