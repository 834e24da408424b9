//! Flags of `serving`.

use std::path::PathBuf;

use clap::Args;

use super::defaults::SERVING_ADMIN;
use super::words::TimeSpan;

/// Flags of `serving`.
#[derive(Clone, Debug, Args)]
pub struct ServingFlags {
    /// The rules to put in force for a while: `passthrough`, `shadow`, `rules`, or rules as YAML or JSON (docs/CONFIGURATION.md#serving-rules).
    ///
    /// Without it, the rules in force are printed.
    #[arg(value_name = "RULES", requires = "for", conflicts_with = "reset")]
    pub rules: Option<String>,
    /// How long the rules are in force, at most 24h. Then those of the settings are in force again.
    #[arg(long = "for", id = "for", value_name = "TIME", requires = "rules")]
    pub for_time: Option<TimeSpan>,
    /// Put the rules of the settings in force again.
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "BOOL",
        default_missing_value = "true", default_value_t = false, hide_default_value = true)]
    pub reset: bool,
    /// The admin ports of the gateways.
    #[arg(long, value_name = "URLS", value_delimiter = ',', default_value = SERVING_ADMIN)]
    pub admin: Vec<String>,
    /// File with the token of a user who may update `/kube-fanout/serving`, for admin ports of other machines.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}
