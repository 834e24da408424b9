//! The form that a client wants answers in: objects whole or cut to their metadata, refusals compact or indented.

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};

use super::kinds::ServedKind;
use crate::decode::{ScanError, scan_list};
use crate::protocol::request::{JsonChoice, json_refusal_form, wish};
use crate::protocol::status::{Status, StatusForm};
use crate::resource::Layout;
use crate::view::{MetaVersion, Partial};

/// How every `Status` begins; answers to deletions may be one.
const STATUS: &[u8] = br#"{"kind":"Status","#;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What a client's `Accept` header asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptHeader {
    wish: Option<JsonChoice>,
    /// How refusals are written.
    pub(super) refusals: StatusForm,
}

/// Whether an answer holds one object, or many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultShape {
    Object,
    List,
}

impl AcceptHeader {
    /// Reads the header. Only JSON is spoken here, and no Tables: elements that ask for anything else are passed over
    /// (docs/PROTOCOL.md §5.1).
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter();
        let accept: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        Self {
            wish: wish(&accept),
            refusals: json_refusal_form(&accept),
        }
    }

    /// What is granted of the wish.
    ///
    /// # Errors
    /// 406 if nothing is left of it.
    pub(super) fn wish(self) -> Result<JsonChoice, Status> {
        self.wish.ok_or_else(|| {
            not_acceptable("only the following media types are accepted: application/json".into())
        })
    }
}

/// The header by which the reading side is asked for a wish; for whole objects where it does not fit what is read.
pub(super) fn accept_header(wish: JsonChoice, shape: ResultShape) -> HeaderValue {
    let text = match (wish, shape) {
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

/// The refusal of a wish that does not fit what is answered, in the real server's words (docs/PROTOCOL.md §5.2).
pub(super) fn misfit(wish: JsonChoice, shape: ResultShape, kind: &ServedKind) -> Option<Status> {
    let resource = &kind.resource;
    match (wish, shape, resource.layout) {
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

/// An answer of the store in the form that was wished for; a `Status` is always whole.
///
/// # Errors
/// The wish does not fit.
pub(super) fn in_form(
    wish: JsonChoice,
    shape: ResultShape,
    kind: &ServedKind,
    answer: Bytes,
) -> Result<Bytes, Status> {
    if answer.starts_with(STATUS) {
        return Ok(answer);
    }
    if let Some(refusal) = misfit(wish, shape, kind) {
        return Err(refusal);
    }
    let (JsonChoice::Metadata(version) | JsonChoice::MetadataList(version)) = wish else {
        return Ok(answer);
    };
    let layout = kind.resource.layout;
    let partial = Partial { version, layout };
    let cut = match shape {
        ResultShape::Object => partial.object(&answer),
        ResultShape::List => cut_list(partial, &answer),
    };
    cut.map(Into::into)
        .map_err(|fault| Status::untyped(fault.to_string()))
}

fn cut_list(partial: Partial, list: &[u8]) -> Result<Vec<u8>, ScanError> {
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
