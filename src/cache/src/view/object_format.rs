//! The form in which a client receives objects. This module does not handle bytes; [`super::Projection`] produces the form.

use crate::resource::Encoding;

/// The part of an object that a client requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ObjectPart {
    /// The whole object.
    #[default]
    Whole,
    /// `PartialObjectMetadata` of this version (docs/PROTOCOL.md §5.3).
    Metadata(MetaVersion),
}

impl ObjectPart {
    /// The field numbers of metadata and items in a list in protobuf.
    #[must_use]
    pub const fn list_fields(self) -> (u32, u32) {
        match self {
            Self::Whole => (1, 2),
            Self::Metadata(version) => version.list_fields(),
        }
    }
}

/// The version of the API group `meta.k8s.io`. The two differ in their name, and in the field numbers of a list in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// Finds a version by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        }
    }

    /// The field numbers of metadata and items in a `PartialObjectMetadataList` in protobuf.
    #[must_use]
    pub const fn list_fields(self) -> (u32, u32) {
        match self {
            Self::V1 => (1, 2),
            Self::V1Beta1 => (2, 1),
        }
    }

    /// The value of `apiVersion`, such as `meta.k8s.io/v1`.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Whether `metadata.managedFields` is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ManagedFields {
    /// Sent if upstream has them.
    #[default]
    Kept,
    /// Left out, because the client's Accept header has `;drop=metadata.managedFields` (KEP-5958).
    Dropped,
}

/// The form in which a client receives objects. The default is what upstream sends in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectFormat {
    /// The encoding.
    pub encoding: Encoding,
    /// The whole object, or its metadata.
    pub form: ObjectPart,
    /// Whether managed fields are sent.
    pub managed_fields: ManagedFields,
}

impl ObjectFormat {
    /// Whole objects, with managed fields.
    #[must_use]
    pub const fn whole(encoding: Encoding) -> Self {
        Self {
            encoding,
            form: ObjectPart::Whole,
            managed_fields: ManagedFields::Kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of the API server's `generated.proto`.
    #[test]
    fn versions_of_metadata_differ_in_name_and_in_the_fields_of_their_lists() {
        let fields = |name: &str| {
            let version = MetaVersion::named(name).unwrap();
            assert_eq!(version.api_version(), format!("meta.k8s.io/{name}"));
            assert_eq!(
                ObjectPart::Metadata(version).list_fields(),
                version.list_fields()
            );
            version.list_fields()
        };
        assert_eq!([fields("v1"), fields("v1beta1")], [(1, 2), (2, 1)]);
        assert_eq!(ObjectPart::Whole.list_fields(), (1, 2));
        assert_eq!(MetaVersion::named("v2"), None);
    }
}
