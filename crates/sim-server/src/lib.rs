//! Simulated engines on the wall clock, behind HTTP
