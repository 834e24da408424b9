//! Embedded API server, gateway and watchers in one process.
