//! The served model: what its name and its config.json say.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::SimError;

/// Context when nothing states one: that of most current models.
const DEFAULT_MAX_LEN: u32 = 131_072;
/// Length of an embedding when nothing states one: short enough to read.
const DEFAULT_EMBEDDING: usize = 64;
/// Longest embedding, so that a wrong config.json cannot ask for gigabytes.
const MAX_EMBEDDING: usize = 16_384;
/// A config.json is a few kilobytes; something larger is another file.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// What the replicas need to know about the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The name that requests use.
    pub name: String,
    /// Longest prompt plus answer, in tokens.
    pub max_len: u32,
    /// Number of token ids. Without one, an id is the token's four bytes.
    pub vocabulary: Option<u32>,
    /// Numbers in an embedding.
    pub embedding_len: usize,
}

#[derive(Deserialize, Default)]
struct Config {
    #[serde(rename = "_name_or_path")]
    name_or_path: Option<String>,
    max_position_embeddings: Option<u32>,
    vocab_size: Option<u32>,
    hidden_size: Option<usize>,
    /// Multimodal models keep these below.
    text_config: Option<Box<Config>>,
}

impl Model {
    /// The model called `name`, or the one in the folder `name`.
    pub fn load(name: &str, max_len: Option<u32>) -> Result<Self, SimError> {
        let path = Path::new(name).join("config.json");
        let (name, config) = if Path::new(name).is_dir() {
            let config = read_config(&path)?;
            (served_name(Path::new(name), &config), config)
        } else {
            (name.to_owned(), Config::default())
        };
        let text = config.text_config.unwrap_or_default();
        let hidden = config.hidden_size.or(text.hidden_size).unwrap_or(DEFAULT_EMBEDDING);
        Ok(Self {
            name,
            max_len: max_len
                .or(config.max_position_embeddings)
                .or(text.max_position_embeddings)
                .unwrap_or(DEFAULT_MAX_LEN),
            vocabulary: config.vocab_size.or(text.vocab_size).filter(|size| *size > 0),
            embedding_len: hidden.clamp(1, MAX_EMBEDDING),
        })
    }
}

/// The name in the file unless it is a path of the machine that wrote it; else the folder's.
fn served_name(folder: &Path, config: &Config) -> String {
    let stated = config.name_or_path.as_deref().unwrap_or("");
    if !stated.is_empty() && !stated.starts_with(['/', '.', '~']) {
        return stated.to_owned();
    }
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.file_name().map_or_else(|| "sim".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn read_config(path: &PathBuf) -> Result<Config, SimError> {
    let fail = |reason: String| SimError::Model { path: path.clone(), reason };
    let size = std::fs::metadata(path)
        .map_err(|error| fail(format!("{error}; --model takes a name, or a folder with a config.json")))?
        .len();
    if size > MAX_CONFIG_BYTES {
        return Err(fail(format!(
            "has {size} bytes, more than the {MAX_CONFIG_BYTES} of any model's config"
        )));
    }
    let text = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| fail(format!("is not a model's config: {error}")))
}
