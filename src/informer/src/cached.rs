//! An object as informers hold it: key, uid, version and labels, and the object itself in the type that the user chose.

use std::ops::Deref;

use crate::resource::{Object, ObjectKey, ResourceVersion};

/// Terminates each key and each value in the field `labels` of [`Cached`]. No valid label contains it.
const LABEL_END: char = '\0';

/// One object at one version, immutable and shared. Dereferences to the object.
///
/// Key, uid, version and labels are read from the object's `metadata`, whatever `T` is, so `T` can be any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached<T> {
    key: ObjectKey,
    uid: Box<str>,
    resource_version: ResourceVersion,
    /// Alternating keys and values, each terminated by `LABEL_END`: one allocation, instead of two per label.
    labels: Box<str>,
    object: T,
}

impl<T> Cached<T> {
    /// Combines `object` with the metadata in `scanned`, the scanned form of the same object.
    #[must_use]
    pub fn new(scanned: &Object, object: T) -> Self {
        let mut labels = String::new();
        for (key, value) in scanned.labels() {
            if !key.contains(LABEL_END) && !value.contains(LABEL_END) {
                labels.extend([key, "\0", value, "\0"]);
            }
        }
        Self {
            key: scanned.key().into(),
            uid: scanned.uid().into(),
            resource_version: scanned.resource_version(),
            labels: labels.into(),
            object,
        }
    }

    /// `namespace/name`, or `name` if the object is cluster-scoped.
    #[must_use]
    pub const fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.uid`: a recreated object has another one.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub const fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// `metadata.labels`, ordered by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.labels.split_terminator(LABEL_END);
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// The value of one label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels()
            .find_map(|(found, value)| (found == key).then_some(value))
    }

    /// The object, for a transform that changes it before it is stored.
    pub const fn object_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T> Deref for Cached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ObjectParts;

    #[test]
    fn labels_are_found_by_key_and_come_in_their_order() {
        let label = |key: &'static str, value: &'static str| (key.into(), value.into());
        let parts = ObjectParts {
            name: "x".into(),
            labels: vec![label("b", "1"), label("a", ""), label("bad\0", "2")],
            ..ObjectParts::default()
        };
        let cached = Cached::new(&Object::new(parts, b"{}"), ());
        assert_eq!(cached.labels().collect::<Vec<_>>(), [("a", ""), ("b", "1")]);
        assert_eq!(cached.label("a"), Some(""));
        assert_eq!(cached.label("1"), None);
    }
}
