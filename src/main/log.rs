//! Sets up the log on standard error: its level, its format, and the queue that writes it.

#[path = "log/queue.rs"]
mod queue;

#[cfg(feature = "otlp")]
use kube_fanout::config::ServeSettings;
use kube_fanout::config::{
    InjectSettings, InjectTask, LogFormat, LogLevel, ProcessSettings, ProcessTask,
};
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
const FILTER_MODULE: &str = "kube_fanout_serving::log_filter";

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
            ProcessTask::Demo(_)
            | ProcessTask::Check(_)
            | ProcessTask::Serving(_)
            | ProcessTask::Inject(InjectSettings {
                task: InjectTask::Status | InjectTask::Percent(_) | InjectTask::Off | InjectTask::On,
                ..
            }),
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
    let modules = filter.modules().iter();
    let targets = modules.flat_map(|(module, level)| {
        let targets = targets_of(module).into_iter();
        targets.map(|target| (target, *level))
    });
    // Nobody can hide who changed the filter.
    let targets = targets.filter(|(target, _)| !target.starts_with(FILTER_MODULE));
    Targets::new()
        .with_default(filter.rest())
        .with_targets(targets)
        .with_target(FILTER_MODULE, LevelFilter::INFO)
        .with_target(SPAN_TARGET, LevelFilter::OFF)
}

/// A filter names all modules as of one crate: `kube_fanout::upstream` is the crate `kube_fanout_upstream`, `kube_fanout::serve` a module of
/// `kube_fanout_serving`.
fn targets_of(module: &str) -> Vec<String> {
    let mut targets = vec![module.to_owned()];
    if let Some(room) = module.strip_prefix("kube_fanout::") {
        targets.push(format!("kube_fanout_{room}"));
        targets.push(format!("kube_fanout_serving::{room}"));
    }
    targets
}

#[test]
fn modules_that_are_crates_have_their_level() {
    use tracing::Level;

    let filter = "error,kube_fanout::upstream=debug,kube_fanout::upstream::client=info,kube_fanout::serve=info";
    let targets = targets(&filter.parse().unwrap());
    for (target, level, is_logged) in [
        ("kube_fanout_upstream::driver", Level::DEBUG, true),
        ("kube_fanout_upstream::client::renewal", Level::DEBUG, false),
        ("kube_fanout_upstream::client::renewal", Level::INFO, true),
        ("kube_fanout_informer", Level::WARN, false),
        ("kube_fanout_serving::serve::list", Level::INFO, true),
        ("kube_fanout_serving::watch", Level::INFO, false),
    ] {
        assert_eq!(targets.would_enable(target, &level), is_logged, "{target}");
    }
}
