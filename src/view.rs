//! What one watcher may see, and in what form.

pub mod selector;
