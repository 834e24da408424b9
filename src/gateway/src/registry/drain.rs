//! The end of all watches, one after the other, and then of all caches (decision 46).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::Registry;
use crate::drain_flag::end_times;
use crate::view::EndSchedule;

impl Registry {
    /// Tells other gateways from now on that clients should not come here any more.
    pub(crate) fn leave(&self) {
        // Fails if it is set already.
        let _ = self.leaving.set(());
    }

    /// Schedules the end of each watch, so that all have ended some time before the deadline; no cache is started afterwards. The caches
    /// follow upstream until [`Self::end_caches`]. Returns the time at which that is due.
    pub(crate) fn drain(&self, deadline: Option<Instant>) -> Instant {
        let now = Instant::now();
        let (slots, schedule, rest) = {
            let state = self.state();
            let watches = self.metrics.open_watches();
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(now));
            let (length, rest) = end_times(watches, remaining);
            let schedule = EndSchedule::new(now.into_std(), length, crate::resource::fraction());
            let schedule = Arc::new(schedule);
            self.draining.begin(&schedule);
            info!(watches, ?length, "ending watches one after the other");
            let slots: Vec<_> = state.slots.values().cloned().collect();
            (slots, schedule, rest)
        };
        slots.iter().for_each(|slot| slot.schedule_end(&schedule));
        Instant::from_std(schedule.end()) + rest
    }

    /// Ends the watches that are left, and all caches, whose checkpoints are written a last time. Later calls have no effect.
    pub(crate) fn end_caches(&self) {
        let slots: Vec<_> = {
            let state = self.state();
            for key in state.slots.keys() {
                self.metrics.forget(key.into());
            }
            state.slots.values().cloned().collect()
        };
        // Their clients do not come back, so nothing is spread here.
        self.tables.close();
        self.table_lists.close();
        slots.iter().for_each(|slot| slot.end());
    }

    /// Ends upgraded connections; they may continue for the time `grace`.
    pub(crate) async fn drain_tunnels(&self, grace: Duration) {
        let operators = async {
            match &self.operators {
                Some(operators) => operators.passthrough.drain(grace).await,
                None => 0,
            }
        };
        tokio::join!(self.passthrough.drain(grace), operators);
    }
}
