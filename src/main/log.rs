//! Sets up the log on standard error: its level, its format, and the queue that writes it.

#[path = "log/queue.rs"]
mod queue;

#[cfg(feature = "otlp")]
use kube_fanout::config::ServeSettings;
use kube_fanout::config::{LogFormat, LogLevel, ProcessSettings, ProcessTask};
use kube_fanout::log_filter::{LogControl, LogFilter};
use kube_fanout::telemetry::{SPAN_TARGET, SpanExport};
use queue::{LogEnd, LogQueue};
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// The module that logs changes of the filter.
const FILTER_MODULE: &str = "kube_fanout::log_filter";

/// What the rest of the process needs of the log.
pub(crate) struct LogHandles {
    /// Dropping it writes all remaining lines and stops the log.
    pub(crate) end: LogEnd,
    /// Changes the filter.
    pub(crate) control: LogControl,
    /// Sends spans to the collector, if there is one.
    pub(crate) spans: Option<SpanExport>,
}

/// Starts the log, and the recording of spans. The demo and `check` write to the same terminal, so their log shows only errors unless
/// a more verbose level or a filter was chosen.
///
/// # Errors
/// If the thread that writes the log cannot be started, or the collector's address cannot be used.
pub(crate) fn start(process: &ProcessSettings, task: &ProcessTask) -> anyhow::Result<LogHandles> {
    let filter = match (process, task) {
        (
            ProcessSettings {
                log_level: LogLevel::Info | LogLevel::Warn,
                log_filter: None,
                ..
            },
            ProcessTask::Demo(_) | ProcessTask::Check(_),
        ) => LogFilter::of_level(LevelFilter::ERROR),
        _ => process.filter(),
    };
    let (queue, end) = LogQueue::start(std::io::stderr())?;
    let (targets, handle) = reload::Layer::new(targets(&filter));
    let lines = fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(queue);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match process.log_format {
        LogFormat::Text => lines.with_filter(targets).boxed(),
        // Collectors look for the message at the top.
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_filter(targets)
            .boxed(),
    };
    let (span_layer, spans) = spans(task)?;
    let layers: Vec<_> = [Some(lines), span_layer].into_iter().flatten().collect();
    tracing_subscriber::registry().with(layers).init();
    let control = LogControl::new(filter, move |filter| {
        // Fails only if the subscriber is gone, and then nothing is logged any more.
        let _ = handle.reload(self::targets(filter));
    });
    Ok(LogHandles {
        end,
        control,
        spans,
    })
}

type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

#[cfg(feature = "otlp")]
fn spans(task: &ProcessTask) -> anyhow::Result<(Option<SpanLayer>, Option<SpanExport>)> {
    let ProcessTask::Serve(ServeSettings {
        traces: Some(traces),
        ..
    }) = task
    else {
        return Ok((None, None));
    };
    let ratio = traces.ratio.as_f64();
    let (layer, export) = kube_fanout::telemetry::spans::<Registry>(&traces.endpoint, ratio)?;
    Ok((Some(layer.boxed()), Some(export.into())))
}

#[cfg(not(feature = "otlp"))]
fn spans(_: &ProcessTask) -> anyhow::Result<(Option<SpanLayer>, Option<SpanExport>)> {
    Ok((None, None))
}

/// The filter as the subscriber needs it. Whatever the filter is, its changes are logged, and spans are not.
fn targets(filter: &LogFilter) -> Targets {
    // Nobody can hide who changed the filter.
    let modules = filter.modules().iter();
    let modules = modules.filter(|(module, _)| !module.starts_with(FILTER_MODULE));
    Targets::new()
        .with_default(filter.rest())
        .with_targets(modules.map(|(module, level)| (module.as_str(), *level)))
        .with_target(FILTER_MODULE, LevelFilter::INFO)
        .with_target(SPAN_TARGET, LevelFilter::OFF)
}
