//! Looks at what the system lets the process use: open files, memory, the state directory, ports, the clock.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;

use super::catalogue as checks;
use super::checklist::Checklist;
use super::clock::skew_verdict;
use super::files::now;
use super::limits::{self, MemoryLimits};
use super::requests::get;
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use crate::blocking::spawn_blocking;
use crate::checkpoint::directory::{DirectoryCondition, StateDirectory};
use crate::config::{CheckCategory, CheckSettings, OpenFiles, StateSettings};
use crate::error_chain::one_line;

const CGROUPS: &str = "/sys/fs/cgroup";

pub(super) async fn check(list: &mut Checklist<'_>, settings: &CheckSettings) {
    if !list.is_chosen(CheckCategory::Limits) {
        return;
    }
    let admission = settings.serve.admission;
    let files = OpenFiles::of_process(admission.connections_max);
    let verdict = limits::files_verdict(files, admission.connections_max);
    list.make(&checks::OPEN_FILES, async { verdict }).await;
    let memory_max = u64::try_from(admission.memory_max).unwrap_or(u64::MAX);
    let memory = async { limits::memory_verdict(memory_max, memory_room().await) };
    list.make(&checks::MEMORY, memory).await;
    match &settings.serve.state {
        None => {
            list.skip(&checks::STATE_DIRECTORY, "there is no --state-dir");
            list.skip(&checks::STATE_SPACE, "there is no --state-dir");
        }
        Some(state) => {
            let directory = state_directory(state, settings.before_install);
            list.make(&checks::STATE_DIRECTORY, directory).await;
            list.make(&checks::STATE_SPACE, state_space(state)).await;
        }
    }
    list.make(&checks::PORTS, ports(settings)).await;
}

/// The limits in files of the kernel, which answer at once.
async fn memory_room() -> MemoryLimits {
    let read = async |path: PathBuf| tokio::fs::read_to_string(path).await.unwrap_or_default();
    let own = read("/proc/self/cgroup".into()).await;
    let own = limits::cgroup_path(&own).unwrap_or_default();
    let mut container = None;
    for file in limit_files(own) {
        let limit = limits::cgroup_limit(&read(file).await);
        container = [container, limit].into_iter().flatten().min();
    }
    let machine = limits::machine_memory(&read("/proc/meminfo".into()).await);
    MemoryLimits { container, machine }
}

/// The limits of the process's control group and of those around it, each of which binds: that of a slice, for example. Inside a container
/// the innermost one is at the root. Version 1 has another file.
pub(super) fn limit_files(own: &str) -> Vec<PathBuf> {
    let root = Path::new(CGROUPS);
    let groups = Path::new(own).ancestors();
    let mut files: Vec<_> = groups
        .map(|group| root.join(group).join("memory.max"))
        .collect();
    files.push(root.join("memory/memory.limit_in_bytes"));
    files
}

async fn state_directory(state: &StateSettings, before_install: bool) -> CheckVerdict {
    let (path, key) = (state.directory.clone(), state.key_file.clone());
    let looked = spawn_blocking(move || StateDirectory::inspect(&path, key.as_deref())).await;
    let path = state.directory.display();
    match looked {
        Err(error) => CheckVerdict::failure(error.to_string(), "check --state-dir"),
        Ok(Err(error)) => CheckVerdict::failure(
            one_line(&error),
            "give a directory of the gateway's user alone (chmod 700), and a key of 32 bytes in base64 with --state-key-file",
        ),
        Ok(Ok(DirectoryCondition::Missing)) => CheckVerdict::ok(format!("{path} will be created")),
        Ok(Ok(DirectoryCondition::Free)) => CheckVerdict::ok(format!("{path} is free")),
        Ok(Ok(DirectoryCondition::InUse)) if before_install => CheckVerdict::failure(
            format!("{path} is in use by another gateway"),
            "give each gateway a directory of its own, or stop the other one",
        ),
        Ok(Ok(DirectoryCondition::InUse)) => {
            CheckVerdict::ok(format!("{path} is in use by a gateway"))
        }
    }
}

async fn state_space(state: &StateSettings) -> CheckVerdict {
    let path = state.directory.clone();
    let free = spawn_blocking(move || {
        let existing = path.ancestors().find(|path| path.exists());
        let found = rustix::fs::statvfs(existing.unwrap_or(&path))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        // Only the gateway's user may list a directory of checkpoints; others learn that from another check.
        Ok::<_, std::io::Error>((free, stored_len(&path).unwrap_or(0)))
    });
    match free.await {
        Ok(Ok((free, stored))) => limits::space_verdict(state.len_max, free, stored),
        Ok(Err(error)) => CheckVerdict::failure(
            format!("{}: {error}", state.directory.display()),
            "give a directory that exists, or that can be created",
        ),
        Err(error) => CheckVerdict::failure(error.to_string(), "check --state-dir"),
    }
}

/// Bytes of all files of the directory, which `--state-bytes-max` counts.
pub(super) fn stored_len(directory: &Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        sum += entry?.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(sum)
}

/// Opens the ports for a moment, where no gateway has them.
async fn ports(settings: &CheckSettings) -> CheckVerdict {
    if !settings.before_install {
        return CheckVerdict::skipped("a gateway may have them already; --pre checks them");
    }
    let serve = &settings.serve;
    let ports = [
        ("--listen", Some(serve.listen)),
        ("--operator-listen", serve.operator_listen),
        ("--admin-listen", Some(serve.admin_listen)),
    ];
    let ports = ports.into_iter();
    let ports: Vec<(_, SocketAddr)> = ports.filter_map(|(flag, at)| Some((flag, at?))).collect();
    let mut held = Vec::new();
    for (flag, address) in &ports {
        match TcpListener::bind(*address).await {
            Ok(listener) => held.push(listener),
            Err(error) => {
                return CheckVerdict::failure(
                    format!("cannot listen on {address} ({flag}): {error}"),
                    "choose another port, or stop what has it (ss -ltnp)",
                );
            }
        }
    }
    let names = ports.iter().map(|(_, address)| address.to_string());
    CheckVerdict::ok(format!(
        "{} can be opened",
        names.collect::<Vec<_>>().join(", ")
    ))
}

/// Compares the clock with the API server's.
pub(super) async fn check_clock(list: &mut Checklist<'_>, link: &UpstreamLink) {
    let compared = async {
        let before = now();
        let response = match get(&link.client, "/version").await {
            Ok(response) => response,
            Err(error) => {
                return CheckVerdict::failure(error.to_string(), "look at the API server's log");
            }
        };
        let date = response.headers.get(http::header::DATE);
        let date = date.and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        match date {
            Some(date) => skew_verdict(date.timestamp().as_second(), before, now()),
            None => CheckVerdict::skipped("the API server's responses have no Date"),
        }
    };
    list.make(&checks::CLOCK_SKEW, compared).await;
}
