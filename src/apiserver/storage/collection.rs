//! Deletes a collection of objects, and makes the list that answers the deletion.

use bytes::Bytes;

use super::super::kinds::ServedKind;
use super::{Preconditions, Stamp, Storage, StoredChange, WriteTarget};
use crate::protocol::status::Status;
use crate::resource::{Layout, ObjectKey, ResourceVersion};

impl Storage {
    /// Deletes the objects of a kind in a namespace (all namespaces if empty) for whose bytes `is_selected` is true. Returns the list of
    /// the objects before their deletion, with the revision before the first deletion, or the error of the first object that cannot
    /// be deleted; and the changes in their order.
    pub fn delete_collection(
        &mut self,
        target: &WriteTarget,
        is_selected: &dyn Fn(&Bytes) -> bool,
        stamp: Stamp<'_>,
    ) -> (Result<Bytes, Status>, Vec<StoredChange>) {
        let kind_index = target.kind_index;
        let items: Vec<(ObjectKey, Bytes)> = self
            .objects(kind_index, target.key.namespace())
            .filter(|(_, bytes)| is_selected(bytes))
            .map(|(key, bytes)| (key.clone(), bytes.clone()))
            .collect();
        let answer = list(
            self.kind(target),
            self.revision,
            items.iter().map(|(_, bytes)| bytes),
        );
        let object_target = |key| WriteTarget {
            key,
            ..target.clone()
        };
        let mut changes = Vec::new();
        for (key, _) in items {
            match self.delete(&object_target(key), &Preconditions::default(), stamp) {
                Ok(outcome) => changes.extend(outcome.change),
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
        // Like in kube-apiserver's lists, items of compiled-in kinds have neither kind nor apiVersion.
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
