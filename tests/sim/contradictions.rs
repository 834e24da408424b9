//! Counts how often gateways say that the API server has another history than their caches. Unless a backup was restored, none may.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// What gateways have said so far.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Reads the log of the gateways.
pub(crate) fn counter<S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>>()
-> impl Layer<S> {
    let keeper = Targets::new().with_target("kube_fanout::gateway::slot", Level::WARN);
    Counter.with_filter(keeper)
}

struct Counter;

impl<S: Subscriber> Layer<S> for Counter {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(false);
        event.record(&mut message);
        COUNT.fetch_add(u64::from(message.0), Ordering::Relaxed);
    }
}

/// Whether a message is about another history.
struct Message(bool);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 |= field.name() == "message" && format!("{value:?}").contains("history");
    }
}
