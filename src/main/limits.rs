//! What the system lets this process have, and what it may leave behind.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A watch is an open file: takes as many as the system lets this process have.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Refused or unlimited, the present limit stays; running out later is counted and survived.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// Memory holds callers' tokens and the gateway's own keys, so a process that is killed leaves no core.
///
/// # Errors
/// The system refuses, which it may not.
pub(crate) fn forbid_cores() -> std::io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}
