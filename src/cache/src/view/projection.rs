//! Objects in another form than the one in the cache, made from the bytes that upstream wrote without decoding them fully.

mod protobuf;

use std::borrow::Cow;

use bytes::Bytes;

use super::object_format::{ManagedFields, ObjectFormat, ObjectPart};
use super::partial::Partial;
use crate::decode::{ScanError, member, scan_envelope, without_managed_fields};
use crate::resource::protobuf::{frame_around, type_meta, type_meta_of};
use crate::resource::wire::{WireError, field_len, put_bytes};
use crate::resource::{ByteSpan, Encoding, Layout, Object, ResourceKind};

/// A frame or an object that cannot be projected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectionError {
    /// The bytes are not JSON.
    #[error(transparent)]
    Json(#[from] ScanError),
    /// The bytes are not protobuf.
    #[error(transparent)]
    Protobuf(#[from] WireError),
    /// The object has no metadata.
    #[error("an object without metadata")]
    NoMetadata,
    /// Whole objects are not converted to another encoding.
    #[error("whole objects are not written in another encoding")]
    Untranslatable,
}

/// A conversion of a resource's objects to the form that a client requested. Watches with equal projections can share all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Projection {
    format: ObjectFormat,
    /// The encoding of the cache's objects.
    source: Encoding,
    /// The layout of the cache's objects, in JSON.
    layout: Layout,
}

impl Projection {
    /// The projection of objects of `kind` to `format`; `None` if the cache has them in that form.
    #[must_use]
    pub fn new(format: ObjectFormat, kind: &ResourceKind) -> Option<Self> {
        (format != ObjectFormat::whole(kind.encoding)).then_some(Self {
            format,
            source: kind.encoding,
            layout: kind.layout,
        })
    }

    /// The form that this projection produces.
    #[must_use]
    pub const fn rendition(&self) -> ObjectFormat {
        self.format
    }

    /// Projects the frame of a watch event: a line, or a message after its length. Not for ERROR events, which carry no
    /// object of the resource.
    ///
    /// # Errors
    /// The bytes are not the frame of a scanned event.
    pub fn frame(&self, frame: &[u8]) -> Result<Bytes, ProjectionError> {
        if self.format.encoding == Encoding::Json {
            return Ok(self.line(frame)?.into());
        }
        let event = scan_envelope(self.source, frame)?;
        let raw = self.raw(event.object.of(frame))?;
        let type_meta = match self.format.form {
            ObjectPart::Metadata(version) => type_meta(version.api_version(), PARTIAL).into(),
            ObjectPart::Whole => Cow::Borrowed(type_meta_of(frame)?),
        };
        let (frame, _) = frame_around(event.kind.as_str(), &type_meta, &raw);
        Ok(frame.into())
    }

    /// One item of a list: in JSON an object without its opening brace, in protobuf the field of the list's message.
    ///
    /// # Errors
    /// The object's bytes cannot be read. This does not happen with objects of a cache, which were scanned.
    pub fn list_item(&self, object: &Object) -> Result<Bytes, ProjectionError> {
        if self.format.encoding == Encoding::Json {
            return self.json_item(object);
        }
        let raw = self.raw(object.bytes())?;
        let mut item = Vec::with_capacity(field_len(raw.len()));
        let (_, number) = self.format.form.list_fields();
        put_bytes(&mut item, number, &raw);
        Ok(item.into())
    }

    /// The beginning of a list item, if an item is no more than this text, the object's own metadata and a closing brace.
    #[must_use]
    pub fn before_metadata(&self) -> Option<String> {
        let ObjectPart::Metadata(version) = self.format.form else {
            return None;
        };
        let layout = self.layout;
        let is_spliced = self.source == Encoding::Json
            && self.format.encoding == Encoding::Json
            && self.format.managed_fields == ManagedFields::Kept
            && layout == Layout::Typed;
        is_spliced.then(|| Partial { version, layout }.head().concat().split_off(1))
    }

    /// The span of an object's metadata in its JSON; `None` if it has none, or is not JSON.
    #[must_use]
    pub fn metadata_of(object: &Object) -> Option<ByteSpan> {
        member(object.bytes(), "metadata").ok().flatten()
    }

    /// The protobuf message of an object, whole or reduced to metadata.
    fn raw(&self, object: &[u8]) -> Result<Vec<u8>, ProjectionError> {
        let raw = match (self.source, self.format.form) {
            (Encoding::Protobuf, ObjectPart::Whole) => object.to_vec(),
            (Encoding::Protobuf, ObjectPart::Metadata(_)) => protobuf::partial(object)?,
            (Encoding::Json, ObjectPart::Metadata(_)) => {
                let metadata =
                    member(object, "metadata")?.map_or(b"{}".as_slice(), |span| span.of(object));
                let mut raw = Vec::new();
                put_bytes(&mut raw, 1, &protobuf::metadata_of_json(metadata)?);
                raw
            }
            (Encoding::Json, ObjectPart::Whole) => return Err(ProjectionError::Untranslatable),
        };
        Ok(match self.format.managed_fields {
            ManagedFields::Kept => raw,
            ManagedFields::Dropped => protobuf::without_managed_fields(&raw)?,
        })
    }

    fn line(&self, line: &[u8]) -> Result<Vec<u8>, ProjectionError> {
        if self.source != Encoding::Json {
            return Err(ProjectionError::Untranslatable);
        }
        let layout = self.layout;
        let projected = match self.format.form {
            ObjectPart::Metadata(version) => Partial { version, layout }.event_line(line)?,
            ObjectPart::Whole => line.to_vec(),
        };
        match self.format.managed_fields {
            ManagedFields::Kept => Ok(projected),
            ManagedFields::Dropped => line_without_managed_fields(&projected),
        }
    }

    fn json_item(&self, object: &Object) -> Result<Bytes, ProjectionError> {
        if self.source != Encoding::Json {
            return Err(ProjectionError::Untranslatable);
        }
        let layout = self.layout;
        let item = match self.format.form {
            ObjectPart::Metadata(version) => Partial { version, layout }.object(object.bytes())?,
            ObjectPart::Whole => [b"{", &*object.list_item(layout)].concat(),
        };
        let item = match self.format.managed_fields {
            ManagedFields::Kept => item,
            ManagedFields::Dropped => without_managed_fields(&item).unwrap_or(item),
        };
        Ok(Bytes::from(item).slice(1..))
    }
}

const PARTIAL: &str = "PartialObjectMetadata";

fn line_without_managed_fields(line: &[u8]) -> Result<Vec<u8>, ProjectionError> {
    let Some(span) = member(line, "object")? else {
        return Ok(line.to_vec());
    };
    let (start, end) = (span.start as usize, span.end as usize);
    Ok(match without_managed_fields(&line[start..end]) {
        Some(object) => [&line[..start], &object, &line[end..]].concat(),
        None => line.to_vec(),
    })
}

#[cfg(test)]
mod tests;
