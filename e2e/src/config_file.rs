//! Configuration files.

use std::fs;
use std::path::PathBuf;

use rig::ScriptedEngine;

/// A configuration file that is removed with the test.
pub struct ConfigFile(PathBuf);

impl ConfigFile {
    /// With this text, in a folder of its own.
    #[track_caller]
    pub fn new(name: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ridge-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        let file = Self(folder.join("ridge.yaml"));
        file.write(text);
        file
    }

    /// Its path.
    pub fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// Replaces it.
    #[track_caller]
    pub fn write(&self, text: &str) {
        // Whole or not at all, as editors and Kubernetes do it.
        let new = self.0.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, &self.0)).expect("to write the test's file");
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        if let Some(folder) = self.0.parent() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A configuration with these engines, on free ports.
pub fn config_of(engines: &[&ScriptedEngine]) -> String {
    let mut text = "listen: [\"127.0.0.1:0\"]\nadmin: \"127.0.0.1:0\"\nupstreams:\n".to_owned();
    for engine in engines {
        text.push_str(&format!("  - url: {}\n    name: e{}\n", engine.url(), engine.addr().port()));
    }
    text
}
