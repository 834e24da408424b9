//! Looks at what the system lets the process use: what the settings name, open files, memory, space, the clock.

use std::path::{Path, PathBuf};

use super::catalogue as checks;
use super::checklist::Checklist;
use super::clock::skew_verdict;
use super::files::now;
use super::limits::{self, MemoryLimits};
use super::requests::get;
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use super::words::counted;
use crate::blocking::spawn_blocking;
use crate::config::{CheckCategory, CheckSettings, OpenFiles, StateSettings};
use crate::gateway::{unusable_files, unusable_settings};

const CGROUPS: &str = "/sys/fs/cgroup";

pub(super) async fn check(list: &mut Checklist<'_>, settings: &CheckSettings) {
    if !list.is_chosen(CheckCategory::Limits) {
        return;
    }
    list.make(&checks::SETTINGS, usable(settings)).await;
    let admission = settings.serve.admission;
    let files = OpenFiles::of_process(admission.connections_max);
    let verdict = limits::files_verdict(files, admission.connections_max);
    list.make(&checks::OPEN_FILES, async { verdict }).await;
    let memory_max = u64::try_from(admission.memory_max).unwrap_or(u64::MAX);
    let memory = async { limits::memory_verdict(memory_max, memory_room().await) };
    list.make(&checks::MEMORY, memory).await;
    match &settings.serve.state {
        None => list.skip(&checks::STATE_SPACE, "there is no --state-dir"),
        Some(state) => {
            list.make(&checks::STATE_SPACE, state_space(state)).await;
        }
    }
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

/// Reads and opens what the gateway does at its start. A gateway that runs already has the ports and the directory.
async fn usable(settings: &CheckSettings) -> CheckVerdict {
    let problems = match settings.before_install {
        true => unusable_settings(&settings.serve).await,
        false => unusable_files(&settings.serve).await,
    };
    let hint =
        "correct the settings or what they name: serve will not start, with the same message";
    match problems.as_slice() {
        [] => CheckVerdict::ok("they can be used"),
        [problem] => CheckVerdict::failure(problem, hint),
        _ => {
            let count = counted(problems.len(), ("setting", "settings"));
            CheckVerdict::failure(format!("{count} cannot be used"), hint).with_details(problems)
        }
    }
}

async fn state_space(state: &StateSettings) -> CheckVerdict {
    let path = state.directory.clone();
    let free = spawn_blocking(move || {
        let existing = path.ancestors().find(|path| path.exists());
        let found = rustix::fs::statvfs(existing.unwrap_or(&path))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        // Only the gateway's user may list a directory of checkpoints; others learn that from the check of the settings.
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

/// Bytes of all files of the directory, which the bound of checkpoints counts.
pub(super) fn stored_len(directory: &Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        sum += entry?.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(sum)
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
