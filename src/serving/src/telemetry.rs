//! Spans: what a request caused, and how long each step took (decision 56).
//!
//! The gateway's modules open spans with the target [`SPAN_TARGET`]. The log never shows them. With the cargo feature `otlp` and
//! `--otlp-endpoint` they are sent to a collector (`export`); otherwise nobody listens, and opening one costs a comparison.
//!
//! | span | of |
//! |---|---|
//! | `request` | a request of a client, until the head of the response |
//! | `forward` | the part of it that upstream answers |
//! | `review` | a question to upstream about a caller |
//! | `list`, `watch` | the gateway's own reads: a page of a list; a watch, until it begins |

#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod sampler;
mod target;

use std::convert::Infallible;
use std::time::Duration;

use http::HeaderMap;
use tracing::Span;

use crate::metrics::TraceMetrics;
#[cfg(feature = "otlp")]
pub use export::{InvalidCollector, spans};
pub use target::SPAN_TARGET;

/// Sends the spans that the process records. Only a build with the feature `otlp` can have one.
pub struct SpanExport {
    #[cfg(feature = "otlp")]
    exporter: export::OtlpExporter,
}

#[cfg(feature = "otlp")]
impl From<export::OtlpExporter> for SpanExport {
    fn from(exporter: export::OtlpExporter) -> Self {
        Self { exporter }
    }
}

impl SpanExport {
    /// Sends spans. Never returns.
    pub async fn run(&self, metrics: &TraceMetrics) -> Infallible {
        #[cfg(feature = "otlp")]
        self.exporter.run(metrics).await;
        let _ = metrics;
        std::future::pending().await
    }

    /// Sends what waits, as long as the time allows. The task of [`run`](Self::run) must have ended.
    pub async fn finish(&self, metrics: &TraceMetrics, time: Duration) {
        #[cfg(feature = "otlp")]
        self.exporter.finish(metrics, time).await;
        let _ = (metrics, time);
    }
}

/// No span has a longer attribute: clients choose the paths that they come from.
const ATTRIBUTE_LEN_MAX: usize = 128;

/// The beginning of a text, as long as an attribute may be.
pub(crate) fn attribute(mut text: String) -> String {
    if text.len() > ATTRIBUTE_LEN_MAX {
        let end = (0..=ATTRIBUTE_LEN_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// The span of a client's request. It continues the client's trace, if the client has one.
pub(crate) fn request_span(
    verb: &'static str,
    resource: impl FnOnce() -> String,
    headers: &HeaderMap,
) -> Span {
    let span = tracing::trace_span!(
        target: SPAN_TARGET,
        "request",
        otel.kind = "server",
        verb,
        resource = tracing::field::Empty,
        outcome = tracing::field::Empty
    );
    if !span.is_disabled() {
        span.record("resource", attribute(resource()));
        adopt(&span, headers);
    }
    span
}

/// The outcome of a request: its code.
pub(crate) fn record_outcome(span: &Span, code: http::StatusCode) {
    span.record("outcome", code.as_u16());
}

/// Lets the span continue the trace of `traceparent`.
#[cfg(feature = "otlp")]
fn adopt(span: &Span, headers: &HeaderMap) {
    export::adopt(span, headers);
}

/// Replaces `traceparent` by the span, if the span is exported. Otherwise the client's own header stays.
#[cfg(feature = "otlp")]
pub(crate) fn propagate(span: &Span, headers: &mut HeaderMap) {
    export::propagate(span, headers);
}

#[cfg(not(feature = "otlp"))]
const fn adopt(_: &Span, _: &HeaderMap) {}

/// Without the feature `otlp` the client's own `traceparent` stays.
#[cfg(not(feature = "otlp"))]
pub(crate) const fn propagate(_: &Span, _: &mut HeaderMap) {}

#[cfg(test)]
mod tests;
