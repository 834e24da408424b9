//! What `/readyz` reports about the registry.

use std::sync::{Arc, OnceLock};

use super::{Registry, Slot};
use crate::admin::{CheckOutcome, Readiness, ReadinessCheck};
use crate::metrics::{PressureStep, ReadinessLabel};
use crate::pressure::PressureLevel;
use crate::resource::CacheKey;

impl Registry {
    /// Whether all checks pass, without their texts: relays ask often.
    pub(super) fn is_ready(&self) -> bool {
        let is_filled = |(key, filled): (&CacheKey, &Arc<OnceLock<()>>)| {
            let is_excused =
                |slot: Arc<Slot>| matches!(slot.must_be_filled(), CheckOutcome::Passed(_));
            filled.get().is_some() || self.existing_slot(key).is_some_and(is_excused)
        };
        self.undiscovered.lock().is_none()
            && self.pinned.iter().all(is_filled)
            && self
                .settings
                .handover
                .as_ref()
                .is_none_or(|handover| handover.is_settled())
    }

    /// What is not cached because the APIServices are not known.
    pub(crate) fn limitation(&self) -> Option<String> {
        self.known.load().limitation()
    }
}

impl Readiness for Registry {
    fn checks(&self) -> Vec<ReadinessCheck> {
        let upstream = match &*self.undiscovered.lock() {
            None => CheckOutcome::Passed(String::new()),
            Some(reason) => CheckOutcome::Failed(format!("discovery failed: {reason}")),
        };
        let slots = self.slots();
        let mut checks: Vec<_> = slots
            .iter()
            .map(|(key, slot)| ReadinessCheck {
                name: key.to_string(),
                kind: Some(ReadinessLabel::Pinned),
                outcome: match self.pinned.get(key) {
                    Some(filled) if filled.get().is_none() => slot.must_be_filled(),
                    _ => CheckOutcome::Passed(slot.describe()),
                },
            })
            .collect();
        // A pinned resource that has no slot yet is reported, too.
        let missing = self
            .pinned
            .iter()
            .filter(|(key, _)| !slots.iter().any(|(started, _)| started == *key));
        checks.extend(missing.map(|(key, filled)| {
            let reason = match self.may_cache(&key.gvr) {
                Ok(()) => "not offered upstream".to_owned(),
                Err(reason) => reason.to_string(),
            };
            ReadinessCheck {
                name: key.to_string(),
                kind: Some(ReadinessLabel::Pinned),
                outcome: match filled.get() {
                    Some(()) => CheckOutcome::Passed(format!("forwarded: {reason}")),
                    None => CheckOutcome::Failed(reason),
                },
            }
        }));
        checks.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(handover) = &self.settings.handover {
            checks.push(ReadinessCheck {
                name: "handover".to_owned(),
                kind: Some(ReadinessLabel::Handover),
                outcome: match handover.is_settled() {
                    true => CheckOutcome::Passed(String::new()),
                    false => CheckOutcome::Failed("taking caches over".to_owned()),
                },
            });
        }
        checks.extend(memory_check(self.state().pressure));
        // Its resources are forwarded, as they are at every other replica.
        checks.extend(self.limitation().map(|limitation| ReadinessCheck {
            name: "api-services".to_owned(),
            kind: None,
            outcome: CheckOutcome::Passed(limitation),
        }));
        checks.insert(
            0,
            ReadinessCheck {
                name: "upstream".to_owned(),
                kind: Some(ReadinessLabel::Upstream),
                outcome: upstream,
            },
        );
        checks
    }
}

/// Says what is given up while memory is short. The gateway stays ready: its clients would move to other replicas, which have as many.
fn memory_check(level: PressureLevel) -> Option<ReadinessCheck> {
    let given_up = match level.last_step()? {
        PressureStep::Frames => "lists are compressed anew",
        PressureStep::History => "histories are shortened",
        PressureStep::Admission => "new watches that begin with a state are refused",
        PressureStep::Eviction => "new watches are refused, and caches are given up",
    };
    Some(ReadinessCheck {
        name: "memory".to_owned(),
        kind: None,
        outcome: CheckOutcome::Passed(format!("memory is short: {given_up}")),
    })
}
