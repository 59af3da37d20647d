//! Side-by-side benchmarks against peers

fn main() {}
