//! The format of the items of a list.

use bytes::Bytes;

use super::envelope::IndentedItem;
use crate::cache::{BlockFormat, LengthForm};
use crate::resource::{Encoding, Layout, Object, ResourceKind};
use crate::view::{
    ManagedFields, MetaVersion, ObjectFormat, ObjectPart, Projection, ProjectionError,
};

/// The format of items in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemFormat {
    pub(super) layout: Layout,
    /// The encoding of the objects in the cache.
    pub(super) source: Encoding,
    /// The projection that is applied to the items, if any.
    pub(super) projection: Option<Projection>,
    pub(super) indented: bool,
}

impl ItemFormat {
    /// The items of `kind` in this format, not indented.
    pub(super) fn new(kind: &ResourceKind, format: ObjectFormat) -> Self {
        Self {
            layout: kind.layout,
            source: kind.encoding,
            projection: Projection::new(format, kind),
            indented: false,
        }
    }

    /// The encoding in which items are written.
    pub(super) fn encoding(self) -> Encoding {
        self.projection
            .map_or(self.source, |projection| projection.rendition().encoding)
    }

    /// The form under which the lengths of items are kept with their chunk.
    pub(super) fn length_form(self) -> LengthForm {
        let Some(format) = self.projection.map(|projection| projection.rendition()) else {
            return LengthForm::Whole;
        };
        match (format.form, format.managed_fields) {
            (ObjectPart::Whole, ManagedFields::Kept) => LengthForm::Whole,
            (ObjectPart::Whole, ManagedFields::Dropped) => LengthForm::WithoutManagedFields,
            (ObjectPart::Metadata(_), ManagedFields::Kept) => LengthForm::Metadata,
            (ObjectPart::Metadata(_), ManagedFields::Dropped) => {
                LengthForm::MetadataWithoutManagedFields
            }
        }
    }

    /// Length of one item, without indentation.
    pub(super) fn item_len(self, object: &Object) -> Result<usize, ProjectionError> {
        match self.projection {
            None => Ok(object.list_item_bytes(self.layout).len()),
            Some(projection) => Ok(projection.list_item(object)?.len()),
        }
    }

    /// One item; in JSON without its opening brace. Not indented.
    pub(super) fn item(self, object: &Object) -> Result<Bytes, ProjectionError> {
        match self.projection {
            None => Ok(object.list_item(self.layout)),
            Some(projection) => projection.list_item(object),
        }
    }

    /// One item as it is sent, in parts of bounded length.
    pub(super) fn parts(
        self,
        object: &Object,
    ) -> Result<impl Iterator<Item = Bytes> + use<>, ProjectionError> {
        let item = self.item(object)?;
        let (plain, indented) = match self.indented {
            true => (None, Some(IndentedItem::new(item))),
            false => (Some(item), None),
        };
        Ok(plain.into_iter().chain(indented.into_iter().flatten()))
    }

    /// Whether items are sent exactly as they are in memory.
    pub(super) fn is_as_kept(self) -> bool {
        self.projection.is_none() && !self.indented
    }

    /// The format under which compressed blocks are kept with their chunk; `None` for rare formats, which are not kept.
    pub(super) fn block_format(self) -> Option<BlockFormat> {
        match self.projection {
            _ if self.indented => None,
            None => Some(BlockFormat::Whole),
            Some(projection) if projection.rendition() == metadata(self.source) => {
                Some(BlockFormat::Metadata)
            }
            // A resource has one cache for each encoding, so only metadata is ever converted to another one.
            Some(projection) => (projection.rendition() == metadata(Encoding::Protobuf))
                .then_some(BlockFormat::Translated),
        }
    }
}

const fn metadata(encoding: Encoding) -> ObjectFormat {
    ObjectFormat {
        encoding,
        form: ObjectPart::Metadata(MetaVersion::V1),
        managed_fields: ManagedFields::Kept,
    }
}
