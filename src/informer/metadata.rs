//! Objects of any resource without anything but metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// What `PartialObjectMetadata` holds of an object. Servers that cannot cut objects down send them whole; the rest is dropped then.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// `metadata`.
    #[serde(default)]
    pub metadata: ObjectMeta,
}
