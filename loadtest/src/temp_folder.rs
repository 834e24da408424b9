//! A folder for logs, credentials and servers' data.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that only this user may read, and that is removed when dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a folder; its name holds `purpose` and this process's id.
    pub fn new(purpose: &str) -> Result<Self> {
        let name = format!(
            "{}-{purpose}-{}",
            env!("CARGO_PKG_NAME"),
            std::process::id()
        );
        let folder = std::env::temp_dir().join(name);
        let created = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        created.with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
