//! Tests of conversions; the expected bytes are a real API server's.

use super::*;
use crate::apiserver::kinds::Catalogue;

#[test]
fn a_deleted_collection_is_cut_and_without_items_has_null() {
    let catalogue = Catalogue::new(&[]);
    let pods = catalogue.kind(catalogue.index_of_plural("pods").unwrap());
    let converted = |list: &'static str| {
        let choice = JsonChoice::MetadataList(MetaVersion::V1);
        let bytes = in_requested_form(
            choice,
            ResultShape::List,
            pods,
            Bytes::from_static(list.as_bytes()),
        )
        .unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    assert_eq!(
        converted(
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#
        ),
        r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":null}"#
    );
    assert_eq!(
        converted(
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"},"spec":{}}]}"#
        ),
        r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}]}"#
    );
}
