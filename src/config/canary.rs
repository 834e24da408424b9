//! The settings of the canary.

use std::time::Duration;

use super::settings_error::{SettingsError, in_range};
use crate::cli::{CANARY_INTERVAL, ServeFlags, TimeSpan};
use crate::resource::names::is_dns_label;

/// More often would be load; less often, and the cache of Leases is given up between two rounds.
const INTERVAL_RANGE: (TimeSpan, TimeSpan) = (
    TimeSpan(Duration::from_secs(1)),
    TimeSpan(Duration::from_secs(60)),
);

/// Where and how often the gateway writes a Lease of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanarySettings {
    /// The namespace.
    pub namespace: String,
    /// The time between two writes.
    pub interval: Duration,
}

impl CanarySettings {
    pub(super) fn resolve(flags: &ServeFlags) -> Result<Option<Self>, SettingsError> {
        let (min, max) = INTERVAL_RANGE;
        let interval = in_range("canary-interval", flags.canary_interval, min, max)?;
        match &flags.canary_namespace {
            None if flags.canary_interval.0 != CANARY_INTERVAL.0 => Err(SettingsError::Needs {
                flag: "canary-interval",
                needed: "--canary-namespace",
            }),
            None => Ok(None),
            Some(namespace) if !is_dns_label(namespace) => Err(SettingsError::Value {
                flag: "canary-namespace",
                given: namespace.clone(),
                reason: "not the name of a namespace".to_owned(),
            }),
            Some(namespace) => Ok(Some(Self {
                namespace: namespace.clone(),
                interval: interval.0,
            })),
        }
    }
}
