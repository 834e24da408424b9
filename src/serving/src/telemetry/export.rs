//! Sends spans to a collector, by OTLP over HTTP in protobuf.
//!
//! A span that has ended enters a bounded queue, or is dropped and counted: no request waits for the collector. One task sends them in
//! batches. The crates' own batch processor has a thread of its own, and tells nobody how many spans it drops.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    SdkTracer, SdkTracerProvider, Span as SdkSpan, SpanData, SpanExporter as _, SpanProcessor,
};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};
use tracing::level_filters::LevelFilter;
use tracing::{Span, info, warn};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use super::sampler::sampler;
use super::target::SPAN_TARGET;
use crate::log_limit::FaultLog;
use crate::metrics::{SpanOutcome, TraceMetrics};

/// Spans that may wait: a few megabytes.
pub(super) const QUEUE_LEN: usize = 4_096;
/// The usual size of a batch of other exporters.
const BATCH_MAX: usize = 512;
/// How long a batch waits to become larger.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long the collector may take for a batch; others drop it then, too.
const EXPORT_WAIT_MAX: Duration = Duration::from_secs(10);
/// A trace's name in headers. `tracestate` is passed on as it is: it may be long, and nothing here reads it.
const TRACEPARENT: &str = "traceparent";

/// The collector cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("--otlp-endpoint: {0}")]
pub struct InvalidCollector(String);

/// The queue's end at the request.
#[derive(Debug)]
struct SpanQueue {
    sender: Sender<SpanData>,
    dropped: Arc<Mutex<u64>>,
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut SdkSpan, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.sender.try_send(span).is_err() {
            *self.dropped.lock() += 1;
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The queue's end at the collector.
pub struct OtlpExporter {
    exporter: SpanExporter,
    queue: tokio::sync::Mutex<Receiver<SpanData>>,
    dropped: Arc<Mutex<u64>>,
    /// Ends the spans' queue when it is dropped.
    _provider: SdkTracerProvider,
}

/// The layer that records spans, a sample of `ratio` of them, and what sends them to the collector at `endpoint`. Spans that belong to a
/// client's trace follow the client's decision, up to a bound.
///
/// # Errors
/// If the address cannot be used.
pub fn spans<S>(
    endpoint: &Uri,
    ratio: f64,
) -> Result<(impl Layer<S> + Send + Sync + use<S>, OtlpExporter), InvalidCollector>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let (sender, receiver) = channel(QUEUE_LEN);
    let dropped = Arc::<Mutex<u64>>::default();
    let queue = SpanQueue {
        sender,
        dropped: Arc::clone(&dropped),
    };
    let resource = Resource::builder_empty()
        .with_attribute(KeyValue::new("service.name", crate::build_info::PROGRAM))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let url = format!("{}/v1/traces", endpoint.to_string().trim_end_matches('/'));
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(HyperClient::with_default_connector(EXPORT_WAIT_MAX, None))
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .with_timeout(EXPORT_WAIT_MAX)
        .build();
    let mut exporter = exporter.map_err(|error| InvalidCollector(error.to_string()))?;
    exporter.set_resource(&resource);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(queue)
        .with_sampler(sampler(ratio))
        .with_resource(resource)
        .build();
    let tracer: SdkTracer = provider.tracer(crate::build_info::PROGRAM);
    let layer: OpenTelemetryLayer<S, SdkTracer> = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false);
    let only_spans = Targets::new().with_target(SPAN_TARGET, LevelFilter::TRACE);
    let export = OtlpExporter {
        exporter,
        queue: tokio::sync::Mutex::new(receiver),
        dropped,
        _provider: provider,
    };
    Ok((layer.with_filter(only_spans), export))
}

impl OtlpExporter {
    /// Sends spans until the task is dropped.
    pub(super) async fn run(&self, metrics: &TraceMetrics) {
        let mut queue = self.queue.lock().await;
        let mut fault_log = FaultLog::default();
        loop {
            let mut batch = Vec::new();
            if queue.recv_many(&mut batch, BATCH_MAX).await == 0 {
                // No span can come any more.
                return;
            }
            if batch.len() < BATCH_MAX {
                sleep(BATCH_DELAY).await;
                while batch.len() < BATCH_MAX
                    && let Ok(span) = queue.try_recv()
                {
                    batch.push(span);
                }
            }
            match self.send(batch, metrics).await {
                Ok(()) if fault_log.end() => info!("spans are sent to the collector again"),
                Ok(()) => {}
                Err(reason) if fault_log.is_due(reason.clone()) => {
                    warn!(reason, "cannot send spans to the collector; they are lost");
                }
                Err(_) => {}
            }
        }
    }

    /// Sends what waits, as long as the time allows. The task of `run` must have ended.
    pub(super) async fn finish(&self, metrics: &TraceMetrics, time: Duration) {
        let all = async {
            let mut queue = self.queue.lock().await;
            // Bounded by the length of the queue.
            for _ in 0..=QUEUE_LEN / BATCH_MAX {
                let mut batch = Vec::new();
                while batch.len() < BATCH_MAX
                    && let Ok(span) = queue.try_recv()
                {
                    batch.push(span);
                }
                if batch.is_empty() || self.send(batch, metrics).await.is_err() {
                    return;
                }
            }
        };
        // What is not sent by then is lost with the process.
        let _ = timeout(time, all).await;
    }

    async fn send(&self, batch: Vec<SpanData>, metrics: &TraceMetrics) -> Result<(), String> {
        let count = batch.len() as u64;
        metrics.add(
            SpanOutcome::Dropped,
            std::mem::take(&mut *self.dropped.lock()),
        );
        let sent = timeout(EXPORT_WAIT_MAX, self.exporter.export(batch)).await;
        let sent = match sent {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err("the collector did not answer in time".to_owned()),
        };
        let outcome = match &sent {
            Ok(()) => SpanOutcome::Exported,
            Err(_) => SpanOutcome::Failed,
        };
        metrics.add(outcome, count);
        sent
    }
}

/// Only `traceparent`, of a request.
struct ParentHeader<'a>(&'a HeaderMap);

impl Extractor for ParentHeader<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = (key == TRACEPARENT).then(|| self.0.get(TRACEPARENT))??;
        value.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

/// Only `traceparent`, of a request to upstream.
struct ChildHeader<'a>(&'a mut HeaderMap);

impl Injector for ChildHeader<'_> {
    fn set(&mut self, key: &str, value: String) {
        if key == TRACEPARENT
            && let Ok(value) = value.parse()
        {
            self.0.insert(TRACEPARENT, value);
        }
    }
}

pub(super) fn adopt(span: &Span, headers: &HeaderMap) {
    if headers.contains_key(TRACEPARENT) {
        let parent = TraceContextPropagator::new().extract(&ParentHeader(headers));
        // Fails only if nobody listens to spans.
        let _ = span.set_parent(parent);
    }
}

pub(super) fn propagate(span: &Span, headers: &mut HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let context = span.context();
    if context.span().span_context().is_sampled() {
        TraceContextPropagator::new().inject_context(&context, &mut ChildHeader(headers));
    }
}
