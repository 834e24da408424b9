//! A handler that receives only the notifications of objects that pass a filter.

use std::sync::Arc;

use super::EventHandler;
use crate::{Cached, Notification};

/// Passes on notifications of objects that pass a filter, as client-go's `FilteringResourceEventHandler` does. An object that begins
/// to pass is delivered as added; one that no longer passes is delivered as deleted, in its last passing state.
#[derive(Clone, Debug)]
pub struct EventFilter<F, H> {
    filter: F,
    handler: H,
}

impl<F, H> EventFilter<F, H> {
    /// The filter is applied to each state of an object, some of them more than once, so it must be deterministic.
    pub const fn new(filter: F, handler: H) -> Self {
        Self { filter, handler }
    }
}

impl<T, F, H> EventHandler<T> for EventFilter<F, H>
where
    F: Fn(&Cached<T>) -> bool + Send + Sync + 'static,
    H: EventHandler<T>,
{
    fn on_notification(&self, notification: &Notification<T>) {
        let passes = |object: &Arc<Cached<T>>| (self.filter)(object);
        match notification {
            Notification::Added { object, .. } => {
                if passes(object) {
                    self.handler.on_notification(notification);
                }
            }
            // The state delivered before decides whether the handler knows the object.
            Notification::Deleted { old, object, .. } => match (passes(old), passes(object)) {
                (true, true) => self.handler.on_notification(notification),
                (true, false) => self.handler.on_notification(&Notification::Deleted {
                    old: Arc::clone(old),
                    object: Arc::clone(old),
                    final_state_known: false,
                }),
                (false, _) => {}
            },
            Notification::Updated { old, new } => match (passes(old), passes(new)) {
                (true, true) => self.handler.on_notification(notification),
                (false, true) => self.handler.on_notification(&Notification::Added {
                    object: Arc::clone(new),
                    in_initial_list: false,
                }),
                (true, false) => self.handler.on_notification(&Notification::Deleted {
                    old: Arc::clone(old),
                    object: Arc::clone(old),
                    final_state_known: true,
                }),
                (false, false) => {}
            },
        }
    }
}
