//! A handler that hears of some objects only.

use std::sync::Arc;

use super::EventHandler;
use crate::informer::{Cached, Notification};

/// Passes on what concerns objects that pass a filter. An object that begins to pass is told as added, one that no longer
/// passes as deleted in its last passing state, as by client-go's `FilteringResourceEventHandler`.
#[derive(Clone, Debug)]
pub struct EventFilter<F, H> {
    filter: F,
    handler: H,
}

impl<F, H> EventFilter<F, H> {
    /// The filter is asked about each state of an object, so it should say the same of the same state every time.
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
            // Only what was told before says whether the handler knows the object.
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
