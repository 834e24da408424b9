//! What the process has and the gateway uses: the log's filter, the spans' exporter, and the configuration file.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::reconfigure::{Configuration, ConfigurationSource, LiveParts};
use super::reloads::Reloads;
use crate::log_filter::LogControl;
use crate::metrics::{FileKind, Metrics, TaskKind};
use crate::task::restart_on_end;
use crate::telemetry::SpanExport;

/// How long the shutdown waits until the last spans are sent. A prompt end matters more than they do.
const SPAN_WRITE_TIME: Duration = Duration::from_secs(2);

/// What belongs to the process; by default nothing.
#[derive(Default)]
pub struct ProcessControls {
    /// The log filter that the admin port may change.
    pub log: Option<LogControl>,
    /// What sends the spans that the process records.
    pub spans: Option<SpanExport>,
    /// The configuration file that is applied when it changes.
    pub configuration: Option<Configuration>,
}

/// The controls that are needed while the gateway runs.
pub(super) struct RunningControls {
    log: Option<LogControl>,
    spans: Option<Arc<SpanExport>>,
}

impl ProcessControls {
    /// Starts the task of each control.
    pub(super) fn start(
        self,
        tasks: &mut JoinSet<()>,
        reloads: &Reloads,
        metrics: &Metrics,
        mut parts: LiveParts,
    ) -> RunningControls {
        let Self {
            log,
            spans,
            configuration,
        } = self;
        if let Some(configuration) = configuration {
            parts.log.clone_from(&log);
            let source = ConfigurationSource::new(configuration, parts);
            reloads.follow(tasks, FileKind::Configuration, source, None);
        }
        if let Some(log) = log.clone() {
            let ends = metrics.task_ends();
            tasks.spawn(async move {
                restart_on_end(TaskKind::LogFilter, &ends, || log.run()).await;
            });
        }
        let spans = spans.map(Arc::new);
        if let Some(spans) = spans.clone() {
            let (ends, traces) = (metrics.task_ends(), metrics.traces());
            tasks.spawn(async move {
                restart_on_end(TaskKind::SpanExport, &ends, || spans.run(&traces)).await;
            });
        }
        RunningControls { log, spans }
    }
}

impl RunningControls {
    pub(super) fn log(&self) -> Option<LogControl> {
        self.log.clone()
    }

    /// Sends the last spans. The tasks must have ended.
    pub(super) async fn finish(&self, metrics: &Metrics) {
        if let Some(spans) = &self.spans {
            spans.finish(&metrics.traces(), SPAN_WRITE_TIME).await;
        }
    }
}
