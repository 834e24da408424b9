//! The form of responses that a client accepts: whole objects or their metadata, and compact or indented errors.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::kinds::ServedKind;
use crate::decode::{ScanError, scan_list};
use crate::protocol::request::{Accept, JsonChoice};
use crate::protocol::status::{Status, StatusForm};
use crate::resource::Layout;
use crate::view::{MetaVersion, Partial};

/// The start of every `Status`. The response to a deletion may be one instead of an object.
const STATUS: &[u8] = br#"{"kind":"Status","#;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client's `Accept` header, parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptHeader {
    /// The requested form of objects; `None` if no element of the header can be served.
    choice: Option<JsonChoice>,
    /// The form of errors.
    pub(super) refusals: StatusForm,
}

/// Whether a response holds one object or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultShape {
    Object,
    List,
}

impl AcceptHeader {
    /// Parses the header. Only JSON is served here, and no Tables; elements for anything else are skipped (docs/PROTOCOL.md §5.1).
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accept = Accept::of(headers);
        Self {
            choice: accept.json_choice(),
            refusals: accept.json_refusal_form(),
        }
    }

    /// The requested form of objects.
    ///
    /// # Errors
    /// 406 if no element of the header can be served.
    pub(super) fn choice(self) -> Result<JsonChoice, Status> {
        self.choice.ok_or_else(|| {
            not_acceptable("only the following media types are accepted: application/json".into())
        })
    }
}

/// The `Accept` header for a request to `serve`: for the choice if it fits the result's shape, otherwise for whole objects.
pub(super) fn accept_header(choice: JsonChoice, shape: ResultShape) -> HeaderValue {
    let text = match (choice, shape) {
        (JsonChoice::MetadataList(MetaVersion::V1), ResultShape::List) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        }
        (JsonChoice::MetadataList(MetaVersion::V1Beta1), ResultShape::List) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"
        }
        (JsonChoice::Metadata(MetaVersion::V1), ResultShape::Object) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        }
        (JsonChoice::Metadata(MetaVersion::V1Beta1), ResultShape::Object) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"
        }
        (JsonChoice::Whole | JsonChoice::Metadata(_) | JsonChoice::MetadataList(_), _) => {
            return JSON;
        }
    };
    HeaderValue::from_static(text)
}

/// kube-apiserver's error for a choice that does not fit the result's shape; `None` if it fits (docs/PROTOCOL.md §5.2).
pub(super) fn shape_mismatch(
    choice: JsonChoice,
    shape: ResultShape,
    kind: &ServedKind,
) -> Option<Status> {
    let resource = &kind.resource;
    match (choice, shape, resource.layout) {
        (JsonChoice::Metadata(_), ResultShape::List, layout) => {
            let name = match layout {
                Layout::Typed => format!("*{}.{}", resource.gvr.version, resource.list_kind),
                Layout::Dynamic => "*unstructured.UnstructuredList".into(),
            };
            Some(not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({name})"
            )))
        }
        (JsonChoice::MetadataList(_), ResultShape::Object, Layout::Typed) => {
            let name = format!("*{}.{}", resource.gvr.version, resource.kind);
            Some(not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({name})"
            )))
        }
        (JsonChoice::MetadataList(_), ResultShape::Object, Layout::Dynamic) => {
            Some(Status::untyped("content is not a list"))
        }
        (JsonChoice::Whole, _, _)
        | (JsonChoice::Metadata(_), ResultShape::Object, _)
        | (JsonChoice::MetadataList(_), ResultShape::List, _) => None,
    }
}

/// Converts a result of the store to the requested form. A `Status` is never converted.
///
/// # Errors
/// [`shape_mismatch`]; 500 if the result cannot be scanned.
pub(super) fn in_requested_form(
    choice: JsonChoice,
    shape: ResultShape,
    kind: &ServedKind,
    answer: Bytes,
) -> Result<Bytes, Status> {
    if answer.starts_with(STATUS) {
        return Ok(answer);
    }
    if let Some(refusal) = shape_mismatch(choice, shape, kind) {
        return Err(refusal);
    }
    let (JsonChoice::Metadata(version) | JsonChoice::MetadataList(version)) = choice else {
        return Ok(answer);
    };
    let layout = kind.resource.layout;
    let partial = Partial { version, layout };
    let metadata = match shape {
        ResultShape::Object => partial.object(&answer),
        ResultShape::List => metadata_list(partial, &answer),
    };
    metadata
        .map(Into::into)
        .map_err(|fault| Status::untyped(fault.to_string()))
}

fn metadata_list(partial: Partial, list: &[u8]) -> Result<Vec<u8>, ScanError> {
    let page = scan_list(list)?;
    let mut out = format!(
        r#"{{"kind":"PartialObjectMetadataList","apiVersion":"{}","metadata":{{"resourceVersion":"{}"}},"items":"#,
        partial.version.api_version(),
        page.resource_version
    )
    .into_bytes();
    for (index, item) in page.items.iter().enumerate() {
        out.push(if index == 0 { b'[' } else { b',' });
        out.append(&mut partial.object(item.of(list))?);
    }
    let end: &[u8] = if page.items.is_empty() {
        b"null}"
    } else {
        b"]}"
    };
    out.extend_from_slice(end);
    Ok(out)
}

fn not_acceptable(message: String) -> Status {
    Status::new(406, "NotAcceptable", message)
}

#[cfg(test)]
mod tests;
