//! Settings that change while the gateway runs, and how a changed file is read again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{ProcessSettings, ProcessTask, ServeSettings, Settings, layers, print};
use crate::cli::{Command, Flags};

/// A setting that is applied while the gateway runs. All others need a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiveSetting {
    /// `drainDelay`
    DrainDelay,
    /// `drainTimeout`
    DrainTimeout,
    /// `driftInterval`
    DriftInterval,
    /// `idleResourceTimeout`
    IdleResourceTimeout,
    /// `listsMax`
    ListsMax,
    /// `logFilter`
    LogFilter,
    /// `logLevel`
    LogLevel,
    /// `memoryMax`
    MemoryMax,
    /// `relayPercent`
    RelayPercent,
    /// `serving`
    Serving,
    /// `stalenessBound`
    StalenessBound,
    /// `watchesMax`
    WatchesMax,
}

impl LiveSetting {
    /// All of them, by key.
    pub const ALL: [Self; 12] = [
        Self::DrainDelay,
        Self::DrainTimeout,
        Self::DriftInterval,
        Self::IdleResourceTimeout,
        Self::ListsMax,
        Self::LogFilter,
        Self::LogLevel,
        Self::MemoryMax,
        Self::RelayPercent,
        Self::Serving,
        Self::StalenessBound,
        Self::WatchesMax,
    ];

    /// Its key in the file.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::DrainDelay => "drainDelay",
            Self::DrainTimeout => "drainTimeout",
            Self::DriftInterval => "driftInterval",
            Self::IdleResourceTimeout => "idleResourceTimeout",
            Self::ListsMax => "listsMax",
            Self::LogFilter => "logFilter",
            Self::LogLevel => "logLevel",
            Self::MemoryMax => "memoryMax",
            Self::RelayPercent => "relayPercent",
            Self::Serving => "serving",
            Self::StalenessBound => "stalenessBound",
            Self::WatchesMax => "watchesMax",
        }
    }
}

/// Settings as a file has them: each key with its value. No value is a secret, because the settings have only paths of those.
type SettingValues = BTreeMap<String, String>;

/// The configuration file of a running gateway, and the settings that are in force.
pub struct ConfigurationFile {
    path: PathBuf,
    arguments: Vec<OsString>,
    variable: fn(&str) -> Option<OsString>,
    in_force: SettingValues,
}

/// A live setting whose value differs from the one in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveChange {
    /// The setting.
    pub setting: LiveSetting,
    /// The value in force; empty if it has none.
    pub old: String,
    /// The new value; empty if it has none any more.
    pub new: String,
}

/// What a file changes.
#[derive(Debug)]
pub struct Reconfiguration {
    /// The settings of the process, valid as a whole.
    pub process: ProcessSettings,
    /// The settings of the gateway, valid as a whole.
    pub serve: ServeSettings,
    /// The live settings that differ.
    pub live: Vec<LiveChange>,
    /// Keys of the other settings that differ.
    pub restart: Vec<String>,
}

/// A changed configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfiguration(String);

impl ConfigurationFile {
    /// The file that `flags` name, if it can be read again: `None` without one, or if it is not a regular file, such as a pipe. `arguments`
    /// and `variable` are those from which `flags` were [read](super::read).
    #[must_use]
    pub fn new(
        flags: &Flags,
        arguments: Vec<OsString>,
        variable: fn(&str) -> Option<OsString>,
    ) -> Option<Self> {
        let Command::Serve(serve) = &flags.command else {
            return None;
        };
        let path = serve.config.clone().filter(|path| path.is_file())?;
        Some(Self {
            path,
            arguments,
            variable,
            in_force: values(flags)?,
        })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all layers again; blocks. What differs is compared with the settings in force.
    ///
    /// # Errors
    /// If the file cannot be read, or the settings are invalid. The message names the field.
    pub fn read(&self) -> Result<Reconfiguration, InvalidConfiguration> {
        let flags = layers::read(self.arguments.clone(), self.variable);
        let flags =
            flags.map_err(|error| InvalidConfiguration(error.one_line().unwrap_or_default()))?;
        let new = values(&flags);
        let settings =
            Settings::resolve(flags).map_err(|error| InvalidConfiguration(error.to_string()))?;
        let (Some(new), ProcessTask::Serve(serve)) = (new, settings.task) else {
            return Err(InvalidConfiguration("not the settings of serve".to_owned()));
        };
        let (live, restart) = self.differences(&new);
        Ok(Reconfiguration {
            process: settings.process,
            serve,
            live,
            restart,
        })
    }

    fn differences(&self, new: &SettingValues) -> (Vec<LiveChange>, Vec<String>) {
        let value = |values: &SettingValues, key| values.get(key).cloned().unwrap_or_default();
        let live = LiveSetting::ALL.into_iter().map(|setting| LiveChange {
            setting,
            old: value(&self.in_force, setting.key()),
            new: value(new, setting.key()),
        });
        let live = live.filter(|change| change.old != change.new).collect();
        let mut keys: Vec<&String> = self.in_force.keys().chain(new.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let is_live = |key: &str| LiveSetting::ALL.iter().any(|setting| setting.key() == key);
        let differs = |key: &&String| self.in_force.get(*key) != new.get(*key);
        let restart = keys.into_iter().filter(|key| !is_live(key)).filter(differs);
        (live, restart.cloned().collect())
    }

    /// Records that a change is in force.
    pub fn applied(&mut self, change: &LiveChange) {
        let key = change.setting.key().to_owned();
        if change.new.is_empty() {
            self.in_force.remove(&key);
        } else {
            self.in_force.insert(key, change.new.clone());
        }
    }
}

/// The values of the settings of `serve`; `None` for another command, and if a path is not UTF-8, which a file could not say.
fn values(flags: &Flags) -> Option<SettingValues> {
    let Command::Serve(serve) = &flags.command else {
        return None;
    };
    let values = print::values(&flags.process, serve).ok()?.into_iter();
    let values = values.map(|(key, value)| match value.as_str() {
        Some(text) => (key, text.to_owned()),
        None => (key, value.to_string()),
    });
    Some(values.collect())
}

#[cfg(test)]
mod tests;
