//! Settings of `assess`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::patterns::{CacheLists, ResourcePattern};
use super::serve::patterns;
use super::settings_error::{SettingsError, in_range, time_in};
use crate::cli::AssessFlags;

/// More replicas than a cluster has API servers to spare.
const GATEWAYS_MAX: u32 = 1_000;
/// JSON and protobuf.
const ENCODINGS_MAX: u32 = 2;
/// Counters of a second say nothing; those of a month average everything away.
const WINDOW_SECONDS: RangeInclusive<u64> = 1..=2_678_400;

/// Settings of `assess`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssessSettings {
    /// Scrapes, one for each API server.
    pub before: Vec<PathBuf>,
    /// Later scrapes of the same servers.
    pub after: Vec<PathBuf>,
    /// Time between the scrapes, if it was given.
    pub window: Option<Duration>,
    /// Audit logs.
    pub audit: Vec<PathBuf>,
    /// Number of gateways.
    pub gateways: u32,
    /// Encodings of a resource of Kubernetes itself.
    pub encodings: u32,
    /// The resources that gateways cache.
    pub cached: CacheLists,
    /// Where the JSON document goes.
    pub json: Option<PathBuf>,
    /// Where the page goes.
    pub html: Option<PathBuf>,
}

impl AssessSettings {
    pub(super) fn resolve(flags: AssessFlags) -> Result<Self, SettingsError> {
        let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        if is_stdout(&flags.json) && is_stdout(&flags.html) {
            return Err(SettingsError::Value {
                flag: "html",
                given: "-".to_owned(),
                reason: "--json is on standard output already".to_owned(),
            });
        }
        let window = flags.window;
        Ok(Self {
            window: window
                .map(|window| time_in("window", window, WINDOW_SECONDS))
                .transpose()?,
            gateways: in_range("gateways", flags.gateways, 1, GATEWAYS_MAX)?,
            encodings: in_range("encodings", flags.encodings, 1, ENCODINGS_MAX)?,
            cached: CacheLists {
                allowed: vec![ResourcePattern::ALL],
                denied: patterns("passthrough-resources", &flags.passthrough_resources)?,
            },
            before: flags.before,
            after: flags.after,
            audit: flags.audit,
            json: flags.json,
            html: flags.html,
        })
    }
}
