//! Runs code of the user whose panic must not unwind into the processor: wakers, and the destructors of handlers and objects.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops user values one by one, each with its panic caught: a second panic during unwinding would abort the process.
pub(super) fn drop_each<V>(values: impl IntoIterator<Item = V>) {
    values
        .into_iter()
        .for_each(|value| ignore_panic(|| drop(value)));
}

/// Runs user code and ignores its panic, which the process's panic hook has already reported.
pub(super) fn ignore_panic(run: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(run)));
}
