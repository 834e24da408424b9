//! The form that a client wants answers in: objects whole or cut to their metadata, refusals compact or indented.

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};

use super::kinds::ServedKind;
use crate::decode::{ScanError, scan_list};
use crate::protocol::request::{Wish, json_refusal_form, wish};
use crate::protocol::status::{Status, StatusForm};
use crate::resource::Layout;
use crate::view::{MetaVersion, Partial};

/// How every `Status` begins; answers to deletions may be one.
const STATUS: &[u8] = br#"{"kind":"Status","#;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What a client's `Accept` header asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    wish: Option<Wish>,
    /// How refusals are written.
    pub(super) refusals: StatusForm,
}

/// Whether an answer holds one object, or many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    List,
}

impl Form {
    /// Reads the header. Only JSON is spoken here, and no Tables: elements that ask for anything else are passed over
    /// (protocol.md §5.1).
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
    pub(super) fn wish(self) -> Result<Wish, Status> {
        self.wish.ok_or_else(|| {
            not_acceptable("only the following media types are accepted: application/json".into())
        })
    }
}

/// The header by which the reading side is asked for a wish; for whole objects where it does not fit what is read.
pub(super) fn accept_header(wish: Wish, shape: Shape) -> HeaderValue {
    let text = match (wish, shape) {
        (Wish::MetadataList(MetaVersion::V1), Shape::List) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        }
        (Wish::MetadataList(MetaVersion::V1Beta1), Shape::List) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"
        }
        (Wish::Metadata(MetaVersion::V1), Shape::Object) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        }
        (Wish::Metadata(MetaVersion::V1Beta1), Shape::Object) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"
        }
        (Wish::Whole | Wish::Metadata(_) | Wish::MetadataList(_), _) => return JSON,
    };
    HeaderValue::from_static(text)
}

/// The refusal of a wish that does not fit what is answered, in the real server's words (protocol.md §5.2).
pub(super) fn misfit(wish: Wish, shape: Shape, kind: &ServedKind) -> Option<Status> {
    let resource = &kind.resource;
    match (wish, shape, resource.layout) {
        (Wish::Metadata(_), Shape::List, layout) => {
            let name = match layout {
                Layout::Typed => format!("*{}.{}", resource.gvr.version, resource.list_kind),
                Layout::Dynamic => "*unstructured.UnstructuredList".into(),
            };
            Some(not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({name})"
            )))
        }
        (Wish::MetadataList(_), Shape::Object, Layout::Typed) => {
            let name = format!("*{}.{}", resource.gvr.version, resource.kind);
            Some(not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({name})"
            )))
        }
        (Wish::MetadataList(_), Shape::Object, Layout::Dynamic) => {
            Some(Status::untyped("content is not a list"))
        }
        (Wish::Whole, _, _)
        | (Wish::Metadata(_), Shape::Object, _)
        | (Wish::MetadataList(_), Shape::List, _) => None,
    }
}

/// An answer of the store in the form that was wished for; a `Status` is always whole.
///
/// # Errors
/// The wish does not fit.
pub(super) fn in_form(
    wish: Wish,
    shape: Shape,
    kind: &ServedKind,
    answer: Bytes,
) -> Result<Bytes, Status> {
    if answer.starts_with(STATUS) {
        return Ok(answer);
    }
    if let Some(refusal) = misfit(wish, shape, kind) {
        return Err(refusal);
    }
    let (Wish::Metadata(version) | Wish::MetadataList(version)) = wish else {
        return Ok(answer);
    };
    let layout = kind.resource.layout;
    let partial = Partial { version, layout };
    let cut = match shape {
        Shape::Object => partial.object(&answer),
        Shape::List => cut_list(partial, &answer),
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
