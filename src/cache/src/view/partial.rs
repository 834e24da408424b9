//! `PartialObjectMetadata` made from the bytes of objects that upstream wrote (docs/PROTOCOL.md §5.3).

use super::object_format::MetaVersion;
use crate::decode::{ScanError, elements, member, members, value_of};
use crate::resource::Layout;

/// Reduces the objects of one resource to `PartialObjectMetadata`.
///
/// For a compiled-in kind the bytes of the metadata are kept. For a custom resource the members are put into the order of Go's
/// struct, as the API server does when it converts the object. The bytes of the values are copied unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The version of `meta.k8s.io` that the result states.
    pub version: MetaVersion,
    /// The layout of the resource's whole objects.
    pub layout: Layout,
}

/// One field of a Go struct.
struct StructField {
    name: &'static str,
    /// The fields of its items if it is a list of structs, otherwise empty.
    items: &'static [Self],
}

const fn leaf(name: &'static str) -> StructField {
    StructField { name, items: &[] }
}

/// The fields of Go's `ObjectMeta`, in its order (docs/PROTOCOL.md §5.5).
const METADATA: &[StructField] = &[
    leaf("name"),
    leaf("generateName"),
    leaf("namespace"),
    leaf("selfLink"),
    leaf("uid"),
    leaf("resourceVersion"),
    leaf("generation"),
    leaf("creationTimestamp"),
    leaf("deletionTimestamp"),
    leaf("deletionGracePeriodSeconds"),
    leaf("labels"),
    leaf("annotations"),
    StructField {
        name: "ownerReferences",
        items: &[
            leaf("apiVersion"),
            leaf("kind"),
            leaf("name"),
            leaf("uid"),
            leaf("controller"),
            leaf("blockOwnerDeletion"),
        ],
    },
    leaf("finalizers"),
    StructField {
        name: "managedFields",
        items: &[
            leaf("manager"),
            leaf("operation"),
            leaf("apiVersion"),
            leaf("time"),
            leaf("fieldsType"),
            leaf("fieldsV1"),
            leaf("subresource"),
        ],
    },
];

impl Partial {
    /// Reduces one whole object. The bytes after its metadata are not read.
    ///
    /// # Errors
    /// The bytes up to the metadata are not an object.
    pub fn object(self, object: &[u8]) -> Result<Vec<u8>, ScanError> {
        let mut out = Vec::with_capacity(object.len().min(1024));
        self.put_object(object, &mut out)?;
        Ok(out)
    }

    /// Reduces the object of one event line; ERROR events are returned unchanged.
    ///
    /// # Errors
    /// The bytes are not an event around one whole object.
    pub fn event_line(self, line: &[u8]) -> Result<Vec<u8>, ScanError> {
        let event = members(line)?;
        let value = |name| value_of(&event, name).map_or(b"".as_slice(), |span| span.of(line));
        let kind = value("type");
        if kind == b"\"ERROR\"" {
            return Ok(line.to_vec());
        }
        let mut out = Vec::with_capacity(line.len().min(1024));
        out.extend_from_slice(b"{\"type\":");
        out.extend_from_slice(kind);
        out.extend_from_slice(b",\"object\":");
        self.put_object(value("object"), &mut out)?;
        out.extend_from_slice(b"}\n");
        Ok(out)
    }

    /// The text before the metadata in a reduced object, in three pieces.
    pub(super) fn head(self) -> [&'static str; 3] {
        let head = "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"";
        [head, self.version.api_version(), "\",\"metadata\":"]
    }

    fn put_object(self, object: &[u8], out: &mut Vec<u8>) -> Result<(), ScanError> {
        let metadata = member(object, "metadata")?
            .map(|span| span.of(object))
            .unwrap_or(b"{}");
        self.head()
            .iter()
            .for_each(|piece| out.extend_from_slice(piece.as_bytes()));
        match self.layout {
            Layout::Typed => out.extend_from_slice(metadata),
            Layout::Dynamic => put_in_order(metadata, METADATA, out)?,
        }
        out.push(b'}');
        Ok(())
    }
}

/// Writes an object's members in the order of `fields`. Other members, and those with `null`, are left out, as Go's encoder does.
fn put_in_order(object: &[u8], fields: &[StructField], out: &mut Vec<u8>) -> Result<(), ScanError> {
    let members = members(object)?;
    let mut before = b'{';
    for field in fields {
        let value =
            value_of(&members, field.name).map_or(b"null".as_slice(), |span| span.of(object));
        if value == b"null" {
            continue;
        }
        let len = out.len();
        out.extend_from_slice(&[before, b'"']);
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b"\":");
        if field.items.is_empty() {
            out.extend_from_slice(value);
        } else if put_items(value, field.items, out).is_err() {
            // The API server reads such objects member by member and ignores a member of the wrong type.
            out.truncate(len);
            continue;
        }
        before = b',';
    }
    if before == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(())
}

fn put_items(array: &[u8], fields: &[StructField], out: &mut Vec<u8>) -> Result<(), ScanError> {
    out.push(b'[');
    for (index, span) in elements(array)?.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_in_order(span.of(array), fields, out)?;
    }
    out.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests;
