//! The log filter in force, and its changes while the process runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::info;

use super::LogFilter;

/// The log filter of the process. Clones share it.
#[derive(Clone)]
pub struct LogControl(Arc<ControlState>);

struct ControlState {
    /// Puts a filter in force.
    apply: Box<dyn Fn(&LogFilter) + Send + Sync>,
    state: Mutex<FilterState>,
    changed: Notify,
}

/// The filters of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterState {
    /// The filter of the settings.
    pub configured: LogFilter,
    /// The filter in force.
    pub current: LogFilter,
    /// When `configured` is in force again; `None` if nothing ends the current filter.
    pub until: Option<Instant>,
}

impl LogControl {
    /// `configured` must be in force already; `apply` puts another one in force.
    pub fn new(configured: LogFilter, apply: impl Fn(&LogFilter) + Send + Sync + 'static) -> Self {
        Self(Arc::new(ControlState {
            apply: Box::new(apply),
            state: Mutex::new(FilterState {
                current: configured.clone(),
                configured,
                until: None,
            }),
            changed: Notify::new(),
        }))
    }

    /// The filters of this moment.
    #[must_use]
    pub fn state(&self) -> FilterState {
        self.0.state.lock().clone()
    }

    /// Puts a filter in force, for this time or until the next change. Modules for which it has no level keep the configured one. `by` is
    /// who changes it, for the log.
    pub fn change(&self, filter: LogFilter, lifetime: Option<Duration>, by: &str) {
        self.update(by, |state| {
            state.current = filter.over(&state.configured);
            state.until = lifetime.map(|lifetime| Instant::now() + lifetime);
        });
    }

    /// Puts the filter of the settings in force again.
    pub fn reset(&self, by: &str) {
        self.update(by, |state| {
            state.current = state.configured.clone();
            state.until = None;
        });
    }

    /// Replaces the filter of the settings, and puts the new one in force.
    pub fn configure(&self, configured: LogFilter, by: &str) {
        self.update(by, |state| {
            *state = FilterState {
                current: configured.clone(),
                configured,
                until: None,
            };
        });
    }

    /// Ends filters whose time is over. Never returns.
    pub async fn run(&self) -> Infallible {
        loop {
            let until = self.0.state.lock().until;
            // A change that came before this is not lost: the notification is stored.
            let changed = self.0.changed.notified();
            let Some(until) = until else {
                changed.await;
                continue;
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(until) => self.end_temporary(),
            }
        }
    }

    fn end_temporary(&self) {
        self.update_if("its time is over", |state| {
            // Another change may have come just now.
            let is_over = state.until.is_some_and(|at| at <= Instant::now());
            if is_over {
                state.current = state.configured.clone();
                state.until = None;
            }
            is_over
        });
    }

    fn update(&self, by: &str, change: impl FnOnce(&mut FilterState)) {
        self.update_if(by, |state| {
            change(state);
            true
        });
    }

    /// `change` tells whether it has changed anything.
    fn update_if(&self, by: &str, change: impl FnOnce(&mut FilterState) -> bool) {
        let mut state = self.0.state.lock();
        let old = state.current.to_string();
        if !change(&mut state) {
            return;
        }
        (self.0.apply)(&state.current);
        let remaining = state.until.map(|at| at - Instant::now());
        let seconds = remaining.map(|remaining| remaining.as_secs_f64().ceil());
        // Under the lock, so that the lines are in the order of the changes.
        info!(by, old, new = %state.current, seconds, "the log filter has changed");
        drop(state);
        self.0.changed.notify_one();
    }
}
