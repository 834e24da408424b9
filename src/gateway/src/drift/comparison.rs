//! Compares one page of upstream's objects with those of a cache at the same version. Pure.

use crate::cache::{MapPosition, ObjectMap};
use crate::metrics::Contradiction;
use crate::resource::{KeyRef, Object};
use crate::upstream::driver::{Sample, SampleEntry};

/// Where a page starts: after a key, or at the first object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageStart(Option<String>);

/// The first difference of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageFault {
    /// The page is older than a version that clients have.
    Older,
    /// An object differs; its key.
    Object(Contradiction, String),
    /// Another number of objects follows the page. Kubernetes says that clients should not rely on the number.
    Count,
}

impl PageStart {
    /// The start of the page after this one; `None` if this one is empty.
    pub(super) fn after(page: &Sample) -> Option<Self> {
        Some(Self(Some(page.entries.last()?.key.as_str().to_owned())))
    }

    /// The last key of the page before.
    pub(super) fn key(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether all keys of the page are after the start and in order.
    pub(super) fn is_ordered(&self, page: &Sample) -> bool {
        let keys = || page.entries.iter().map(|entry| entry.key.as_str());
        let is_after = self.key().is_none_or(|start| keys().all(|key| key > start));
        is_after && keys().is_sorted_by(|before, after| before < after)
    }

    fn position(&self, objects: &ObjectMap) -> MapPosition {
        self.key()
            .map_or_else(MapPosition::default, |key| position_after(key, objects))
    }
}

/// Compares the keys, uids and versions of a page in the order of keys, and the number of objects after it.
///
/// # Errors
/// The first difference.
pub(super) fn compared(
    page: &Sample,
    start: &PageStart,
    objects: &ObjectMap,
) -> Result<(), PageFault> {
    let mut position = start.position(objects);
    for entry in &page.entries {
        let cached = objects.next(&mut position);
        let listed = || fault(Contradiction::Listed, entry.key.as_str());
        let cached = cached.ok_or_else(listed)?;
        let listed_key = KeyRef::of_joined(entry.key.as_str());
        if cached.key() < listed_key {
            let key = cached.key().to_string();
            return Err(fault(Contradiction::Missing, &key));
        }
        if cached.key() > listed_key || !is_same(cached, entry) {
            return Err(listed());
        }
    }
    if page.is_complete {
        return match objects.next(&mut position) {
            Some(object) => Err(fault(Contradiction::Missing, &object.key().to_string())),
            None => Ok(()),
        };
    }
    let following = objects.count_prefixed(position, "");
    match page.remaining {
        Some(remaining) if usize::try_from(remaining) != Ok(following) => Err(PageFault::Count),
        Some(_) | None => Ok(()),
    }
}

fn is_same(cached: &Object, entry: &SampleEntry) -> bool {
    cached.resource_version() == entry.version && cached.uid() == entry.uid
}

fn position_after(key: &str, objects: &ObjectMap) -> MapPosition {
    let mut position = objects.place_from(key);
    let mut next = position;
    let first = objects.next(&mut next);
    if first.is_some_and(|object| object.key() == KeyRef::of_joined(key)) {
        position = next;
    }
    position
}

fn fault(contradiction: Contradiction, key: &str) -> PageFault {
    PageFault::Object(contradiction, key.to_owned())
}
