//! The check that the crates that decide do no input or output: not through a dependency, not by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Outcome;
use crate::program::{cargo, output, root};

/// The crates that decide. `api` and `config` read bytes that others hand them and are held to the same rule.
const DECIDERS: [&str; 5] = ["access", "api", "config", "scheduling", "simulation"];

/// Crates that open sockets, spawn tasks, or draw from the system's randomness.
const DOERS: [&str; 21] = [
    "async-std",
    "axum",
    "crossbeam-channel",
    "fastrand",
    "futures-executor",
    "getrandom",
    "h2",
    "hyper",
    "hyper-util",
    "kube",
    "mio",
    "notify",
    "polling",
    "rand",
    "reqwest",
    "rustix",
    "rustls",
    "smol",
    "socket2",
    "tokio",
    "tonic",
];

/// What a decider's own source may not say. Addresses from `std::net` are plain values and allowed.
const WORDS: [&str; 16] = [
    "std::fs",
    "std::thread",
    "std::process",
    "std::env",
    "Instant::now",
    "SystemTime::now",
    "File::open",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "ToSocketAddrs",
    "RandomState",
    "thread_rng",
    "async fn",
    "println!",
];

pub(crate) fn run() -> Outcome {
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut wrong = dependencies_that_do(&metadata, &DECIDERS)?;
    for decider in DECIDERS {
        wrong.extend(sources_that_do(&root().join("crates").join(decider).join("src"))?);
    }
    if wrong.is_empty() {
        println!("{} do no input or output", DECIDERS.join(", "));
        return Ok(());
    }
    Err(format!("a crate that decides must do no input or output:\n  {}", wrong.join("\n  ")))
}

/// Each way from a decider through normal dependencies to a crate that does.
fn dependencies_that_do(metadata: &Value, deciders: &[&str]) -> Result<Vec<String>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: BTreeMap<String, String> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let mut needs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let normal = list(&node["deps"])
            .into_iter()
            .filter(|dependency| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
        needs.insert(text(&node["id"]), normal.map(|dependency| text(&dependency["pkg"])).collect());
    }
    let mut wrong = Vec::new();
    for decider in deciders {
        let members = list(&metadata["workspace_members"]);
        let Some(start) =
            members.iter().map(text).find(|id| names.get(id).is_some_and(|name| name == decider))
        else {
            return Err(format!("no workspace member is called `{decider}`; correct the list of deciders"));
        };
        let mut seen = BTreeSet::from([start.clone()]);
        let mut ways = vec![vec![start]];
        while let Some(way) = ways.pop() {
            for next in needs.get(&way[way.len() - 1]).into_iter().flatten() {
                if !seen.insert(next.clone()) {
                    continue;
                }
                let mut longer = way.clone();
                longer.push(next.clone());
                if names.get(next).is_some_and(|name| DOERS.contains(&name.as_str())) {
                    let shown: Vec<&str> =
                        longer.iter().filter_map(|id| names.get(id)).map(String::as_str).collect();
                    wrong.push(format!("dependency: {}", shown.join(" -> ")));
                } else {
                    ways.push(longer);
                }
            }
        }
    }
    Ok(wrong)
}

/// Each line below `folder` that says one of the words, tests and comments apart.
fn sources_that_do(folder: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for path in rust_files(folder)? {
        let source = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        for (number, line) in lines_outside_tests(&source) {
            if let Some(word) = WORDS.iter().find(|word| line.contains(**word)) {
                wrong.push(format!("{}:{number}: {word}", path.display()));
            }
        }
    }
    Ok(wrong)
}

/// The numbered lines of code before the test module, which by custom closes the file.
fn lines_outside_tests(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(kind: &str) -> Value {
        serde_json::from_str(&format!(
            r#"{{"workspace_members":["a"],
                "packages":[{{"id":"a","name":"api"}},{{"id":"b","name":"between"}},{{"id":"t","name":"tokio"}}],
                "resolve":{{"nodes":[
                  {{"id":"a","deps":[{{"pkg":"b","dep_kinds":[{{"kind":null}}]}}]}},
                  {{"id":"b","deps":[{{"pkg":"t","dep_kinds":[{{"kind":{kind}}}]}}]}},
                  {{"id":"t","deps":[]}}]}}}}"#
        ))
        .expect("metadata written by hand")
    }

    #[test]
    fn names_the_way_to_a_crate_that_does() {
        let wrong = dependencies_that_do(&metadata("null"), &["api"]).expect("api is a member");
        assert_eq!(wrong, ["dependency: api -> between -> tokio"]);
    }

    #[test]
    fn tests_may_depend_on_anything() {
        assert!(dependencies_that_do(&metadata("\"dev\""), &["api"]).expect("api is a member").is_empty());
    }

    #[test]
    fn a_decider_that_is_gone_is_an_error() {
        assert!(dependencies_that_do(&metadata("null"), &["sharing"]).is_err());
    }

    #[test]
    fn only_code_outside_tests_is_read() {
        let source = "// std::fs\nuse std::net;\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        let lines: Vec<usize> = lines_outside_tests(source).map(|(number, _)| number).collect();
        assert_eq!(lines, [2]);
    }
}
