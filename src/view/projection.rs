//! Objects in another form than the cache holds them in: cut out of the bytes that upstream wrote, never decoded whole.

mod protobuf;

use std::borrow::Cow;

use bytes::Bytes;

use super::object_format::{ManagedFields, ObjectFormat, ObjectPart};
use super::partial::Partial;
use crate::decode::{ScanError, member, scan_envelope, without_managed_fields};
use crate::resource::protobuf::{frame_around, type_meta, type_meta_of};
use crate::resource::wire::{WireError, field_len, put_bytes};
use crate::resource::{ByteSpan, Encoding, Layout, Object, ResourceKind};

/// A frame or an object that cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectionError {
    /// It is no JSON.
    #[error(transparent)]
    Json(#[from] ScanError),
    /// It is no protobuf.
    #[error(transparent)]
    Protobuf(#[from] WireError),
    /// It has none.
    #[error("an object without metadata")]
    NoMetadata,
    /// Whole objects are not written in another encoding.
    #[error("whole objects are not written in another encoding")]
    Untranslatable,
}

/// What is done to each object of a resource before a client gets it. Two watchers with equal cuts can share all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Projection {
    rendition: ObjectFormat,
    /// How the cache's objects are written.
    source: Encoding,
    /// And laid out, in JSON.
    layout: Layout,
}

impl Projection {
    /// What turns the objects of `kind` into `rendition`; `None` if they are so already.
    #[must_use]
    pub fn new(rendition: ObjectFormat, kind: &ResourceKind) -> Option<Self> {
        (rendition != ObjectFormat::whole(kind.encoding)).then_some(Self {
            rendition,
            source: kind.encoding,
            layout: kind.layout,
        })
    }

    /// What comes out.
    #[must_use]
    pub const fn rendition(&self) -> ObjectFormat {
        self.rendition
    }

    /// Cuts the frame of a watch event: a line, or a message after its length. Not for ERROR events, which carry no
    /// object of the resource.
    ///
    /// # Errors
    /// The bytes are not the frame of a scanned event.
    pub fn frame(&self, frame: &[u8]) -> Result<Bytes, ProjectionError> {
        if self.rendition.encoding == Encoding::Json {
            return Ok(self.line(frame)?.into());
        }
        let event = scan_envelope(self.source, frame)?;
        let raw = self.raw(event.object.of(frame))?;
        let type_meta = match self.rendition.form {
            ObjectPart::Metadata(version) => type_meta(version.api_version(), PARTIAL).into(),
            ObjectPart::Whole => Cow::Borrowed(type_meta_of(frame)?),
        };
        let (frame, _) = frame_around(event.kind.as_str(), &type_meta, &raw);
        Ok(frame.into())
    }

    /// One item of a list: in JSON an object without its opening brace, in protobuf the field of the list's message.
    ///
    /// # Errors
    /// The object's bytes cannot be read. Those in a cache have been.
    pub fn list_item(&self, object: &Object) -> Result<Bytes, ProjectionError> {
        if self.rendition.encoding == Encoding::Json {
            return self.json_item(object);
        }
        let raw = self.raw(object.bytes())?;
        let mut item = Vec::with_capacity(field_len(raw.len()));
        let (_, number) = self.rendition.form.list_fields();
        put_bytes(&mut item, number, &raw);
        Ok(item.into())
    }

    /// What a list item begins with, where this, the object's metadata as it stands and a closing brace are all of it.
    #[must_use]
    pub fn before_metadata(&self) -> Option<String> {
        let ObjectPart::Metadata(version) = self.rendition.form else {
            return None;
        };
        let layout = self.layout;
        let is_spliced = self.source == Encoding::Json
            && self.rendition.encoding == Encoding::Json
            && self.rendition.managed_fields == ManagedFields::Kept
            && layout == Layout::Typed;
        is_spliced.then(|| Partial { version, layout }.head().concat().split_off(1))
    }

    /// Where an object's metadata stands in its JSON; `None` also where it is not JSON.
    #[must_use]
    pub fn metadata_of(object: &Object) -> Option<ByteSpan> {
        member(object.bytes(), "metadata").ok().flatten()
    }

    /// The message of an object, whole or cut.
    fn raw(&self, object: &[u8]) -> Result<Vec<u8>, ProjectionError> {
        let raw = match (self.source, self.rendition.form) {
            (Encoding::Protobuf, ObjectPart::Whole) => object.to_vec(),
            (Encoding::Protobuf, ObjectPart::Metadata(_)) => protobuf::partial(object)?,
            (Encoding::Json, ObjectPart::Metadata(_)) => {
                let metadata = member(object, "metadata")?;
                let metadata = metadata.map_or(b"{}".as_slice(), |span| span.of(object));
                let mut raw = Vec::new();
                put_bytes(&mut raw, 1, &protobuf::metadata_of_json(metadata)?);
                raw
            }
            (Encoding::Json, ObjectPart::Whole) => return Err(ProjectionError::Untranslatable),
        };
        Ok(match self.rendition.managed_fields {
            ManagedFields::Kept => raw,
            ManagedFields::Dropped => protobuf::without_managed_fields(&raw)?,
        })
    }

    fn line(&self, line: &[u8]) -> Result<Vec<u8>, ProjectionError> {
        if self.source != Encoding::Json {
            return Err(ProjectionError::Untranslatable);
        }
        let layout = self.layout;
        let cut = match self.rendition.form {
            ObjectPart::Metadata(version) => Partial { version, layout }.event_line(line)?,
            ObjectPart::Whole => line.to_vec(),
        };
        match self.rendition.managed_fields {
            ManagedFields::Kept => Ok(cut),
            ManagedFields::Dropped => dropped_in_line(&cut),
        }
    }

    fn json_item(&self, object: &Object) -> Result<Bytes, ProjectionError> {
        if self.source != Encoding::Json {
            return Err(ProjectionError::Untranslatable);
        }
        let layout = self.layout;
        let item = match self.rendition.form {
            ObjectPart::Metadata(version) => Partial { version, layout }.object(object.bytes())?,
            ObjectPart::Whole => [b"{", &*object.list_item(layout)].concat(),
        };
        let item = match self.rendition.managed_fields {
            ManagedFields::Kept => item,
            ManagedFields::Dropped => without_managed_fields(&item).unwrap_or(item),
        };
        Ok(Bytes::from(item).slice(1..))
    }
}

const PARTIAL: &str = "PartialObjectMetadata";

fn dropped_in_line(line: &[u8]) -> Result<Vec<u8>, ProjectionError> {
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
