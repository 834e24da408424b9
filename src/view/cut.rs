//! Objects in another form than the cache holds them in: cut out of the bytes that upstream wrote, never decoded whole.

#[cfg_attr(not(test), expect(dead_code, reason = "not called yet"))]
mod protobuf;

use bytes::Bytes;

use super::partial::Partial;
use super::rendition::{Form, ManagedFields, Rendition};
use crate::decode::{ScanError, members, without_managed_fields};
use crate::resource::wire::WireError;
use crate::resource::{Encoding, Layout, Object, ResourceKind};

/// A frame or an object that cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// It is no JSON.
    #[error(transparent)]
    Json(#[from] ScanError),
    /// It is no protobuf.
    #[error(transparent)]
    Protobuf(#[from] WireError),
}

/// What is done to each object of a resource before a client gets it. Two watchers with equal cuts can share all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    rendition: Rendition,
    /// How the cache's objects are written.
    source: Encoding,
    /// And laid out, in JSON.
    layout: Layout,
}

impl Cut {
    /// What turns the objects of `kind` into `rendition`; `None` if they are so already.
    #[must_use]
    pub fn new(rendition: Rendition, kind: &ResourceKind) -> Option<Self> {
        (rendition != Rendition::whole(kind.encoding)).then_some(Self {
            rendition,
            source: kind.encoding,
            layout: kind.layout,
        })
    }

    /// What comes out.
    #[must_use]
    pub const fn rendition(&self) -> Rendition {
        self.rendition
    }

    /// Cuts the frame of a watch event: a line, or a message after its length. Not for ERROR events, which carry no
    /// object of the resource.
    ///
    /// # Errors
    /// The bytes are not the frame of a scanned event.
    pub fn frame(&self, frame: &[u8]) -> Result<Bytes, CutError> {
        let line = match (self.rendition.form, self.rendition.managed_fields) {
            (Form::Metadata(version), ManagedFields::Kept) => {
                let layout = self.layout;
                Partial { version, layout }.event_line(frame)?
            }
            (Form::Metadata(version), ManagedFields::Dropped) => {
                let layout = self.layout;
                let cut = Partial { version, layout }.event_line(frame)?;
                dropped_in_line(&cut)?
            }
            (Form::Whole, _) => dropped_in_line(frame)?,
        };
        Ok(line.into())
    }

    /// One item of a list: in JSON an object without its opening brace, in protobuf the field of the list's message.
    ///
    /// # Errors
    /// The object's bytes cannot be read. Those in a cache have been.
    pub fn list_item(&self, object: &Object) -> Result<Bytes, CutError> {
        let item = match self.rendition.form {
            Form::Metadata(version) => {
                let layout = self.layout;
                Partial { version, layout }.object(object.bytes())?
            }
            Form::Whole => [b"{", &*object.list_item(self.layout)].concat(),
        };
        let item = match self.rendition.managed_fields {
            ManagedFields::Kept => item,
            ManagedFields::Dropped => without_managed_fields(&item).unwrap_or(item),
        };
        Ok(Bytes::from(item).slice(1..))
    }
}

fn dropped_in_line(line: &[u8]) -> Result<Vec<u8>, CutError> {
    let event = members(line)?;
    let Some((_, span)) = event.iter().find(|(key, _)| *key == "object") else {
        return Ok(line.to_vec());
    };
    let (start, end) = (span.start as usize, span.end as usize);
    Ok(match without_managed_fields(&line[start..end]) {
        Some(object) => [&line[..start], &object, &line[end..]].concat(),
        None => line.to_vec(),
    })
}
