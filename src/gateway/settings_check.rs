//! Whether a gateway would start with its settings: reads the files that they name as a start does, but opens no port, creates nothing and
//! sends nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{server_identity, source};
use crate::audit;
use crate::blocking::spawn_blocking;
use crate::checkpoint::directory::StateDirectory;
use crate::config::{AuditOutput, HandoverSettings, ServeSettings};
use crate::error_chain::one_line;
use crate::upstream::client::ConnectSource;

/// A file that cannot be read at once is a pipe, or on a network that does not answer.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// What the settings name and cannot be used, one line each.
pub async fn unusable_settings(settings: &ServeSettings) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |flag: &str, problem: Result<(), String>| {
        found.extend(problem.err().map(|problem| format!("{flag}: {problem}")));
    };
    let tls = settings.clone();
    let identity = blocking(move || server_identity(&tls).map(drop).map_err(|e| one_line(&e)));
    note("the serving certificate", identity.await);
    let upstream = source(&settings.upstream);
    note("the API server", connection(&upstream).await);
    if let Some(settings) = &settings.audit {
        let path = settings.policy.clone();
        let policy = blocking(move || audit::check_policy(&path).map_err(|e| one_line(&e)));
        note("--audit-policy-file", policy.await);
        if let AuditOutput::File(path) = &settings.log {
            note("--audit-log-path", parent(path));
        }
    }
    if let Some(state) = &settings.state {
        let (path, key) = (state.directory.clone(), state.key_file.clone());
        let directory = blocking(move || {
            let inspected = StateDirectory::inspect(&path, key.as_deref());
            inspected.map(drop).map_err(|error| one_line(&error))
        });
        note("--state-dir", directory.await);
    }
    if let Some(handover) = &settings.handover {
        note("--handover-from", connection(&peer(handover)).await);
    }
    found
}

fn peer(settings: &HandoverSettings) -> ConnectSource {
    let host = settings.from.host().unwrap_or_default();
    ConnectSource::Peer {
        url: settings.from.clone(),
        ca_file: settings.ca_file.clone(),
        server_name: settings
            .server_name
            .clone()
            .unwrap_or_else(|| host.to_owned()),
        token_file: settings.token_file.clone(),
    }
}

async fn connection(source: &ConnectSource) -> Result<(), String> {
    let reading = tokio::time::timeout(READ_TIME_MAX, source.read_files());
    match reading.await {
        Ok(read) => read.map_err(|error| one_line(&error)),
        Err(_) => Err(too_slow()),
    }
}

async fn blocking(
    read: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    match tokio::time::timeout(READ_TIME_MAX, spawn_blocking(read)).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(too_slow()),
    }
}

fn too_slow() -> String {
    format!("its files cannot be read within {READ_TIME_MAX:?}")
}

/// Whether the file can be created: its folder must exist.
fn parent(path: &Path) -> Result<(), String> {
    let folder = match path.parent() {
        Some(folder) if folder.components().next().is_some() => folder,
        Some(_) | None => Path::new("."),
    };
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() && !path.is_dir() => Ok(()),
        Ok(found) if found.is_dir() => Err(format!("{} is a directory", path.display())),
        Ok(_) => Err(format!("{} is not a directory", folder.display())),
        Err(error) => Err(format!("{}: {error}", folder.display())),
    }
}
