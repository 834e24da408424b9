//! Ready-made index functions.

use std::sync::Arc;

use super::pointer::{JsonPointer, PointerError};
use crate::{Cached, Raw};

/// The name of the index by namespace. [`Lister`](crate::Lister) uses it if it exists, as client-go's listers do.
pub const NAMESPACE_INDEX: &str = "namespace";

/// Indexes by the values that a function returns for an object, such as the node's name: an `Option`, an array or a `Vec` of strings.
#[must_use]
pub fn index_by<V, I>(values: impl Fn(&V) -> I + Send + Sync + 'static) -> IndexFn<V>
where
    I: IntoIterator<Item: Into<String>>,
{
    Arc::new(move |object| values(object).into_iter().map(Into::into).collect())
}

/// Indexes by namespace; cluster-scoped objects have the value `""`.
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

/// Indexes dynamic objects by the string, number or boolean at a JSON pointer (RFC 6901), such as `/spec/nodeName`. Objects that
/// have another kind of value there, or none, are not in the index.
///
/// # Errors
/// The pointer is malformed.
pub fn index_by_pointer(pointer: &str) -> Result<IndexFn<Cached<Raw>>, PointerError> {
    let pointer = JsonPointer::parse(pointer)?;
    Ok(index_by(move |object: &Cached<Raw>| {
        pointer.text_in(object.bytes())
    }))
}

/// Returns the values under which an index lists an object, possibly none. It may read the store, but must not write to it or add
/// handlers to its informer.
pub type IndexFn<V> = Arc<dyn Fn(&V) -> Vec<String> + Send + Sync>;
