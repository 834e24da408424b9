//! What the system lets this process have.

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
