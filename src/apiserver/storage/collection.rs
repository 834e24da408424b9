//! Deleting many objects at once, and the list that answers it.

use bytes::Bytes;

use super::super::kinds::ServedKind;
use super::{Preconditions, Stamp, Storage, StoredChange, WriteTarget};
use crate::protocol::status::Status;
use crate::resource::{Layout, ObjectKey, ResourceVersion};

impl Storage {
    /// Deletes all objects of a kind in a namespace (empty: in all) that `chosen` picks by their bytes. Answers the list of
    /// them as they were, under the revision before the first deletion, or why one could not be deleted; with the changes
    /// in order.
    pub fn delete_collection(
        &mut self,
        target: &WriteTarget,
        chosen: &dyn Fn(&Bytes) -> bool,
        stamp: Stamp<'_>,
    ) -> (Result<Bytes, Status>, Vec<StoredChange>) {
        let kind_index = target.kind_index;
        let items: Vec<(ObjectKey, Bytes)> = self
            .objects(kind_index, target.key.namespace())
            .filter(|(_, bytes)| chosen(bytes))
            .map(|(key, bytes)| (key.clone(), bytes.clone()))
            .collect();
        let answer = list(
            self.kind(target),
            self.revision,
            items.iter().map(|(_, bytes)| bytes),
        );
        let one = |key| WriteTarget {
            key,
            ..target.clone()
        };
        let mut changes = Vec::new();
        for (key, _) in items {
            match self.delete(&one(key), &Preconditions::default(), stamp) {
                Ok(written) => changes.extend(written.change),
                Err(refusal) => return (Err(refusal), changes),
            }
        }
        (Ok(answer), changes)
    }
}

/// The list that answers the deletion of a collection (docs/PROTOCOL.md §3.8).
fn list<'a>(
    kind: &ServedKind,
    version: ResourceVersion,
    items: impl Iterator<Item = &'a Bytes>,
) -> Bytes {
    let (head, tail) = match kind.resource.layout {
        Layout::Typed => (
            format!(
                r#"{{"kind":"{}","apiVersion":"{}","metadata":{{"resourceVersion":"{version}"}},"items":["#,
                kind.resource.list_kind,
                kind.resource.gvr.api_version()
            ),
            "]}".to_owned(),
        ),
        Layout::Dynamic => (
            format!(
                r#"{{"apiVersion":"{}","items":["#,
                kind.resource.gvr.api_version()
            ),
            format!(
                r#"],"kind":"{}","metadata":{{"continue":"","resourceVersion":"{version}"}}}}"#,
                kind.resource.list_kind
            ),
        ),
    };
    let prefix = format!(
        r#"{{"kind":"{}","apiVersion":"{}","#,
        kind.resource.kind,
        kind.resource.gvr.api_version()
    );
    let mut body = head.into_bytes();
    for (index, item) in items.enumerate() {
        if index > 0 {
            body.push(b',');
        }
        // Items of compiled-in kinds carry neither kind nor version.
        match item.strip_prefix(prefix.as_bytes()) {
            Some(rest) if kind.resource.layout == Layout::Typed => {
                body.push(b'{');
                body.extend_from_slice(rest);
            }
            _ => body.extend_from_slice(item),
        }
    }
    body.extend_from_slice(tail.as_bytes());
    body.into()
}
