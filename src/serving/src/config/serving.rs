//! Validates the flags of `serving`.

use std::path::PathBuf;
use std::time::Duration;

use super::serving_rules::{InvalidRules, ServingRules};
use super::settings_error::{SettingsError, words};
use crate::cli::ServingFlags;

/// What `serving` asks the admin ports of gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingRequest {
    /// The admin ports, at least one.
    pub admin: Vec<http::Uri>,
    /// What is to change.
    pub change: ServingChange,
    /// File with the token that is sent.
    pub token_file: Option<PathBuf>,
}

/// What `serving` changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServingChange {
    /// Nothing: the rules are shown.
    Show,
    /// These rules are in force for this time.
    Put(ServingRules, Duration),
    /// The rules of the settings are in force again.
    Reset,
}

impl ServingRequest {
    pub(super) fn resolve(flags: &ServingFlags) -> Result<Self, SettingsError> {
        let mut admin = Vec::new();
        for text in words(&flags.admin) {
            let url: Option<http::Uri> = text.parse().ok();
            let url = url.filter(|url| url.scheme_str() == Some("http") && url.host().is_some());
            admin.push(url.ok_or_else(|| SettingsError::Value {
                flag: "admin",
                given: text.to_owned(),
                reason: "write http://host:port".to_owned(),
            })?);
        }
        if admin.is_empty() {
            return Err(SettingsError::Value {
                flag: "admin",
                given: String::new(),
                reason: "write http://host:port".to_owned(),
            });
        }
        let change = match (&flags.rules, flags.for_time) {
            (Some(rules), Some(time)) => ServingChange::Put(parsed(rules)?, time.0),
            _ if flags.reset => ServingChange::Reset,
            _ => ServingChange::Show,
        };
        Ok(Self {
            admin,
            change,
            token_file: flags.token_file.clone(),
        })
    }
}

/// The rules of a flag.
pub(super) fn parsed(text: &str) -> Result<ServingRules, SettingsError> {
    text.parse()
        .map_err(|error: InvalidRules| SettingsError::Value {
            flag: "serving",
            given: text.to_owned(),
            reason: error.to_string(),
        })
}
