//! Applies a changed configuration file to the running gateway: the settings that may change; the others are named.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::operators;
use super::registry::Registry;
use crate::admission::Admission;
use crate::blocking::spawn_blocking;
use crate::config::{
    ConfigurationFile, LiveSetting, ProcessSettings, Reconfiguration, ServeSettings,
};
use crate::log_filter::LogControl;
use crate::reload::{FileFault, FileSource};
use crate::shutdown::Drain;

/// The configuration file, and the signal on which it is read again.
pub struct Configuration {
    /// The file.
    pub file: ConfigurationFile,
    /// Notified when the file is to be read again although it has not changed.
    pub requests: Arc<Notify>,
}

/// The parts of the gateway whose settings may change.
pub(super) struct LiveParts {
    registry: Arc<Registry>,
    /// The operators' limits, some of which follow those of the clients.
    operators: Option<Admission>,
    drain: Drain,
    /// The log's filter, if the process has one that can change.
    pub(super) log: Option<LogControl>,
}

/// Applies the file to the live parts whenever it changes.
pub(super) struct ConfigurationSource {
    path: PathBuf,
    file: Arc<Mutex<ConfigurationFile>>,
    requests: Arc<Notify>,
    parts: LiveParts,
}

impl ConfigurationSource {
    pub(super) fn new(configuration: Configuration, parts: LiveParts) -> Self {
        let Configuration { file, requests } = configuration;
        Self {
            path: file.path().to_owned(),
            file: Arc::new(Mutex::new(file)),
            requests,
            parts,
        }
    }

    fn apply(&self, new: &Reconfiguration) {
        let mut file = self.file.lock();
        // All lines come before the first change: the level of the log may be one of them.
        let (late, live): (Vec<_>, Vec<_>) = new
            .live
            .iter()
            .partition(|change| self.parts.is_too_late(change.setting));
        for change in live {
            let (setting, old, new_value) = (change.setting.key(), &change.old, &change.new);
            info!(setting, old, new = new_value, "a setting has changed");
        }
        if !late.is_empty() {
            let settings = late.iter().map(|change| change.setting.key());
            let settings = settings.collect::<Vec<_>>().join(", ");
            warn!(
                settings,
                "these settings no longer change the drain, which has begun"
            );
        }
        if !new.restart.is_empty() {
            let settings = new.restart.join(", ");
            warn!(
                settings,
                "these settings of the configuration file need a restart; their old values stay in force"
            );
        }
        for change in &new.live {
            self.parts.apply(change.setting, &new.process, &new.serve);
            file.applied(change);
        }
    }
}

impl LiveParts {
    pub(super) fn new(
        registry: &Arc<Registry>,
        operators: Option<Admission>,
        drain: &Drain,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            operators,
            drain: drain.clone(),
            log: None,
        }
    }

    /// Whether the setting has no effect any more.
    fn is_too_late(&self, setting: LiveSetting) -> bool {
        matches!(setting, LiveSetting::DrainDelay | LiveSetting::DrainTimeout)
            && self.drain.is_begun()
    }

    fn apply(&self, setting: LiveSetting, process: &ProcessSettings, serve: &ServeSettings) {
        let limits = self.registry.live_limits();
        match setting {
            LiveSetting::LogFilter | LiveSetting::LogLevel => {
                let filter = process.filter();
                // Both may have changed.
                if let Some(log) = &self.log
                    && log.state().configured != filter
                {
                    log.configure(filter, "the configuration file");
                }
            }
            LiveSetting::DrainDelay => self.drain.set_delay(process.drain_delay),
            LiveSetting::DrainTimeout => self.drain.set_timeout(process.drain_timeout),
            LiveSetting::StalenessBound => {
                let bound = serve.staleness_bound;
                limits.update(|values| values.staleness_bound = bound);
            }
            LiveSetting::DriftInterval => {
                let interval = serve.drift_interval;
                limits.update(|values| values.drift_interval = interval);
            }
            LiveSetting::IdleResourceTimeout => {
                let timeout = serve.idle_resource_timeout;
                limits.update(|values| values.idle_timeout = timeout);
            }
            LiveSetting::MemoryMax => {
                let max = serve.admission.memory_max;
                limits.update(|values| values.memory_max = max);
                self.change_admission(serve);
            }
            LiveSetting::Serving => {
                let rules = serve.serving.clone();
                self.registry
                    .serving()
                    .configure(rules, "the configuration file");
            }
            LiveSetting::RelayPercent => {
                let part = serve.relay_percent.part();
                limits.update(|values| values.relay_part = part);
            }
            LiveSetting::ListsMax | LiveSetting::WatchesMax => self.change_admission(serve),
        }
    }

    fn change_admission(&self, serve: &ServeSettings) {
        self.registry.admission().change_limits(serve.admission);
        if let Some(admission) = &self.operators {
            admission.change_limits(operators::limits(serve.admission));
        }
    }
}

impl FileSource for ConfigurationSource {
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    async fn reload(&self) -> Result<(), FileFault> {
        let file = Arc::clone(&self.file);
        let new = spawn_blocking(move || file.lock().read()).await??;
        self.apply(&new);
        Ok(())
    }

    async fn requested(&self) {
        self.requests.notified().await;
    }
}
