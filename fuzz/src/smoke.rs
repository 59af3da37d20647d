//! A short fuzz run on stable Rust: random damage to the committed seeds, for a bounded time, the same again for the
//! same seed.
//!
//! `cargo run --manifest-path fuzz/Cargo.toml --bin smoke -- --seconds 10 [--seed N] [--target NAME] [--case N]`;
//! the seconds are for each target.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuzz::{TARGETS, Target};

/// Longer inputs only make a run slower.
const MAX_INPUT_BYTES: usize = 64 * 1024;

/// Far above what any input needs, far below what one needs that takes time with the square of its length.
const MAX_CASE: Duration = Duration::from_secs(2);

const USAGE: &str = "usage: smoke [--seconds N] [--seed N] [--target NAME] [--case N]";

struct Options {
    seconds: u64,
    seed: u64,
    target: Option<String>,
    case: Option<u64>,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| options.target.as_ref().is_none_or(|name| name == target.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("--target {:?} is none of {}", options.target.unwrap_or_default(), names.join(", "));
        return ExitCode::from(2);
    }
    println!("seed {}", options.seed);
    let budget = Duration::from_secs(options.seconds);
    for target in chosen {
        let seeds = seeds(target.name);
        if seeds.is_empty() {
            eprintln!("{}: no files in fuzz/seeds/{}; put at least one there", target.name, target.name);
            return ExitCode::FAILURE;
        }
        match run(target, &seeds, &options, budget) {
            Ok(cases) => println!("{}: {cases} cases from {} seeds, nothing found", target.name, seeds.len()),
            Err((case, input, what)) => {
                let path = save(target.name, &input);
                eprintln!(
                    "{}: {what}\ninput ({} bytes) saved as {}",
                    target.name,
                    input.len(),
                    path.display()
                );
                eprintln!("again: smoke --seed {} --target {} --case {case}", options.seed, target.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let mut options = Options { seconds: 10, seed: now, target: None, case: None };
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{name} is {value:?}, it must be a whole number"));
        match name.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--case" => options.case = Some(number()?),
            "--target" => options.target = Some(value),
            _ => return Err(format!("{name} is not an option")),
        }
    }
    Ok(options)
}

type Found = (u64, Vec<u8>, String);

/// Runs the seeds as they are, then damaged ones until the time is up; or the one case asked for.
fn run(target: &Target, seeds: &[Vec<u8>], options: &Options, budget: Duration) -> Result<u64, Found> {
    let deadline = Instant::now() + budget;
    let first = options.case.unwrap_or(0);
    let mut case = first;
    loop {
        let input = input(target, seeds, options.seed, case);
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        if result.is_err() {
            return Err((case, input, "a claim does not hold, see the panic above".to_owned()));
        }
        let took = start.elapsed();
        if took > MAX_CASE {
            return Err((case, input, format!("took {took:?}, more than {MAX_CASE:?}")));
        }
        case += 1;
        let are_seeds_done = case >= seeds.len() as u64;
        if options.case.is_some() || are_seeds_done && Instant::now() >= deadline {
            return Ok(case - first);
        }
    }
}

/// The input of one case depends on the seed and the case's number alone.
fn input(target: &Target, seeds: &[Vec<u8>], seed: u64, case: u64) -> Vec<u8> {
    if let Some(seed) = usize::try_from(case).ok().and_then(|index| seeds.get(index)) {
        return seed.clone();
    }
    let mut random = Random(seed ^ case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut input = seeds[random.below(seeds.len())].clone();
    // Mostly little damage: what is nearly right goes deepest.
    for _ in 0..1 + random.below(4) * random.below(3) {
        let other = &seeds[random.below(seeds.len())];
        damage(&mut input, target.tokens, other, &mut random);
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

fn damage(input: &mut Vec<u8>, tokens: &[&[u8]], other: &[u8], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = at + random.below((input.len() - at).min(64) + 1);
    match random.below(9) {
        0 | 1 => drop(input.splice(at..at, tokens[random.below(tokens.len())].iter().copied())),
        2 => drop(input.splice(at..end, tokens[random.below(tokens.len())].iter().copied())),
        3 => drop(input.drain(at..end)),
        4 if at < input.len() => input[at] = random.next() as u8,
        5 if at < input.len() => input[at] ^= 1 << random.below(8),
        6 => {
            let piece = input[at..end].repeat(1 + random.below(8));
            drop(input.splice(at..at, piece));
        }
        7 => input.truncate(at),
        _ => {
            let from = random.below(other.len() + 1);
            let to = from + random.below((other.len() - from).min(256) + 1);
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
    }
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// By name, so that a case's number means the same everywhere.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder().join("seeds").join(target)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

fn save(target: &str, input: &[u8]) -> PathBuf {
    let folder = folder().join("artifacts").join(target);
    let path = folder.join("smoke-found");
    if let Err(error) = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input)) {
        eprintln!("could not save the input: {error}");
    }
    path
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for choices, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
