//! Flags of `demo`.

use clap::Args;

use super::{CHURN, DurationWord, ObjectCount, WATCHERS, objects};

/// Flags of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoFlags {
    /// Watchers behind the gateway.
    #[arg(long, value_name = "COUNT", default_value_t = WATCHERS)]
    pub watchers: usize,
    /// Writes a second in the embedded API server.
    #[arg(long, value_name = "RATE", default_value_t = CHURN)]
    pub churn: u32,
    /// Objects in the embedded API server at first, by plural name.
    #[arg(long, value_name = "RESOURCE=COUNT", value_delimiter = ',', default_values_t = objects())]
    pub objects: Vec<ObjectCount>,
    /// End by itself after this time; without it, Ctrl-C ends it.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<DurationWord>,
}
