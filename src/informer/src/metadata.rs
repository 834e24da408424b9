//! Objects of any resource, reduced to their metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// An object's metadata, as in `PartialObjectMetadata`. If a server can only send whole objects, the rest is dropped here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The object's `metadata`.
    #[serde(default)]
    pub metadata: ObjectMeta,
}
