//! Verdicts about what the system lets the process use.

use super::verdict::CheckVerdict;
use super::words::counted;
use crate::config::OpenFiles;

/// Fewer client connections than this are too few for the nodes and controllers of a small cluster.
const CLIENTS_MIN: usize = 1_000;
const MIB: u64 = 1 << 20;

/// Whether enough files may be open. `wanted` is `--connections-max`, 0 for as many as possible.
pub(super) fn files_verdict(files: OpenFiles, wanted: usize) -> CheckVerdict {
    let clients = files.clients;
    let connections = ("client connection", "client connections");
    let left = format!(
        "the limit of open files leaves {}",
        counted(clients, connections)
    );
    let hint =
        "raise the limit of open files (ulimit -n, LimitNOFILE, the container runtime's default)";
    if clients < wanted {
        let text = format!("{left}, and --connections-max is {wanted}");
        return CheckVerdict::failure(text, hint);
    }
    if wanted == 0 && clients < CLIENTS_MIN {
        return CheckVerdict::warning(left, hint);
    }
    CheckVerdict::ok(left)
}

/// The memory that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimits {
    /// The limit of the container, in bytes.
    pub(super) container: Option<u64>,
    /// The memory of the machine.
    pub(super) machine: Option<u64>,
}

/// Whether `--memory-max`, 0 for none, is below what the process may use.
pub(super) fn memory_verdict(memory_max: u64, room: MemoryLimits) -> CheckVerdict {
    let limit = match (room.container, room.machine) {
        (Some(container), machine) => Some((
            container.min(machine.unwrap_or(u64::MAX)),
            "the container's limit",
        )),
        (None, machine) => machine.map(|bytes| (bytes, "the machine's memory")),
    };
    let Some((limit, whose)) = limit else {
        return CheckVerdict::skipped("the system does not say how much memory there is");
    };
    let room = format!("{whose} of {} MiB", limit / MIB);
    if memory_max == 0 {
        if whose == "the container's limit" {
            return CheckVerdict::warning(
                format!("there is no --memory-max below {room}: the kernel may kill the process"),
                "set --memory-max to about three quarters of the limit (docs/SCALING.md)",
            );
        }
        return CheckVerdict::ok(format!("no --memory-max; {room}"));
    }
    let set = format!("--memory-max is {} MiB", memory_max / MIB);
    if memory_max > limit {
        return CheckVerdict::failure(
            format!("{set}, more than {room}"),
            "set --memory-max to about three quarters of the limit, or raise the limit",
        );
    }
    // What is allocated between two looks at the memory, and what the kernel counts besides the process.
    if memory_max > limit / 10 * 9 {
        return CheckVerdict::warning(
            format!("{set}, nearly all of {room}"),
            "leave a tenth of the limit free: clients are refused only after the bound is passed",
        );
    }
    CheckVerdict::ok(format!("{set}, of {room}"))
}

/// The limit in a file of a control group: `max` means none. Version 1 writes a number near the largest one instead.
pub(super) fn cgroup_limit(text: &str) -> Option<u64> {
    let limit = text.trim().parse::<u64>().ok()?;
    (limit < 1 << 60).then_some(limit)
}

/// `MemTotal` in `/proc/meminfo`, in bytes.
pub(super) fn machine_memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes = line.trim().strip_suffix("kB")?.trim();
    Some(kilobytes.parse::<u64>().ok()? << 10)
}

/// The path of the process's control group, version 2, in `/proc/self/cgroup`.
pub(super) fn cgroup_path(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A path with dots would lead out of the file system of control groups.
    (!path.contains("..")).then_some(path)
}

/// Whether checkpoints of `wanted` bytes fit into the free space and that of the checkpoints that are there.
pub(super) fn space_verdict(wanted: u64, free: u64, stored: u64) -> CheckVerdict {
    let (wanted_mib, free_mib, stored_mib) = (wanted / MIB, free / MIB, stored / MIB);
    let text = format!(
        "{free_mib} MiB free and {stored_mib} MiB of checkpoints, which may take {wanted_mib} MiB"
    );
    if free.saturating_add(stored) >= wanted {
        return CheckVerdict::ok(text);
    }
    CheckVerdict::warning(
        text,
        "use a larger volume, or lower --memory-max, of which checkpoints may take twice as much: caches that do not fit have no checkpoint",
    )
}
