//! Describes the collection that an informer reads, and how its objects are decoded.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::raw::DecodeError;
use super::{Metadata, Packed, Raw};
use crate::resource::{Gvr, Object};
use crate::upstream::driver::Collection;
use crate::upstream::reflector::{InitialVersion, StreamingLists};

/// Items per page, as in client-go and kube-rs.
const PAGE_LEN: u32 = 500;

/// Decodes an object as `T`.
pub(super) type Decode<T> = Arc<dyn Fn(Raw) -> Result<T, DecodeError> + Send + Sync>;

/// Whether `metadata.managedFields`, which record the owner of each field, are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedFieldsMode {
    Kept,
    /// Removed from the bytes before decoding, so that decoding them costs nothing.
    Dropped,
}

/// A collection to read: resource, namespace, selectors, and the type of its objects. By default it covers all namespaces and objects.
pub struct ListWatch<T> {
    pub(super) read: ReadOptions,
    pub(super) decode: Decode<T>,
}

/// Everything in a [`ListWatch`] except the type of its objects. Equal options mean the same collection, read in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadOptions {
    pub(super) collection: Collection,
    pub(super) managed_fields: ManagedFieldsMode,
    pub(super) metadata_only: bool,
    pub(super) streaming: StreamingLists,
    pub(super) page_len: u32,
    pub(super) initial: InitialVersion,
}

impl<T: DeserializeOwned> ListWatch<T> {
    /// All objects of a resource, decoded as `T`, which can be any serde type.
    #[must_use]
    pub fn typed(gvr: &Gvr) -> Self {
        Self::new(gvr, Arc::new(|object| object.read()))
    }

    /// All objects of a k8s-openapi kind.
    #[must_use]
    pub fn of_kind() -> Self
    where
        T: k8s_openapi::Resource + Clone,
    {
        let gvr = Gvr::new(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT);
        Self::new(&gvr, Arc::new(|object| object.read().map(exact)))
    }
}

impl ListWatch<Raw> {
    /// All objects of a resource, kept as the bytes received.
    #[must_use]
    pub fn raw(gvr: &Gvr) -> Self {
        Self::new(gvr, Arc::new(Ok))
    }
}

impl<T> ListWatch<Packed<T>> {
    /// All objects of a resource, kept as the bytes received, and decoded as `T` on access.
    #[must_use]
    pub fn packed(gvr: &Gvr) -> Self {
        Self::new(gvr, Arc::new(|object| Ok(Packed::new(object))))
    }

    /// All objects of a k8s-openapi kind, kept as the bytes received, and decoded on access.
    #[must_use]
    pub fn packed_kind() -> Self
    where
        T: k8s_openapi::Resource,
    {
        Self::packed(&Gvr::new(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT))
    }
}

impl ListWatch<Metadata> {
    /// The metadata of all objects of a resource. Managed fields would take most of the memory, so they are left out;
    /// [`ListWatch::with_managed_fields`] keeps them.
    #[must_use]
    pub fn metadata(gvr: &Gvr) -> Self {
        let mut list_watch =
            Self::new(gvr, Arc::new(|object| object.read().map(exact))).without_managed_fields();
        list_watch.read.metadata_only = true;
        list_watch
    }
}

impl<T> ListWatch<T> {
    fn new(gvr: &Gvr, decode: Decode<T>) -> Self {
        Self {
            read: ReadOptions {
                collection: Collection::all(gvr),
                managed_fields: ManagedFieldsMode::Kept,
                metadata_only: false,
                streaming: StreamingLists::Preferred,
                page_len: PAGE_LEN,
                initial: InitialVersion::Any,
            },
            decode,
        }
    }

    /// Only objects of one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.read.collection.namespace = Some(namespace.to_owned());
        self
    }

    /// Only objects whose labels match the selector. The server validates it.
    #[must_use]
    pub fn with_labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.read.collection.label_selector);
        self
    }

    /// Only objects whose fields match the selector. The server decides which fields are supported.
    #[must_use]
    pub fn with_fields(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.read.collection.field_selector);
        self
    }

    /// Leaves out `metadata.managedFields`. They are often a quarter of an object's bytes and, decoded, most of its memory; few
    /// controllers read them.
    #[must_use]
    pub const fn without_managed_fields(mut self) -> Self {
        self.read.managed_fields = ManagedFieldsMode::Dropped;
        self
    }

    /// Keeps `metadata.managedFields`. This is the default, except for [`ListWatch::metadata`].
    #[must_use]
    pub const fn with_managed_fields(mut self) -> Self {
        self.read.managed_fields = ManagedFieldsMode::Kept;
        self
    }

    /// Decodes one object.
    ///
    /// # Errors
    /// Its JSON does not fit `T`.
    pub(super) fn make(&self, object: &Object) -> Result<T, DecodeError> {
        let raw = Raw::of(object);
        (self.decode)(match self.read.managed_fields {
            ManagedFieldsMode::Kept => raw,
            ManagedFieldsMode::Dropped => raw.without_managed_fields(),
        })
    }

    /// Lists in pages of `page_len` items, instead of streaming initial data.
    #[must_use]
    pub const fn in_pages(mut self, page_len: u32) -> Self {
        self.read.streaming = StreamingLists::Never;
        self.read.page_len = page_len;
        self
    }

    /// Requests consistent initial data, instead of the state of the server's cache.
    #[must_use]
    pub const fn consistent(mut self) -> Self {
        self.read.initial = InitialVersion::Latest;
        self
    }

    /// The resource, namespace and selectors.
    #[must_use]
    pub const fn collection(&self) -> &Collection {
        &self.read.collection
    }
}

/// Clones without spare capacity: decoding leaves unused capacity in every `Vec`, about a fifth of a pod's memory.
fn exact<T: Clone>(decoded: T) -> T {
    decoded.clone()
}

impl<T> Clone for ListWatch<T> {
    fn clone(&self) -> Self {
        Self {
            read: self.read.clone(),
            decode: Arc::clone(&self.decode),
        }
    }
}

impl<T> fmt::Debug for ListWatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListWatch")
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}
