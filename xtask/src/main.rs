//! Developer commands

fn main() {}
