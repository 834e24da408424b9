//! The target of spans.

/// The target of all spans, which the log never shows.
pub const SPAN_TARGET: &str = "kube_fanout::span";
