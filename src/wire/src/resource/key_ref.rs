//! An object's key, borrowed from the object's bytes as two slices.

use std::cmp::Ordering;
use std::fmt;

use super::ObjectKey;

/// An [`ObjectKey`] borrowed as namespace and name. Compares and sorts like the joined string `namespace/name`.
#[derive(Clone, Copy)]
pub struct KeyRef<'a> {
    namespace: &'a [u8],
    name: &'a [u8],
}

impl<'a> KeyRef<'a> {
    /// The key of a namespace and a name; an empty namespace means cluster-scoped.
    #[must_use]
    pub const fn new(namespace: &'a str, name: &'a str) -> Self {
        Self::of_bytes(namespace.as_bytes(), name.as_bytes())
    }

    /// Both must be UTF-8.
    pub(super) const fn of_bytes(namespace: &'a [u8], name: &'a [u8]) -> Self {
        Self { namespace, name }
    }

    /// The key that `joined` is the string of, or a prefix of that string.
    #[must_use]
    pub fn of_joined(joined: &'a str) -> Self {
        let (namespace, name) = joined.split_once('/').unwrap_or(("", joined));
        Self::new(namespace, name)
    }

    /// The namespace; empty when cluster-scoped.
    #[must_use]
    pub fn namespace(self) -> &'a str {
        str::from_utf8(self.namespace).unwrap_or_default()
    }

    /// The object's name.
    #[must_use]
    pub fn name(self) -> &'a str {
        str::from_utf8(self.name).unwrap_or_default()
    }

    /// Whether the joined string starts with `prefix`.
    #[must_use]
    pub fn starts_with(self, prefix: &str) -> bool {
        let whole_namespace = prefix
            .split_once('/')
            .filter(|(namespace, _)| !namespace.is_empty());
        match whole_namespace {
            Some((namespace, rest)) if !self.namespace.is_empty() => {
                self.namespace == namespace.as_bytes() && self.name.starts_with(rest.as_bytes())
            }
            _ => {
                let mut joined = self.joined();
                prefix.bytes().all(|byte| joined.next() == Some(byte))
            }
        }
    }

    fn separator(self) -> &'static [u8] {
        if self.namespace.is_empty() { b"" } else { b"/" }
    }

    fn joined(self) -> impl Iterator<Item = u8> {
        self.namespace
            .iter()
            .chain(self.separator())
            .chain(self.name)
            .copied()
    }
}

impl Ord for KeyRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(other.name);
        }
        let len = self.namespace.len().min(other.namespace.len());
        // The slash after the shorter namespace matters only if one namespace is a prefix of the other.
        self.namespace[..len]
            .cmp(&other.namespace[..len])
            .then_with(|| self.joined().cmp(other.joined()))
    }
}

impl PartialOrd for KeyRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for KeyRef<'_> {}

impl PartialEq<ObjectKey> for KeyRef<'_> {
    fn eq(&self, other: &ObjectKey) -> bool {
        *self == KeyRef::of_joined(other.as_str())
    }
}

impl From<KeyRef<'_>> for ObjectKey {
    fn from(key: KeyRef<'_>) -> Self {
        Self::new(key.namespace(), key.name())
    }
}

impl fmt::Display for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            f.write_str(self.namespace())?;
            f.write_str("/")?;
        }
        f.write_str(self.name())
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Characters that sort before and after the slash, in names so short that many have a common prefix.
    const PART: &str = "[a.0-]{0,3}";

    proptest! {
        #[test]
        fn a_key_in_two_pieces_orders_as_the_joined_string(
            keys in [(PART, PART), (PART, PART)],
        ) {
            let keys = keys.each_ref().map(|(namespace, name)| KeyRef::new(namespace, name));
            let joined = keys.map(ObjectKey::from);
            prop_assert_eq!(keys[0].cmp(&keys[1]), joined[0].cmp(&joined[1]));
            prop_assert_eq!(keys[0] == joined[1], joined[0] == joined[1]);
            prop_assert_eq!(keys[0].to_string(), joined[0].as_str());
            prop_assert_eq!(KeyRef::of_joined(joined[0].as_str()), keys[0]);
        }

        #[test]
        fn a_key_begins_as_the_joined_string_does(
            namespace in PART, name in PART, prefix in "[a.0-]{0,3}/?[a.0-]{0,3}",
        ) {
            let key = KeyRef::new(&namespace, &name);
            let joined = key.to_string();
            prop_assert_eq!(key.starts_with(&prefix), joined.starts_with(&prefix), "{} {}", joined, prefix);
            for len in 0..=joined.len() {
                prop_assert!(key.starts_with(&joined[..len]));
            }
        }
    }
}
