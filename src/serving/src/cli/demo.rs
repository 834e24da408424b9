//! Flags of `demo`.

use clap::Args;

use super::defaults::{CHURN, WATCHERS, objects};
use super::words::{ObjectCount, TimeSpan};

/// Flags of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoFlags {
    /// Number of watchers behind the gateway.
    #[arg(long, value_name = "COUNT", default_value_t = WATCHERS)]
    pub watchers: usize,
    /// Writes per second in the embedded API server.
    #[arg(long, value_name = "RATE", default_value_t = CHURN)]
    pub churn: u32,
    /// Initial objects of the embedded API server, by plural name.
    #[arg(long, value_name = "RESOURCE=COUNT", value_delimiter = ',', default_values_t = objects())]
    pub objects: Vec<ObjectCount>,
    /// End after this time; without it, Ctrl-C ends the demo.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<TimeSpan>,
}
