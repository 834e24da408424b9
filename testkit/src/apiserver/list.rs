//! Lists: the objects of one state, or a page of them, and their encoding.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::history::{Objects, range};
use super::json;
use super::kinds::{ObjectKey, ServedKind};
use super::object::{Form, Object};
use super::query::{Consistency, ContinueToken, ListOptions, ListRange};
use super::selector::Selector;
use super::status::Status;
use super::view::View;

/// A list's body is sent in pieces of about this length, so that large lists are not copied as a whole.
const PIECE_LEN: usize = 64 << 10;

/// A list, or a page of one.
#[derive(Debug)]
pub(super) struct List {
    pub(super) version: u64,
    pub(super) items: Vec<Arc<Object>>,
    pub(super) continue_token: String,
    pub(super) remaining: Option<usize>,
}

impl List {
    /// Reads a list.
    ///
    /// # Errors
    /// kube-apiserver's, 410 and 504 among them.
    pub(super) async fn read(
        view: &View,
        kind_index: usize,
        selector: &Selector,
        options: &ListOptions,
    ) -> Result<Self, Status> {
        let kind = view.store.catalogue().kind(kind_index);
        let range = options.list(single_key(kind, selector).is_some())?;
        let exactly = match range.consistency {
            Consistency::Exactly(version) => Some(version),
            Consistency::Latest | Consistency::Cached | Consistency::AtLeast(_) => None,
        };
        view.wait_for(range.consistency).await?;
        let page = view.read(kind_index, exactly, |objects, version| {
            Self::page(kind, objects, version, selector, &range)
        });
        page.ok_or_else(|| {
            if range.is_continued {
                Status::expired_token(ContinueToken::text(&range.start, None))
            } else {
                Status::expired_list()
            }
        })
    }

    fn page(
        kind: &ServedKind,
        objects: &Objects,
        version: u64,
        selector: &Selector,
        wanted: &ListRange,
    ) -> Self {
        let mut page = Self {
            version,
            items: Vec::new(),
            continue_token: String::new(),
            remaining: None,
        };
        let Some(limit) = wanted.limit else {
            page.items = select(kind, objects, selector, &wanted.start);
            return page;
        };
        let mut left = range(objects, &selector.namespace, &wanted.start);
        let mut last_key = "";
        while let Some(object) = left.next() {
            if page.items.len() == limit {
                page.continue_token = ContinueToken::text(&format!("{last_key}\0"), Some(version));
                page.remaining = (!selector.has_terms()).then(|| 1 + left.count());
                break;
            }
            last_key = relative(&object.key, &selector.namespace);
            if selector.matches(object) {
                page.items.push(Arc::clone(object));
            }
        }
        page
    }

    /// The list's body in pieces.
    pub(super) fn pieces(
        self,
        kind: &ServedKind,
        form: Form,
    ) -> impl Iterator<Item = Bytes> + use<> {
        let (head, tail) = self.envelope(kind, form);
        // In lists of built-in kinds the items have no type of their own.
        let item_type = match form {
            Form::Whole if !kind.is_custom => {
                let api_version = kind.api_version();
                format!(r#""kind":"{}","apiVersion":"{api_version}","#, kind.kind)
            }
            Form::Whole | Form::Metadata(_) => String::new(),
        };
        let mut piece = head.into_bytes();
        let mut items = self.items.into_iter().enumerate();
        let mut tail = Some(tail);
        std::iter::from_fn(move || {
            while piece.len() < PIECE_LEN && tail.is_some() {
                let Some((index, item)) = items.next() else {
                    piece.extend(tail.take().into_iter().flat_map(String::into_bytes));
                    break;
                };
                if index > 0 {
                    piece.push(b',');
                }
                let body = item.body(form);
                match body
                    .get(1..)
                    .and_then(|rest| rest.strip_prefix(item_type.as_bytes()))
                {
                    Some(rest) => {
                        piece.push(b'{');
                        piece.extend_from_slice(rest);
                    }
                    None => piece.extend_from_slice(&body),
                }
            }
            (!piece.is_empty()).then(|| std::mem::take(&mut piece).into())
        })
    }

    /// What precedes and follows the items.
    fn envelope(&self, kind: &ServedKind, form: Form) -> (String, String) {
        let version = self.version.to_string();
        let api_version = kind.api_version();
        let list_kind = format!("{}List", kind.kind);
        if kind.is_custom && form == Form::Whole {
            let mut metadata = json!({"continue": self.continue_token, "resourceVersion": version});
            if let Some(remaining) = self.remaining {
                metadata["remainingItemCount"] = remaining.into();
            }
            return (
                format!(r#"{{"apiVersion":"{api_version}","items":["#),
                format!("],\"kind\":\"{list_kind}\",\"metadata\":{metadata}}}\n"),
            );
        }
        let (api_version, list_kind) = match form {
            Form::Whole => (api_version, list_kind),
            Form::Metadata(version) => (
                format!("meta.k8s.io/{version}"),
                "PartialObjectMetadataList".to_owned(),
            ),
        };
        let mut metadata = format!(r#""resourceVersion":"{version}""#);
        if !self.continue_token.is_empty() {
            metadata += &format!(r#","continue":"{}""#, self.continue_token);
        }
        if let Some(remaining) = self.remaining {
            metadata += &format!(r#","remainingItemCount":{remaining}"#);
        }
        let head = format!(
            r#"{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":{{{metadata}}},"items":"#
        );
        // Go writes a list of metadata that it has not filled as null.
        if self.items.is_empty() && form != Form::Whole {
            return (head + "null", "}\n".to_owned());
        }
        (head + "[", "]}\n".to_owned())
    }
}

/// The objects that a selector selects, from a key on.
pub(super) fn select(
    kind: &ServedKind,
    objects: &Objects,
    selector: &Selector,
    start: &str,
) -> Vec<Arc<Object>> {
    if let (Some(key), "") = (single_key(kind, selector), start) {
        let object = objects.get(&key).filter(|object| selector.matches(object));
        return object.cloned().into_iter().collect();
    }
    let range = range(objects, &selector.namespace, start);
    range
        .filter(|object| selector.matches(object))
        .cloned()
        .collect()
}

/// The only key that a selector can select.
fn single_key(kind: &ServedKind, selector: &Selector) -> Option<ObjectKey> {
    let namespace = match kind.is_namespaced {
        true => selector.pinned_namespace()?,
        false => "",
    };
    Some(ObjectKey::new(namespace, selector.pinned_name()?))
}

fn relative<'a>(key: &'a ObjectKey, namespace: &str) -> &'a str {
    match namespace {
        "" => key.as_str(),
        _ => key.name(),
    }
}

/// The line of a bookmark; the marker after initial events has an annotation.
pub(super) fn bookmark(kind: &ServedKind, form: Form, version: u64, is_marker: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if is_marker {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
    let object = json::object(kind, &object);
    let object = match form {
        Form::Whole => object.into(),
        Form::Metadata(version) => json::partial(&object, version),
    };
    [
        br#"{"type":"BOOKMARK","object":"#.as_slice(),
        &object,
        b"}\n",
    ]
    .concat()
    .into()
}
