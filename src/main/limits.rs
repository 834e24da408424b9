//! Resource limits of this process: open files and core dumps.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the highest value that the system allows, because every watch may need a socket.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails the present limit stays. Running out of files later is counted and does not stop the gateway.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// Disables core dumps: memory holds callers' tokens and the gateway's own keys.
///
/// # Errors
/// If the system refuses; lowering the limit is normally allowed.
pub(crate) fn disable_core_dumps() -> std::io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}
