//! Objects without anything but their metadata, cut out of the bytes that upstream wrote (docs/PROTOCOL.md §5.3).

use super::object_format::MetaVersion;
use crate::decode::{ScanError, elements, member, members, value_of};
use crate::resource::Layout;

/// Cuts the objects of one resource down to `PartialObjectMetadata`.
///
/// Compiled-in kinds keep the bytes of their metadata; custom resources get them in the order of Go's struct, as the API
/// server puts them through it. Values are never written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The version that is told.
    pub version: MetaVersion,
    /// How the resource's whole objects are laid out.
    pub layout: Layout,
}

/// One field of a Go struct.
struct StructField {
    name: &'static str,
    /// The fields of its items, if it is a list of structs.
    items: &'static [Self],
}

const fn leaf(name: &'static str) -> StructField {
    StructField { name, items: &[] }
}

/// Go's `ObjectMeta`, in its order (docs/PROTOCOL.md §5.5).
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
    /// Cuts one whole object. What comes after its metadata is not looked at.
    ///
    /// # Errors
    /// The bytes are not an object as far as that.
    pub fn object(self, object: &[u8]) -> Result<Vec<u8>, ScanError> {
        let mut out = Vec::with_capacity(object.len().min(1024));
        self.put_object(object, &mut out)?;
        Ok(out)
    }

    /// Cuts the object of one event line; ERROR events pass as they are.
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

    /// What stands before the metadata of a cut object.
    pub(super) fn head(self) -> [&'static str; 3] {
        let head = "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"";
        [head, self.version.api_version(), "\",\"metadata\":"]
    }

    fn put_object(self, object: &[u8], out: &mut Vec<u8>) -> Result<(), ScanError> {
        let metadata = member(object, "metadata")?.map(|span| span.of(object));
        let metadata = metadata.unwrap_or(b"{}");
        let head = self.head();
        head.iter()
            .for_each(|piece| out.extend_from_slice(piece.as_bytes()));
        match self.layout {
            Layout::Typed => out.extend_from_slice(metadata),
            Layout::Dynamic => put_in_order(metadata, METADATA, out)?,
        }
        out.push(b'}');
        Ok(())
    }
}

/// Writes an object's members in the order of `fields`; others, and `null`, are left out, as Go's encoder does it.
fn put_in_order(object: &[u8], fields: &[StructField], out: &mut Vec<u8>) -> Result<(), ScanError> {
    let members = members(object)?;
    let mut before = b'{';
    for field in fields {
        let found = value_of(&members, field.name);
        let value = found.map_or(b"null".as_slice(), |span| span.of(object));
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
            // The API server reads such objects member by member and passes over what has another type than its own.
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
