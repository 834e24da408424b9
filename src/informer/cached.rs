//! One object as informers hold it: what every part needs to know of it, and the object itself as the user wants it.

use std::ops::Deref;

use crate::resource::{Object, ObjectKey, ResourceVersion};

/// Ends each key and each value in [`Cached::labels`]; no valid label has it inside.
const LABEL_END: char = '\0';

/// One object at one version, immutable and shared; dereferences to the object.
///
/// Key, uid, version and labels come from the object's `metadata`, whatever `T` is, so that any type will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached<T> {
    key: ObjectKey,
    uid: Box<str>,
    resource_version: ResourceVersion,
    /// Keys and values in turn, each with its end: one allocation instead of two per label.
    labels: Box<str>,
    object: T,
}

impl<T> Cached<T> {
    /// Keeps `object` with the parts that were scanned of it.
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

    /// `namespace/name`, or `name` when cluster-scoped.
    #[must_use]
    pub const fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.uid`: differs after delete and recreate.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub const fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// `metadata.labels`, in the order of their keys.
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

    /// The object, to be changed before it is stored.
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
