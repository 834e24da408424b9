//! Index functions that are often wanted.

use std::sync::Arc;

use super::IndexFn;
use super::pointer::{JsonPointer, PointerError};
use crate::informer::{Cached, Raw};

/// The name under which [`Lister`](crate::informer::Lister) looks for the index over namespaces, as client-go's listers do.
pub const NAMESPACE_INDEX: &str = "namespace";

/// Indexes by what a function finds in an object: an `Option`, an array or a `Vec` of texts, such as the node's name.
#[must_use]
pub fn index_by<V, I>(values: impl Fn(&V) -> I + Send + Sync + 'static) -> IndexFn<V>
where
    I: IntoIterator<Item: Into<String>>,
{
    Arc::new(move |object| values(object).into_iter().map(Into::into).collect())
}

/// Indexes by namespace; cluster-scoped objects are under `""`.
#[must_use]
pub fn index_by_namespace<T>() -> IndexFn<Cached<T>> {
    index_by(|object: &Cached<T>| [object.key().namespace().to_owned()])
}

/// Indexes by the value of a label; objects without it are not in the index.
#[must_use]
pub fn index_by_label<T>(key: &str) -> IndexFn<Cached<T>> {
    let key = key.to_owned();
    index_by(move |object: &Cached<T>| object.label(&key).map(str::to_owned))
}

/// Indexes dynamic objects by what a JSON pointer (RFC 6901) finds, such as `/spec/nodeName`: a text, number or boolean.
/// Others, and objects without it, are not in the index.
///
/// # Errors
/// The pointer is malformed.
pub fn index_by_pointer(pointer: &str) -> Result<IndexFn<Cached<Raw>>, PointerError> {
    let pointer = JsonPointer::parse(pointer)?;
    Ok(index_by(move |object: &Cached<Raw>| {
        pointer.text_in(object.bytes())
    }))
}
