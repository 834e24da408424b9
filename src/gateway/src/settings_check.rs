//! Whether a gateway would start with its settings: reads the files that they name and opens its ports as a start does, but creates nothing
//! and sends nothing.

use std::fs;
use std::future::Future;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, access};

use super::{GatewayError, bind, connect_source, handover, server_identity};
use crate::admin;
use crate::audit;
use crate::auth::authenticator::AuthenticatorSettings;
use crate::blocking::spawn_blocking;
use crate::checkpoint::directory::{DirectoryCondition, DirectoryError, StateDirectory};
use crate::config::{AuditOutput, AuthMode, AuthSettings, ServeSettings, StateSettings};
use crate::error_chain::one_line;
use crate::tls::{ServerIdentity, TlsFiles};

/// A file that cannot be read at once is on a network that does not answer.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// What the settings name and cannot be used, one line each.
pub async fn unusable_settings(settings: &ServeSettings) -> Vec<String> {
    let mut found = unusable_files(settings).await;
    if let Some(state) = settings.state.clone() {
        let free = blocking(move || unused(&state).map_err(|error| one_line(&error)));
        found.extend(
            free.await
                .err()
                .map(|problem| format!("--state-dir: {problem}")),
        );
    }
    for problem in closed_ports(settings).await {
        found.push(one_line(&problem));
    }
    found
}

/// As [`unusable_settings`], without what a gateway with these settings has for itself while it runs.
pub async fn unusable_files(settings: &ServeSettings) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |flag: &str, problem: Result<(), String>| {
        found.extend(problem.err().map(|problem| format!("{flag}: {problem}")));
    };
    let pairs = TlsFiles::of(settings).map(|files| TlsFiles {
        client_authorities: Vec::new(),
        ..files
    });
    let pairs = blocking(move || {
        pairs
            .map(ServerIdentity::read)
            .transpose()
            .map(drop)
            .map_err(|error| one_line(&error))
    });
    let pairs = pairs.await;
    let is_served = pairs.is_ok();
    note("the serving certificate", pairs);
    for (flag, auth) in each_authority(&settings.auth) {
        let only = ServeSettings {
            auth,
            ..settings.clone()
        };
        let read = blocking(move || authorities(&only, is_served));
        note(flag, read.await);
    }
    let client = connect_source(&settings.upstream);
    let client = in_time(client.check(settings.api_servers.clone()));
    note("the API server", client.await);
    if let Some(settings) = &settings.audit {
        let path = settings.policy.clone();
        let policy = blocking(move || audit::check_policy(&path).map_err(|e| one_line(&e)));
        note("--audit-policy-file", policy.await);
        if let AuditOutput::File(path) = &settings.log {
            note("--audit-log-path", appendable(path));
        }
    }
    if let Some(state) = settings.state.clone() {
        let directory = blocking(move || {
            StateDirectory::inspect(&state.directory, state.key_file.as_deref())
                .map(drop)
                .map_err(|error| one_line(&error))
        });
        note("--state-dir", directory.await);
    }
    if let Some(handover) = &settings.handover {
        let peer = tokio::time::timeout(READ_TIME_MAX, handover::check_files(handover));
        note(
            "--handover-from",
            peer.await.unwrap_or_else(|_| Err(too_slow())),
        );
    }
    found
}

/// The settings of authentication, with one file of authorities each.
fn each_authority(settings: &AuthSettings) -> Vec<(&'static str, AuthSettings)> {
    // Without authentication they are not read.
    if settings.mode == AuthMode::None {
        return Vec::new();
    }
    let clients = settings.client_ca.is_some().then(|| AuthSettings {
        front_proxy: None,
        ..settings.clone()
    });
    let proxies = settings.front_proxy.is_some().then(|| AuthSettings {
        client_ca: None,
        ..settings.clone()
    });
    let clients = clients.map(|one| ("--client-ca-file", one));
    let proxies = proxies.map(|one| ("--requestheader-client-ca-file", one));
    clients.into_iter().chain(proxies).collect()
}

/// Reads authorities as authentication does and, if there are usable certificates, as handshakes do.
fn authorities(settings: &ServeSettings, is_served: bool) -> Result<(), String> {
    AuthenticatorSettings::read(&settings.auth).map_err(|error| error.to_string())?;
    if is_served {
        server_identity(settings).map_err(|error| one_line(&error))?;
    }
    Ok(())
}

/// Errors other than a use by another gateway are those of the directory itself.
fn unused(settings: &StateSettings) -> Result<(), DirectoryError> {
    match StateDirectory::inspect(&settings.directory, settings.key_file.as_deref()) {
        Ok(DirectoryCondition::InUse) => Err(DirectoryError::InUse {
            path: settings.directory.clone(),
        }),
        Ok(DirectoryCondition::Missing | DirectoryCondition::Free) | Err(_) => Ok(()),
    }
}

/// The ports that cannot be opened. Those that can are closed again at once.
async fn closed_ports(settings: &ServeSettings) -> Vec<GatewayError> {
    let operators = settings
        .operator_listen
        .map(|address| bind("--operator-listen", address).map(drop));
    let admin = admin::listen(settings.admin_listen).await;
    let all = [
        Some(bind("--listen", settings.listen).map(drop)),
        operators,
        Some(admin.map(drop).map_err(GatewayError::from)),
    ];
    all.into_iter().flatten().filter_map(Result::err).collect()
}

async fn in_time<E: std::error::Error + 'static>(
    reading: impl Future<Output = Result<(), E>>,
) -> Result<(), String> {
    match tokio::time::timeout(READ_TIME_MAX, reading).await {
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

/// Whether the file can be appended to, or created together with its folders.
fn appendable(path: &Path) -> Result<(), String> {
    let (place, rights) = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(format!("{} is a directory", path.display())),
        Ok(_) => (path, Access::WRITE_OK),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = path.ancestors().skip(1);
            let above = above.map(|above| match above.as_os_str().is_empty() {
                true => Path::new("."),
                false => above,
            });
            let folder = above
                .into_iter()
                .find(|above| above.exists())
                .unwrap_or_else(|| Path::new("/"));
            if !folder.is_dir() {
                return Err(failed(folder, &ErrorKind::NotADirectory.into()));
            }
            (folder, Access::WRITE_OK | Access::EXEC_OK)
        }
        Err(error) => return Err(failed(path, &error)),
    };
    access(place, rights).map_err(|error| failed(place, &error.into()))
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
